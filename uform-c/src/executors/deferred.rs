//! Deferred calls: what was asked, whether it is done, and who wants to know.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use crate::base::{Result, err, log};
use crate::system::fork;

use super::context::panicked;
use super::core::Core;
use super::{Cancel, Context};

/// What a deferred call computes; it owns all that it needs.
pub(super) type Work = Box<dyn FnOnce(&Context) -> Result<()> + Send>;
type Callback = Box<dyn FnOnce(&Result<()>) + Send>;

/// A call that was submitted and is computed later. Any thread may use it, and it may outlive its executor. Dropping it
/// leaves the call to run; [`abandon`](Call::abandon) is for those whose buffers are about to go.
pub struct Call {
    state: Mutex<State>,
    done: Condvar,
    cancel: Cancel,
    core: Weak<Core>,
    generation: u64,
}

#[derive(Default)]
struct State {
    work: Option<Work>,
    result: Option<Result<()>>,
    callbacks: Vec<Callback>,
    waiters: usize,
}

impl Call {
    pub(super) fn new(core: Weak<Core>, work: Work) -> Self {
        let state = State { work: Some(work), ..State::default() };
        Self::of(core, state)
    }

    /// A call that was computed where it was submitted, with what came of it.
    pub fn completed(result: Result<()>) -> Self {
        Self::of(Weak::new(), State { result: Some(result), ..State::default() })
    }

    fn of(core: Weak<Core>, state: State) -> Self {
        Self {
            state: Mutex::new(state),
            done: Condvar::new(),
            cancel: Cancel::default(),
            core,
            generation: fork::generation(),
        }
    }

    /// What came of it, or `None` while it waits or runs; `Forked` in a child of the process that submitted it.
    pub fn poll(&self) -> Option<Result<()>> {
        match self.check() {
            Ok(()) => self.state().result.clone(),
            Err(forked) => Some(Err(forked)),
        }
    }

    /// Waits at most `seconds`, or as long as it takes when that is negative, infinite or not a number, and says what came of
    /// the call. `TimedOut` when it is not done by then: the call goes on.
    pub fn wait(&self, seconds: f64) -> Result<()> {
        self.check()?;
        // A time that is too far away for the clock never comes.
        let deadline = Duration::try_from_secs_f64(seconds).ok().and_then(|time| self.deadline(time));
        if !self.is_done()
            && let Some(core) = self.core.upgrade()
        {
            core.help_until_done(self, deadline)?;
        }
        let mut state = self.state();
        loop {
            if let Some(result) = &state.result {
                return result.clone();
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return err!(TimedOut, "the call is not done after {seconds} seconds");
            }
            state.waiters += 1;
            state = match left {
                Some(left) => {
                    self.done.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
                None => self.done.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner()),
            };
            state.waiters -= 1;
        }
    }

    /// Asks the call to end: before it starts if it still waits, else at its next block of tokens. Its result is then
    /// `Cancelled`, unless it ended before it noticed.
    pub fn cancel(&self) -> Result<()> {
        self.check()?;
        self.cancel.request();
        if let Some(core) = self.core.upgrade() {
            core.withdraw(self);
        }
        Ok(())
    }

    /// Cancels the call and waits until it touches none of its buffers any more. In a forked child, where nothing runs that
    /// could touch them, it does nothing. Inside the call itself, on the thread that leads it, it only cancels, with a
    /// warning to the log: the buffers are still in use when it returns.
    pub fn abandon(&self) {
        if self.cancel().is_ok() && self.wait(f64::INFINITY).is_err() && !self.is_done() {
            log::warn("a deferred call was freed from inside, and touches its buffers until it has ended");
        }
    }

    /// Calls `callback` with the result when the call is done: on the executor's driver thread, with no lock held, or here
    /// and now if it is done already. It may do anything; a call that it submits runs after it, unless the executor is
    /// being freed, which answers `Cancelled`.
    pub fn on_done(&self, callback: Callback) {
        if let Err(forked) = self.check() {
            return callback(&Err(forked));
        }
        let mut state = self.state();
        match state.result.clone() {
            None => state.callbacks.push(callback),
            Some(result) => {
                drop(state);
                callback(&result);
            }
        }
    }

    fn check(&self) -> Result<()> {
        match self.generation == fork::generation() {
            true => Ok(()),
            false => {
                err!(Forked, "the call was submitted before this process was forked, and does not run here")
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn deadline(&self, time: Duration) -> Option<Instant> {
        // Where there is no clock, as in WebAssembly, calls are done when they are submitted.
        if self.is_done() { None } else { Instant::now().checked_add(time) }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state().result.is_some()
    }

    pub(super) fn has_callbacks(&self) -> bool {
        !self.state().callbacks.is_empty()
    }

    pub(super) fn cancellation(&self) -> &Cancel {
        &self.cancel
    }

    /// Hands out what is to be computed, once.
    pub(super) fn start(&self) -> Option<Work> {
        self.state().work.take()
    }

    /// Sets what came of it, and wakes those who wait.
    pub(super) fn finish(&self, result: Result<()>) {
        let mut state = self.state();
        state.result = Some(result);
        if state.waiters > 0 {
            self.done.notify_all();
        }
    }

    /// Calls the callbacks; the caller holds no lock.
    pub(super) fn call_back(&self) {
        let (callbacks, result) = {
            let mut state = self.state();
            (std::mem::take(&mut state.callbacks), state.result.clone())
        };
        let Some(result) = result else { return };
        for callback in callbacks {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| callback(&result))) {
                log::warn(&format!("a completion callback failed: {}", panicked(&*payload)));
            }
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Call").field("result", &self.poll()).finish_non_exhaustive()
    }
}
