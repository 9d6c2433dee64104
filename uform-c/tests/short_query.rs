//! From token ids to the vector a short query allocates nothing and makes no system call, on an executor whose threads are
//! awake. Alone in its process, as it counts the allocations of all threads.
#![cfg(target_os = "linux")]

mod counting;
mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uform_c::executors::{Executor, Mood};
use uform_c::models::{EmbedOptions, Model, Output, Tokenized};

use counting::ALLOCATIONS;
use support::{PRECISIONS, load_in, minilm_folder};

const QUERY: &str = "how do I store vectors close to the program that needs them";

/// A query that is tokenized, and everything to embed it with.
struct Query {
    executor: Arc<Executor>,
    model: Arc<Model>,
    tokens: Tokenized,
    vector: [f32; 384],
}

impl Query {
    /// On an executor of that many threads which spin and have grown their scratch.
    fn new(model: &Arc<Model>, threads: usize) -> Self {
        let executor = Executor::for_ram(&[], None, threads, 0).unwrap();
        executor.drain(Mood::Spinning).unwrap();
        let options = EmbedOptions::default();
        let tokens =
            executor.run(|context| model.tokenize_texts(context, &[QUERY.as_bytes()], &options)).unwrap();
        let mut query = Self { executor, model: model.clone(), tokens, vector: [0.0; 384] };
        (0..5).for_each(|_| query.embed());
        query
    }

    fn embed(&mut self) {
        let output = Output::dense(&mut self.vector, 1, 384);
        let options = EmbedOptions::default();
        let call = |context: &uform_c::executors::Context| {
            self.model.embed_tokenized(context, &mut self.tokens, &options, output, None)
        };
        self.executor.run(call).unwrap();
    }
}

/// Every system call but writing and ending is answered by a signal that says which one it was, and ends the process.
/// `allowed` is let through, too. Only for the thread that calls.
fn forbid_system_calls(allowed: i64) {
    extern "C" fn caught(_: i32, information: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system hands a handler with SA_SIGINFO what happened; of a trapped call, the address is followed by the
        // number in 32 bits (`_sigsys` in the kernel's siginfo.h).
        let number = unsafe { *information.cast::<u8>().add(24).cast::<i32>() };
        let text = format!("system call {number}\n");
        // SAFETY: the text lives, and both calls may be made in a handler.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            libc::_exit(3);
        }
    }
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let allow_if = |number: i64| {
        [
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 0, 1),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        ]
    };
    // The number of the call is the first member of `seccomp_data`.
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for number in [libc::SYS_write, libc::SYS_exit_group, allowed] {
        filter.extend(allow_if(number));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRAP, 0, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the structures are as the system wants them and live through the calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = caught as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()), 0);
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

const UNDER_FILTER: &str = "UFORM_TEST_UNDER_FILTER";
/// The case that makes a system call, to see that one is noticed.
const FORBIDDEN: &str = "forbidden";

/// The other process of the test below: 20 queries, in which the calling thread makes no system call. On two threads it may
/// wait for one that has lost its core, and then gives others a chance.
fn without_system_calls(case: &str) -> ! {
    if case == FORBIDDEN {
        forbid_system_calls(libc::SYS_exit_group);
        // SAFETY: takes nothing, and ends the process if the filter works.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
    let (precision, threads) = case.split_once(' ').unwrap();
    let precision = PRECISIONS.into_iter().find(|known| known.name() == precision).unwrap();
    let threads: usize = threads.parse().unwrap();
    let mut query = Query::new(&load_in(&minilm_folder(), precision), threads);
    forbid_system_calls(if threads == 1 { libc::SYS_exit_group } else { libc::SYS_sched_yield });
    (0..20).for_each(|_| query.embed());
    // SAFETY: ends the process at once, since what its threads still need is forbidden.
    unsafe { libc::_exit(0) }
}

/// One test: what another one allocates would be counted.
#[test]
fn a_query_allocates_nothing_and_makes_no_system_call() {
    match std::env::var(UNDER_FILTER) {
        Ok(case) => without_system_calls(&case),
        Err(_) => {
            allocates_nothing();
            makes_no_system_call();
        }
    }
}

fn makes_no_system_call() {
    let run = |case: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.arg("--nocapture").env(UNDER_FILTER, case);
        let output = child.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run(FORBIDDEN), (Some(3), format!("system call {}\n", libc::SYS_getppid)));
    for precision in PRECISIONS {
        for threads in [1, 2] {
            let case = format!("{} {threads}", precision.name());
            assert_eq!(run(&case), (Some(0), String::new()), "{case} threads");
        }
    }
}

fn allocates_nothing() {
    for precision in PRECISIONS {
        let model = load_in(&minilm_folder(), precision);
        for threads in [1, 2] {
            let mut query = Query::new(&model, threads);
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            (0..20).for_each(|_| query.embed());
            let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
            assert_eq!(made, 0, "{} on {threads} threads", precision.name());
        }
    }
}
