//! Progress, Ctrl-C and the callback that a caller gave, while the engine computes.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::errors;
use crate::executor;
use crate::wait::{SLICE, lock};

/// Asks a caller's callback whether to go on: an answer of `False` is a wish to stop.
fn ask(py: Python<'_>, callback: &Bound<'_, PyAny>, done: u64, total: u64) -> PyResult<()> {
    let answer = callback.call1((done, total))?;
    if answer.is(pyo3::types::PyBool::new(py, false)) {
        let message = "the call was cancelled by its progress callback";
        return Err(errors::exception(py, uform::Status::Cancelled, message));
    }
    Ok(())
}

thread_local! {
    /// The number of the executor whose deferred call is told about on this thread. No other call of it begins before
    /// that one has ended.
    static INSIDE: Cell<u64> = const { Cell::new(executor::NULL) };
}

/// Whether this thread is in a progress callback of a deferred call of that executor.
pub(crate) fn is_inside(executor: u64) -> bool {
    executor != executor::NULL && INSIDE.get() == executor
}

/// Fails where a wait for that executor would never end.
pub(crate) fn refuse_inside(py: Python<'_>, executor: u64) -> PyResult<()> {
    if is_inside(executor) {
        let message = "the progress callback of a deferred call cannot wait for the executor that runs it";
        return Err(errors::invalid(py, message));
    }
    Ok(())
}

/// Calls back from the thread that computes. What goes wrong there ends the call and is kept for its caller.
pub(crate) struct Hook {
    executor: u64,
    /// `None` if there is none, and once the call has ended.
    callback: Mutex<Option<Py<PyAny>>>,
    /// When the interpreter was last entered, which may mean to wait for other threads and is not done for every report.
    told: Mutex<Option<Instant>>,
    failure: Mutex<Option<Py<PyBaseException>>>,
}

impl Hook {
    /// For a call on the executor of that number.
    pub(crate) fn new(callback: Option<&Bound<'_, PyAny>>, executor: u64) -> Arc<Self> {
        Arc::new(Self {
            executor,
            callback: Mutex::new(callback.map(|callback| callback.clone().unbind())),
            told: Mutex::default(),
            failure: Mutex::default(),
        })
    }

    pub(crate) fn to_engine(self: &Arc<Self>) -> uform::Progress {
        let hook = self.clone();
        Arc::new(move |done, total| {
            let now = Instant::now();
            let is_soon = lock(&hook.told).is_some_and(|told| now.duration_since(told) < SLICE);
            if is_soon && done < total {
                return ControlFlow::Continue(());
            }
            *lock(&hook.told) = Some(now);
            let before = INSIDE.replace(hook.executor);
            let visit = |py: Python<'_>| {
                let callback = lock(&hook.callback).as_ref().map(|callback| callback.clone_ref(py));
                let go_on = || {
                    py.check_signals()?;
                    callback.as_ref().map_or(Ok(()), |callback| ask(py, callback.bind(py), done, total))
                };
                // An exception takes its final form here, so that no code of Python runs under the lock below.
                go_on().map_err(|failure| failure.into_value(py))
            };
            // On the null executor this is the caller's own thread, which is also at the end of the interpreter free to enter.
            let result = match hook.executor {
                executor::NULL => Python::try_attach(visit),
                _ => crate::interpreter::enter(visit),
            };
            INSIDE.set(before);
            match result {
                Some(Ok(())) => ControlFlow::Continue(()),
                Some(Err(failure)) => {
                    lock(&hook.failure).get_or_insert(failure);
                    ControlFlow::Break(())
                }
                // The interpreter is at its end.
                None => ControlFlow::Break(()),
            }
        })
    }

    /// What went wrong in the callback, if something did.
    pub(crate) fn failure(&self, py: Python<'_>) -> Option<PyErr> {
        let failure = lock(&self.failure).as_ref().map(|failure| failure.clone_ref(py));
        failure.map(|failure| PyErr::from_value(failure.into_bound(py).into_any()))
    }

    /// Gives the callback away, when the call has ended.
    pub(crate) fn take_callback(&self) -> Option<Py<PyAny>> {
        lock(&self.callback).take()
    }

    /// Shows the garbage collector what only the caller of an ended call keeps alive.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.failure.try_lock() {
            Ok(failure) => visit.call(&*failure),
            Err(_) => Ok(()),
        }
    }

    pub(crate) fn take_failure(&self) -> Option<Py<PyBaseException>> {
        lock(&self.failure).take()
    }
}

/// Carries the progress to a caller that waits on another thread, and its wish to stop back.
#[derive(Default)]
pub(crate) struct Relay {
    done: AtomicU64,
    total: AtomicU64,
    stopped: AtomicBool,
}

impl Relay {
    pub(crate) fn to_engine(self: &Arc<Self>) -> uform::Progress {
        let relay = self.clone();
        Arc::new(move |done, total| {
            relay.total.store(total, Ordering::Relaxed);
            relay.done.store(done, Ordering::Release);
            if relay.stopped.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    }

    /// Ends the call at its next report.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Waits with the interpreter released until `wait` says that the call has ended, and meanwhile looks for signals and
    /// tells `callback`, both on this thread. When that fails, `stop` has to end the call, and the failure is returned
    /// when it has.
    pub(crate) fn attend(
        &self,
        py: Python<'_>,
        callback: Option<&Bound<'_, PyAny>>,
        wait: impl Fn(Duration) -> bool + Sync,
        stop: impl Fn() + Sync,
    ) -> PyResult<()> {
        let mut told = None;
        loop {
            let ended = py.detach(|| wait(SLICE));
            let result = py.check_signals().and_then(|()| self.tell(py, callback, &mut told));
            if let Err(failure) = result {
                py.detach(|| {
                    stop();
                    while !wait(SLICE) {}
                });
                return Err(failure);
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Tells the end of what succeeded, which may end on a thread that tells nothing.
    pub(crate) fn complete(&self, py: Python<'_>, callback: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let total = self.total.load(Ordering::Relaxed);
        match callback {
            Some(callback) if self.done.load(Ordering::Acquire) < total => ask(py, callback, total, total),
            _ => Ok(()),
        }
    }

    fn tell(
        &self,
        py: Python<'_>,
        callback: Option<&Bound<'_, PyAny>>,
        told: &mut Option<(u64, u64)>,
    ) -> PyResult<()> {
        let now = (self.done.load(Ordering::Acquire), self.total.load(Ordering::Relaxed));
        match callback {
            Some(callback) if now.1 > 0 && *told != Some(now) => {
                *told = Some(now);
                ask(py, callback, now.0, now.1)
            }
            _ => Ok(()),
        }
    }
}
