//! Waiting with the interpreter released: in slices, so that signals are seen between them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors;

/// How long a wait goes on before it looks for signals, such as Ctrl-C.
pub(crate) const SLICE: Duration = Duration::from_millis(20);

/// A lock whose holders never leave it in a broken state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says once that something is done.
#[derive(Default)]
pub(crate) struct Signal {
    done: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub(crate) fn set(&self) {
        *lock(&self.done) = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_set(&self) -> bool {
        *lock(&self.done)
    }

    /// Waits at most `time` and says whether the signal is set.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let done = lock(&self.done);
        let (done, _) = self
            .changed
            .wait_timeout_while(done, time, |done| !*done)
            .unwrap_or_else(PoisonError::into_inner);
        *done
    }
}

/// The process that made an object. What other threads hold locked stays locked for ever in a forked child, so that
/// objects with locks look here first.
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_here(&self) -> bool {
        self.0 == std::process::id()
    }

    /// Fails in a child of the process that made `what`.
    pub(crate) fn check(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let message = format!("{what} belongs to process {}, from which this one was forked", self.0);
        Err(errors::exception(py, uform::Status::Forked, &message))
    }
}
