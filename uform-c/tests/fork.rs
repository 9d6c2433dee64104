//! What a forked child can do with executors: new ones work, inherited ones say so at once.
#![cfg(unix)]

use std::sync::mpsc;

use uform_c::base::{Result, Status};
use uform_c::executors::{Executor, Mood, on_calling_thread};

fn is_forked<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.status == Status::Forked)
}

/// The number of the first thing that is wrong in the child, or zero.
fn child(executor: std::sync::Arc<Executor>, call: &uform_c::executors::Call) -> i32 {
    let (told, news) = mpsc::channel();
    call.on_done(Box::new(move |result| told.send(is_forked(result.clone())).unwrap()));
    let checks = [
        is_forked(executor.run(|_| Ok(()))),
        is_forked(executor.defer(Box::new(|_| Ok(())))),
        is_forked(executor.drain(Mood::Parked)),
        is_forked(executor.describe()),
        is_forked(executor.trim()),
        call.poll().is_some_and(is_forked),
        is_forked(call.wait(-1.0)),
        is_forked(call.cancel()),
        news.try_recv() == Ok(true),
        {
            call.abandon();
            drop(executor);
            on_calling_thread(None, |context| context.team.run(1, &|_, _| {})).is_ok()
        },
        Executor::for_ram(&[], None, 2, 0)
            .and_then(|own| {
                own.run(|context| context.team.run(2, &|_, _| {}))?;
                own.defer(Box::new(|_| Ok(())))?.wait(-1.0)
            })
            .is_ok(),
    ];
    checks.iter().position(|good| !good).map_or(0, |bad| bad as i32 + 1)
}

#[test]
fn an_inherited_executor_is_a_clear_error_and_a_new_one_works() {
    for mood in [Mood::Parked, Mood::Spinning] {
        let executor = Executor::for_ram(&[], None, 2, 0).unwrap();
        executor.drain(mood).unwrap();
        let (open, gate) = mpsc::channel::<()>();
        let (begun, beginning) = mpsc::channel();
        // A call is running while the process forks, so that locks and counters are caught in the middle.
        let call = executor.defer(Box::new(move |_| {
            begun.send(()).unwrap();
            gate.recv().unwrap();
            Ok(())
        }));
        let call = call.unwrap();
        beginning.recv().unwrap();
        // SAFETY: the child has one thread; it uses the library as a forked program would, and leaves without unwinding.
        unsafe {
            let child_process = libc::fork();
            assert!(child_process >= 0);
            if child_process == 0 {
                // A hang ends as a signal instead.
                libc::alarm(20);
                libc::_exit(child(executor, &call));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child_process, &mut status, 0), child_process);
            assert!(libc::WIFEXITED(status), "the child died of signal {}", libc::WTERMSIG(status));
            assert_eq!(libc::WEXITSTATUS(status), 0, "the check of that number is wrong");
        }
        open.send(()).unwrap();
        call.wait(-1.0).unwrap();
        executor.run(|context| context.team.run(2, &|_, _| {})).unwrap();
    }
}
