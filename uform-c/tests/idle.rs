//! A parked executor uses no CPU. Alone in its process, as it reads the CPU time of all threads.
#![cfg(unix)]

use std::time::{Duration, Instant};

use uform_c::executors::{Executor, Mood};

/// The CPU time that this process has used.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Unix and the time is ours to write.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_parked_executor_is_idle_and_a_spinning_one_is_not() {
    let executor = Executor::for_ram(&[], None, 3, 0).unwrap();
    let work = |executor: &Executor| {
        executor.run(|context| context.team.run(3, &|_, _| {})).unwrap();
        executor.defer(Box::new(|context| context.team.run(3, &|_, _| {}))).unwrap().wait(-1.0).unwrap();
    };
    let used = |time: Duration| {
        // What the last call left to do is over long before.
        std::thread::sleep(Duration::from_millis(200));
        let before = cpu_time();
        std::thread::sleep(time);
        cpu_time() - before
    };
    work(&executor);
    let parked = used(Duration::from_secs(2));
    assert!(parked < Duration::from_millis(5), "{parked:?} of CPU in two seconds");
    executor.drain(Mood::Spinning).unwrap();
    work(&executor);
    // A busy machine gives its threads little at a time, so that it may take longer, but never as long as this.
    let (start, mut spinning) = (Instant::now(), Duration::ZERO);
    while spinning <= Duration::from_millis(50) && start.elapsed() < Duration::from_secs(20) {
        spinning += used(Duration::from_millis(500));
    }
    assert!(spinning > Duration::from_millis(50), "{spinning:?} of CPU in {:?}", start.elapsed());
    executor.drain(Mood::Parked).unwrap();
    let parked = used(Duration::from_secs(2));
    assert!(parked < Duration::from_millis(5), "{parked:?} of CPU in two seconds");
}
