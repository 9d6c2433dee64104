//! The interpreter as threads see it that it did not start: they may enter it until it begins to end. One that waits to
//! enter while it ends would sleep for ever, and whoever joins that thread with it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

static ENDING: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// How long the end of the interpreter waits for callbacks that run.
const PATIENCE: Duration = Duration::from_secs(5);

struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `body` with the interpreter held, or answers `None` once it is ending.
pub(crate) fn enter<R>(body: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    // Counted before the flag is read, so that the end either sees this thread or is seen by it.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let _inside = Inside;
    if ENDING.load(Ordering::SeqCst) {
        return None;
    }
    Python::try_attach(body)
}

/// Called by the interpreter's own exit handlers: from now on other threads stay outside.
#[pyfunction]
pub(crate) fn interpreter_ends(py: Python<'_>) {
    ENDING.store(true, Ordering::SeqCst);
    py.detach(|| {
        let start = Instant::now();
        while INSIDE.load(Ordering::SeqCst) != 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
