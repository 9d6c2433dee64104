//! Executors as the layers above see them: order, deferred calls, moods, panics, freeing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use uform_c::base::{Error, Result, Status};
use uform_c::executors::{
    Call, Context, Executor, Mood, describe_calling_thread, on_calling_thread, trim_calling_thread,
};
use uform_c::system::cpu::CpuClass;

fn executor(threads: usize, limit: usize) -> Arc<Executor> {
    Executor::for_ram(&[], None, threads, limit).unwrap()
}

/// A deferred call that computes until `gate` opens, and the sign that it has begun.
fn blocker(executor: &Executor) -> (Arc<Call>, mpsc::Sender<()>) {
    let (open, gate) = mpsc::channel::<()>();
    let (begun, beginning) = mpsc::channel::<()>();
    let call = executor.defer(Box::new(move |_| {
        begun.send(()).unwrap();
        let _ = gate.recv();
        Ok(())
    }));
    beginning.recv().unwrap();
    (call.unwrap(), open)
}

#[test]
fn every_task_runs_once_whatever_the_number_of_threads() {
    for threads in [1, 2, 3, 8] {
        let executor = executor(threads, 0);
        for mood in [Mood::Parked, Mood::Spinning] {
            executor.drain(mood).unwrap();
            for tasks in [0, 1, 2, 7, 1000] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                let busy: Vec<AtomicBool> = (0..threads).map(|_| AtomicBool::new(false)).collect();
                executor
                    .run(|context| {
                        assert_eq!(context.team.threads(), threads);
                        assert_eq!(context.scratch.len(), threads);
                        context.team.run(tasks, &|thread, task| {
                            assert!(!busy[thread].swap(true, Ordering::SeqCst));
                            counts[task].fetch_add(1, Ordering::Relaxed);
                            busy[thread].store(false, Ordering::SeqCst);
                        })
                    })
                    .unwrap();
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }
}

#[test]
fn all_threads_compute_at_once_in_synchronous_and_in_deferred_calls() {
    let executor = executor(3, 0);
    let meet = |context: &Context| {
        let all = Barrier::new(3);
        context.team.run(3, &|_, _| {
            all.wait();
        })
    };
    executor.run(meet).unwrap();
    executor.defer(Box::new(meet)).unwrap().wait(-1.0).unwrap();
}

#[test]
fn bodies_see_what_the_leader_wrote_and_the_leader_what_they_wrote() {
    let executor = executor(4, 0);
    let mut values = vec![0usize; 64];
    executor
        .run(|context| {
            for round in 0..20_000 {
                let cells: Vec<Mutex<&mut usize>> = values.iter_mut().map(Mutex::new).collect();
                context.team.run(64, &|_, task| **cells[task].lock().unwrap() += round)?;
            }
            Ok(())
        })
        .unwrap();
    assert!(values.iter().all(|value| *value == 20_000 * 19_999 / 2));
}

#[test]
fn calls_run_in_the_order_of_their_submission() {
    let executor = executor(2, 0);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (first, open) = blocker(&executor);
    let note = |number: usize| {
        let order = order.clone();
        Box::new(move |_: &Context| {
            order.lock().unwrap().push(number);
            Ok(())
        })
    };
    let calls: Vec<_> = (0..5).map(|number| executor.defer(note(number)).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| executor.run(|context| note(5)(context)).unwrap());
        // The synchronous call is in line when it waits for its turn, which shows nowhere but in time.
        std::thread::sleep(Duration::from_millis(100));
        let last = executor.defer(note(6)).unwrap();
        assert!(calls.iter().all(|call| call.poll().is_none()));
        open.send(()).unwrap();
        last.wait(-1.0).unwrap();
    });
    assert_eq!(first.poll(), Some(Ok(())));
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_full_table_is_contended_until_a_call_ends() {
    let executor = executor(1, 2);
    let (running, open) = blocker(&executor);
    let waiting = executor.defer(Box::new(|_| Ok(()))).unwrap();
    let refused = executor.defer(Box::new(|_| Ok(()))).unwrap_err();
    assert_eq!(refused.status, Status::Contended);
    let described = executor.describe().unwrap();
    assert_eq!((described.deferred_limit, described.deferred_waiting), (2, 2));
    assert_eq!(waiting.wait(0.01).unwrap_err().status, Status::TimedOut);
    open.send(()).unwrap();
    running.wait(-1.0).unwrap();
    waiting.wait(f64::INFINITY).unwrap();
    for _ in 0..100 {
        executor.defer(Box::new(|_| Ok(()))).unwrap().wait(-1.0).unwrap();
    }
    assert_eq!(executor.describe().unwrap().deferred_waiting, 0);
}

#[test]
fn a_call_cancelled_before_its_start_never_runs_and_leaves_the_table() {
    let executor = executor(1, 2);
    let (running, open) = blocker(&executor);
    let ran = Arc::new(AtomicBool::new(false));
    let flag = ran.clone();
    let call = executor.defer(Box::new(move |_| {
        flag.store(true, Ordering::SeqCst);
        Ok(())
    }));
    let call = call.unwrap();
    call.cancel().unwrap();
    assert_eq!(call.poll().unwrap().unwrap_err().status, Status::Cancelled);
    assert_eq!(Arc::strong_count(&ran), 1, "what the call owned is dropped at once");
    let next = executor.defer(Box::new(|_| Ok(()))).unwrap();
    open.send(()).unwrap();
    next.wait(-1.0).unwrap();
    running.wait(-1.0).unwrap();
    assert!(!ran.load(Ordering::SeqCst));
    assert_eq!(executor.describe().unwrap().deferred_waiting, 0);
}

#[test]
fn a_running_call_is_cancelled_at_its_next_look() {
    let executor = executor(2, 0);
    let (begun, beginning) = mpsc::channel();
    let call = executor.defer(Box::new(move |context| {
        begun.send(()).unwrap();
        loop {
            context.cancel.check()?;
            std::thread::yield_now();
        }
    }));
    let call = call.unwrap();
    beginning.recv().unwrap();
    call.cancel().unwrap();
    assert_eq!(call.wait(-1.0).unwrap_err().status, Status::Cancelled);
    executor.run(|context| context.cancel.check()).unwrap();
}

#[test]
fn errors_are_kept_with_their_calls() {
    let executor = executor(1, 0);
    let fail = |text: &'static str| {
        executor.defer(Box::new(move |_| Err(Error::new(Status::CorruptData, text)))).unwrap()
    };
    let (one, good, two) = (fail("one"), executor.defer(Box::new(|_| Ok(()))).unwrap(), fail("two"));
    executor.drain(Mood::Parked).unwrap();
    assert_eq!(one.wait(0.0).unwrap_err().message, "one");
    assert_eq!(good.wait(0.0), Ok(()));
    assert_eq!(two.poll(), Some(Err(Error::new(Status::CorruptData, "two"))));
}

#[test]
fn callbacks_run_once_and_may_use_the_executor() {
    let executor = executor(2, 0);
    let (told, news) = mpsc::channel();
    let (call, open) = blocker(&executor);
    let (shared, teller) = (executor.clone(), told.clone());
    call.on_done(Box::new(move |result| {
        assert_eq!(*result, Ok(()));
        // Two calls are in line by now; a synchronous one stands behind them, and only this thread can run them.
        assert_eq!(shared.run(|_| Ok(7)), Ok(7));
        let nested = shared.defer(Box::new(|_| Ok(()))).unwrap();
        nested.wait(-1.0).unwrap();
        let later = shared.defer(Box::new(|_| Ok(()))).unwrap();
        let deep = teller.clone();
        later.on_done(Box::new(move |_| deep.send("later").unwrap()));
        teller.send("first").unwrap();
    }));
    let others: Vec<_> = (0..2).map(|_| executor.defer(Box::new(|_| Ok(()))).unwrap()).collect();
    open.send(()).unwrap();
    assert_eq!(news.recv().unwrap(), "first");
    assert_eq!(news.recv().unwrap(), "later");
    others.iter().for_each(|other| other.wait(-1.0).unwrap());
    call.on_done(Box::new(move |result| {
        told.send(if result.is_ok() { "at once" } else { "wrong" }).unwrap()
    }));
    assert_eq!(news.try_recv(), Ok("at once"));
    assert!(news.recv().is_err(), "every sender is gone, and nothing else was sent");
}

#[test]
fn a_callback_of_a_cancelled_call_is_still_called() {
    let executor = executor(1, 0);
    let (_running, open) = blocker(&executor);
    let (told, news) = mpsc::channel();
    let call = executor.defer(Box::new(|_| Ok(()))).unwrap();
    call.on_done(Box::new(move |result| told.send(result.clone()).unwrap()));
    call.cancel().unwrap();
    assert_eq!(call.wait(0.0).unwrap_err().status, Status::Cancelled);
    assert!(news.try_recv().is_err(), "callbacks run on the driver thread, which is busy");
    open.send(()).unwrap();
    assert_eq!(news.recv().unwrap().unwrap_err().status, Status::Cancelled);
}

#[test]
fn a_cancelled_call_with_a_callback_leaves_the_table_at_once() {
    let executor = executor(1, 2);
    let (_running, open) = blocker(&executor);
    let (told, news) = mpsc::channel();
    for _ in 0..10 {
        let call = executor.defer(Box::new(|_| Ok(()))).unwrap();
        let told = told.clone();
        call.on_done(Box::new(move |result| told.send(result.clone()).unwrap()));
        call.cancel().unwrap();
        assert_eq!(executor.describe().unwrap().deferred_waiting, 1);
    }
    open.send(()).unwrap();
    drop(told);
    assert_eq!(news.iter().filter(|result| result.is_err()).count(), 10);
}

#[test]
fn callbacks_that_make_synchronous_calls_never_stack_up() {
    let executor = executor(1, 0);
    let (_running, open) = blocker(&executor);
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (told, news) = mpsc::channel();
    for _ in 0..50 {
        let call = executor.defer(Box::new(|_| Ok(()))).unwrap();
        let (shared, inside, most, told) = (executor.clone(), inside.clone(), most.clone(), told.clone());
        call.on_done(Box::new(move |_| {
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            shared.run(|_| Ok(())).unwrap();
            inside.fetch_sub(1, Ordering::SeqCst);
            told.send(()).unwrap();
        }));
    }
    open.send(()).unwrap();
    drop(told);
    assert_eq!((news.iter().count(), most.load(Ordering::SeqCst)), (50, 1));
}

#[test]
fn a_callback_that_always_submits_the_next_call_does_not_keep_the_executor() {
    /// Submits a call whose callback does the same, until that is refused.
    fn again(executor: *const Executor, refused: mpsc::Sender<Error>) {
        let address = executor.expose_provenance();
        // SAFETY: callbacks run before the executor's end, which waits for them.
        match unsafe { &*executor }.defer(Box::new(|_| Ok(()))) {
            Ok(call) => call.on_done(Box::new(move |_| {
                again(std::ptr::with_exposed_provenance(address), refused);
            })),
            Err(error) => refused.send(error).unwrap(),
        }
    }
    let executor = executor(1, 0);
    let (told, news) = mpsc::channel();
    again(Arc::as_ptr(&executor), told);
    std::thread::sleep(Duration::from_millis(20));
    drop(executor);
    let refused = news.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(refused.status, Status::Cancelled);
    assert!(refused.message.contains("freed"), "{refused}");
}

/// What calls compute does not depend on how their caller's thread treats small numbers.
#[test]
#[cfg(target_arch = "x86_64")]
fn subnormal_numbers_stay_whatever_the_caller_has_set() {
    use std::hint::black_box;

    fn set(state: u32) {
        // SAFETY: the default state with the bits that flush subnormal numbers to zero, or without.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const state, options(nostack, readonly)) };
    }
    let half = || (black_box(f32::MIN_POSITIVE) * black_box(0.5)).to_bits();
    std::thread::spawn(move || {
        set(0x9fc0);
        let executor = executor(3, 0);
        let meet = move |context: &Context| {
            let all = Barrier::new(context.team.threads());
            context.team.run(context.team.threads(), &|_, _| {
                all.wait();
                assert_eq!(half(), 1 << 22);
            })
        };
        executor.run(meet).unwrap();
        executor.defer(Box::new(meet)).unwrap().wait(-1.0).unwrap();
        on_calling_thread(None, meet).unwrap();
        assert_eq!(half(), 0, "the caller has its own state back");
        set(0x1f80);
    })
    .join()
    .unwrap();
}

#[test]
fn panics_fail_their_call_and_leave_the_executor_usable() {
    let executor = executor(3, 0);
    let work =
        |context: &Context| context.team.run(100, &|_, task| assert!(task != 63, "task {task} is bad"));
    for _ in 0..3 {
        let error = executor.run(work).unwrap_err();
        assert_eq!(error.status, Status::Internal);
        assert!(error.message.contains("task 63 is bad"), "{error}");
        let error = executor.defer(Box::new(work)).unwrap().wait(-1.0).unwrap_err();
        assert_eq!(error.status, Status::Internal);
        let outside: Result<()> = executor.run(|_| panic!("outside of tasks"));
        assert!(outside.unwrap_err().message.contains("outside of tasks"));
        executor.run(|context| context.team.run(100, &|_, _| {})).unwrap();
    }
    let call = executor.defer(Box::new(|_| Ok(()))).unwrap();
    call.wait(-1.0).unwrap();
    let (told, news) = mpsc::channel();
    let (blocked, open) = blocker(&executor);
    blocked.on_done(Box::new(|_| panic!("in a callback")));
    blocked.on_done(Box::new(move |_| told.send(()).unwrap()));
    open.send(()).unwrap();
    news.recv().unwrap();
    executor.defer(Box::new(|_| Ok(()))).unwrap().wait(-1.0).unwrap();
}

#[test]
fn a_call_from_inside_a_call_is_refused() {
    let executor = executor(2, 0);
    let inner = executor.run(|_| Ok(executor.run(|_| Ok(())))).unwrap();
    assert_eq!(inner.unwrap_err().status, Status::InvalidArgument);
    let waited = executor.run(|_| Ok(executor.defer(Box::new(|_| Ok(())))?.wait(-1.0))).unwrap();
    assert_eq!(waited.unwrap_err().status, Status::InvalidArgument);
    let nested = executor.run(|context| {
        let results = Mutex::new(Vec::new());
        context.team.run(2, &|_, _| results.lock().unwrap().push(context.team.run(2, &|_, _| {})))?;
        Ok(results.into_inner().unwrap())
    });
    assert!(
        nested
            .unwrap()
            .iter()
            .all(|result| result.as_ref().is_err_and(|error| error.status == Status::Internal))
    );
}

#[test]
fn a_part_of_a_task_has_its_own_scratch_and_no_team() {
    let executor = executor(3, 0);
    let work = |context: &Context| {
        context.team.run(30, &|thread, _| {
            let part = context.part(thread);
            let mut loan = part.scratch[part.thread].take::<f32>(100).unwrap();
            assert_eq!(part.team.threads(), 1);
            part.team.run(5, &|thread, task| assert!(thread == 0 && task < 5)).unwrap();
            loan.fill(thread as f32);
            assert!(loan.iter().all(|value| *value == thread as f32));
        })
    };
    executor.run(work).unwrap();
    let described = executor.describe().unwrap();
    assert!(described.scratch_bytes >= 400 && described.scratch_high_water >= 400);
    executor.trim().unwrap();
    let trimmed = executor.describe().unwrap();
    assert_eq!((trimmed.scratch_bytes, trimmed.scratch_high_water), (0, described.scratch_high_water));
}

#[test]
fn freeing_runs_what_is_in_line() {
    let executor = executor(2, 0);
    let (_call, open) = blocker(&executor);
    let ran = Arc::new(AtomicUsize::new(0));
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let ran = ran.clone();
            let call = executor.defer(Box::new(move |context| {
                context.team.run(2, &|_, _| {
                    ran.fetch_add(1, Ordering::Relaxed);
                })
            }));
            call.unwrap()
        })
        .collect();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        open.send(()).unwrap();
    });
    drop(executor);
    assert_eq!(ran.load(Ordering::Relaxed), 20);
    assert!(calls.iter().all(|call| call.poll() == Some(Ok(()))));
    assert!(calls.iter().all(|call| call.cancel().is_ok() && call.wait(0.0).is_ok()));
    opener.join().unwrap();
}

#[test]
fn handles_may_be_dropped_before_their_calls_end() {
    let executor = executor(1, 0);
    let (call, open) = blocker(&executor);
    drop(call);
    let (told, news) = mpsc::channel();
    drop(
        executor
            .defer(Box::new(move |_| {
                told.send(()).unwrap();
                Ok(())
            }))
            .unwrap(),
    );
    open.send(()).unwrap();
    news.recv().unwrap();
}

#[test]
fn an_abandoned_call_touches_nothing_any_more() {
    let executor = executor(2, 0);
    let buffer = Arc::new(Mutex::new(vec![0u8; 1000]));
    let (begun, beginning) = mpsc::channel();
    let owned = buffer.clone();
    let call = executor.defer(Box::new(move |context| {
        begun.send(()).unwrap();
        loop {
            owned.lock().unwrap().fill(1);
            context.cancel.check()?;
        }
    }));
    beginning.recv().unwrap();
    call.unwrap().abandon();
    assert_eq!(Arc::strong_count(&buffer), 1);
}

#[test]
fn the_last_holder_may_be_dropped_in_a_callback_and_in_a_call() {
    for inside in [false, true] {
        let executor = executor(3, 0);
        let (call, open) = blocker(&executor);
        let ran = Arc::new(AtomicBool::new(false));
        let (told, news) = mpsc::channel();
        let (flag, last) = (ran.clone(), executor.clone());
        let second = executor
            .defer(Box::new(move |context| {
                flag.store(true, Ordering::SeqCst);
                if inside {
                    drop(last);
                } else {
                    std::mem::forget(last);
                }
                context.team.run(10, &|_, _| {})
            }))
            .unwrap();
        if !inside {
            // The forgotten holder is taken back in a callback, so that it is dropped there.
            let last = Arc::as_ptr(&executor).expose_provenance();
            second.on_done(Box::new(move |_| {
                // SAFETY: the call has forgotten one holder, which this is.
                drop(unsafe { Arc::from_raw(std::ptr::with_exposed_provenance::<Executor>(last)) });
            }));
        }
        second.on_done(Box::new(move |_| told.send(()).unwrap()));
        drop(executor);
        open.send(()).unwrap();
        news.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(ran.load(Ordering::SeqCst));
        assert_eq!(call.wait(-1.0), Ok(()));
        assert_eq!(second.wait(-1.0), Ok(()));
    }
}

#[test]
fn drains_set_the_mood_until_the_next() {
    let executor = executor(2, 0);
    assert_eq!(executor.describe().unwrap().mood, Mood::Parked);
    let call = executor.defer(Box::new(|_| Err(Error::new(Status::Io, "a call's own")))).unwrap();
    executor.drain(Mood::Spinning).unwrap();
    assert_eq!(call.poll().unwrap().unwrap_err().status, Status::Io);
    executor.run(|context| context.team.run(4, &|_, _| {})).unwrap();
    assert_eq!(executor.describe().unwrap().mood, Mood::Spinning);
    // The driver is found looking for calls, about to sleep, and asleep.
    for round in 0..200 {
        executor.defer(Box::new(|_| Ok(()))).unwrap().wait(-1.0).unwrap();
        executor.run(|_| Ok(())).unwrap();
        std::thread::sleep(Duration::from_micros(round));
    }
    executor.drain(Mood::Parked).unwrap();
    assert_eq!(executor.describe().unwrap().mood, Mood::Parked);
}

#[test]
fn threads_use_one_executor_in_turns_and_different_ones_at_once() {
    let shared = executor(2, 0);
    let inside = AtomicUsize::new(0);
    let total = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let own = executor(2, 0);
                for _ in 0..200 {
                    let add = |context: &Context| {
                        context.team.run(8, &|_, _| {
                            total.fetch_add(1, Ordering::Relaxed);
                        })
                    };
                    own.run(add).unwrap();
                    let once = |context: &Context| {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        let result = add(context);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        result
                    };
                    shared.run(once).unwrap();
                }
            });
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 8 * 200 * 16);
}

#[test]
fn the_null_executor_runs_on_the_calling_thread() {
    let here = std::thread::current().id();
    let sum = on_calling_thread(Some(CpuClass::Serial), |context| {
        assert_eq!((context.team.threads(), context.kernels.class), (1, CpuClass::Serial));
        let mut loan = context.scratch[0].take::<u32>(4)?;
        loan.copy_from_slice(&[1, 2, 3, 4]);
        let sum = AtomicUsize::new(0);
        context.team.run(4, &|thread, task| {
            assert_eq!((thread, std::thread::current().id()), (0, here));
            sum.fetch_add(loan[task] as usize, Ordering::Relaxed);
        })?;
        on_calling_thread(None, |inner| inner.scratch[0].take::<u32>(4).map(|_| ()))?;
        Ok(sum.into_inner())
    });
    assert_eq!(sum, Ok(10));
    on_calling_thread(None, |context| context.scratch[0].take::<u32>(4).map(|_| ())).unwrap();
    assert!(describe_calling_thread().unwrap().scratch_bytes >= 16);
    trim_calling_thread();
    let described = describe_calling_thread().unwrap();
    assert_eq!((described.threads, described.scratch_bytes), (1, 0));
    assert!(described.scratch_high_water >= 16);
    let failed: Result<()> = on_calling_thread(None, |context| context.team.run(1, &|_, _| panic!("here")));
    assert_eq!(failed.unwrap_err().status, Status::Internal);
    assert_eq!(Call::completed(Ok(())).wait(0.0), Ok(()));
}

#[test]
fn what_cannot_be_had_is_refused_with_a_sentence() {
    let domain = Executor::for_ram(&[0, 777], None, 1, 0).unwrap_err();
    assert_eq!(domain.status, Status::InvalidArgument);
    assert!(domain.message.contains("777"), "{domain}");
    let foreign = if cfg!(target_arch = "x86_64") { CpuClass::AppleM4 } else { CpuClass::IntelHaswell };
    assert_eq!(Executor::for_ram(&[], Some(foreign), 1, 0).unwrap_err().status, Status::Unsupported);
    assert_eq!(Executor::for_ram(&[], None, 1 << 20, 0).unwrap_err().status, Status::InvalidArgument);
    let derived = executor(0, 0).describe().unwrap();
    let usable = std::thread::available_parallelism().unwrap().get();
    assert!(derived.threads >= 1 && derived.threads <= usable);
    assert_eq!(derived.deferred_limit, 64);
}

#[test]
fn calls_wake_parked_workers_again_and_again() {
    let executor = executor(4, 0);
    for round in 0..30 {
        // Long enough for the workers to be asleep, in about half of the rounds.
        std::thread::sleep(Duration::from_micros(round * 40));
        let all = Barrier::new(4);
        let start = Instant::now();
        executor
            .run(|context| {
                context.team.run(4, &|_, _| {
                    all.wait();
                })
            })
            .unwrap();
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
