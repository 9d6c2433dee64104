//! The executor that owns nothing: a call on it runs on the thread that makes it, with scratch that this thread keeps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::slice;

use crate::base::Result;
use crate::kernels;
use crate::system::cpu::{self, CpuClass};
use crate::system::float;

use super::context::panicked;
use super::{Alone, Cancel, Context, DEFAULT_DEFERRED_LIMIT, Description, Mood, Scratch};

thread_local! {
    static SCRATCH: Rc<Scratch> = Rc::default();
}

/// Runs `work` on this thread alone, with the kernels of `class` (`None`: what `UFORM_CPU_CLASS` says, else the widest that runs
/// here). A panic in it is an `Internal` error. Any thread.
pub fn on_calling_thread<R>(class: Option<CpuClass>, work: impl FnOnce(&Context) -> Result<R>) -> Result<R> {
    let kernels = kernels::for_class(cpu::resolve(class)?)?;
    let compute = |scratch: &Scratch| {
        let cancel = Cancel::default();
        let context =
            Context { kernels, team: &Alone, scratch: slice::from_ref(scratch), thread: 0, cancel: &cancel };
        let _state = float::DefaultState::enter();
        // What a panic leaves half-written, the error declares unspecified.
        catch_unwind(AssertUnwindSafe(|| work(&context))).unwrap_or_else(|payload| Err(panicked(&*payload)))
    };
    // A thread that is ending has no scratch any more, but its destructors may still call.
    match SCRATCH.try_with(Rc::clone) {
        Ok(kept) => compute(&kept),
        Err(_) => compute(&Scratch::default()),
    }
}

/// What the null executor is and has on this thread. Errors as [`on_calling_thread`] without a class.
pub fn describe_calling_thread() -> Result<Description> {
    // A thread that is ending has no scratch any more.
    let scratch = SCRATCH.try_with(|scratch| (scratch.bytes(), scratch.high_water()));
    let (scratch_bytes, scratch_high_water) = scratch.unwrap_or_default();
    Ok(Description {
        class: cpu::resolve(None)?,
        threads: 1,
        memory_domains: Vec::new(),
        mood: Mood::Parked,
        deferred_limit: DEFAULT_DEFERRED_LIMIT,
        deferred_waiting: 0,
        scratch_bytes,
        scratch_high_water,
    })
}

/// Gives the scratch that this thread keeps back to the system.
pub fn trim_calling_thread() {
    // A thread that is ending has given it back already.
    let _ = SCRATCH.try_with(|scratch| scratch.trim());
}
