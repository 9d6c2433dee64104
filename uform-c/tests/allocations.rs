//! A call on a spinning executor allocates nothing. Alone in its process, as it counts the allocations of all threads.

mod counting;

use std::sync::atomic::Ordering;

use uform_c::executors::{Executor, Mood};

use counting::ALLOCATIONS;

#[test]
fn a_call_allocates_nothing_once_scratch_has_grown() {
    let executor = Executor::for_ram(&[], None, 2, 0).unwrap();
    executor.drain(Mood::Spinning).unwrap();
    let call = || {
        let work = |context: &uform_c::executors::Context| {
            let loan = context.scratch[0].take::<f32>(10_000)?;
            context.team.run(16, &|thread, task| {
                let mut own = context.scratch[thread].take::<f32>(100).unwrap();
                own.fill(loan[task]);
            })
        };
        executor.run(work).unwrap();
    };
    // Either thread has come to each of its loans by then.
    (0..2_000).for_each(|_| call());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..2_000).for_each(|_| call());
    let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // A thread that got no task before grows its scratch at its first, once.
    assert!(made <= 4, "{made} allocations in 2000 calls");
}
