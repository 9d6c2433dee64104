//! Calls that the executor's own thread computes: those that Python keeps as `Deferred`, and long ones that a caller
//! waits for.

use std::cell::Cell;
use std::mem::{self, ManuallyDrop};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use uform::{RawMatrix, Report, Status};

use crate::errors;
use crate::executor::{self, Lent};
use crate::interpreter;
use crate::output::Output;
use crate::progress::{self, Hook};
use crate::wait::{Origin, SLICE, Signal, lock};

thread_local! {
    /// The number of the executor whose call has ended and has its callbacks run on this thread. The calls that wait behind
    /// it have this thread only, so that a wait has to let the engine compute them here.
    static IN_CALLBACK: Cell<u64> = const { Cell::new(executor::NULL) };
}

/// Whether this thread is in a completion callback of a call of that executor.
pub(crate) fn is_in_callback(executor: u64) -> bool {
    executor != executor::NULL && IN_CALLBACK.get() == executor
}

enum State {
    Running(uform::Deferred<Vec<Report>>),
    Ended(uform::Result<Vec<Report>>),
}

/// What a call uses until it has ended, even where its handle goes before.
pub(crate) struct Kept {
    pub(crate) _output: Output,
    pub(crate) hook: Arc<Hook>,
}

/// What the end of a call is told to.
struct End {
    executor: u64,
    signal: Signal,
    kept: Mutex<Option<Kept>>,
    /// `None` once they were called.
    callbacks: Mutex<Option<Vec<Py<PyAny>>>>,
}

impl End {
    fn reach(&self) {
        self.signal.set();
        let callbacks = lock(&self.callbacks).take().unwrap_or_default();
        // What lets go of Python's objects needs the interpreter; at its end, they stay.
        let kept = lock(&self.kept).take().map(ManuallyDrop::new);
        if callbacks.is_empty() && kept.is_none() {
            return;
        }
        let before = IN_CALLBACK.replace(self.executor);
        let _ = interpreter::enter(move |py| {
            Self::release(kept.map(ManuallyDrop::into_inner));
            for callback in callbacks {
                if let Err(error) = callback.call0(py) {
                    error.write_unraisable(py, Some(callback.bind(py)));
                }
            }
        });
        IN_CALLBACK.set(before);
    }

    /// Lets go of what an ended call used, with the interpreter held and no lock.
    fn release(kept: Option<Kept>) {
        if let Some(kept) = kept {
            drop(kept.hook.take_callback());
        }
    }
}

/// A submitted call. Dropping one that has not ended cancels it and waits until it touches nothing any more.
pub(crate) struct Call {
    state: Mutex<State>,
    end: Arc<End>,
}

impl Call {
    /// Submits a call; nothing of Python is touched.
    ///
    /// # Safety
    /// The memory of `target` stays for as long as `kept`, or else until the result is dropped.
    pub(crate) unsafe fn submit(
        model: &uform::Model,
        executor: &Lent,
        texts: Vec<Vec<u8>>,
        options: uform::EmbedOptions,
        target: RawMatrix,
        kept: Option<Kept>,
    ) -> uform::Result<Self> {
        let reports = options.reports;
        // SAFETY: the caller's promise is that of this function.
        let deferred =
            unsafe { model.on(executor).deferred().embed_texts_raw(texts, options, target, reports) }?;
        let end = Arc::new(End {
            executor: executor.number(),
            signal: Signal::default(),
            kept: Mutex::new(kept),
            callbacks: Mutex::new(Some(Vec::new())),
        });
        let told = end.clone();
        deferred.on_done(move |_| told.reach())?;
        Ok(Self { state: Mutex::new(State::Running(deferred)), end })
    }

    pub(crate) fn cancel(&self) {
        if let State::Running(deferred) = &*lock(&self.state) {
            deferred.cancel();
        }
    }

    /// Never waits. The executor's thread sets the signal somewhat later than the call ends.
    fn is_ended(&self) -> bool {
        self.end.signal.is_set()
            || self.state.try_lock().is_ok_and(|state| match &*state {
                State::Running(deferred) => deferred.is_done(),
                State::Ended(_) => true,
            })
    }

    /// Waits at most `time` and says whether the call has ended. Not with the interpreter held.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        if self.is_ended() {
            return true;
        }
        if !is_in_callback(self.end.executor) {
            return self.end.signal.wait(time);
        }
        let mut state = lock(&self.state);
        if let State::Running(deferred) = &mut *state {
            match deferred.wait_for(time) {
                Ok(None) => return false,
                Ok(Some(reports)) => *state = State::Ended(Ok(reports)),
                Err(error) => *state = State::Ended(Err(error)),
            }
        }
        true
    }

    /// What became of the call, which has ended.
    pub(crate) fn result(&self) -> uform::Result<Vec<Report>> {
        let mut state = lock(&self.state);
        if let State::Running(deferred) = &mut *state {
            let result = deferred.wait_for(Duration::MAX).map(Option::unwrap_or_default);
            *state = State::Ended(result);
        }
        match &*state {
            State::Ended(result) => result.clone(),
            State::Running(_) => unreachable!("set above"),
        }
    }

    /// Cancels the call and waits for its end. Gives what it used: but for a call whose own progress callback this is, which
    /// goes on to use it and lets it go when it ends.
    fn abandon(self) -> Option<Kept> {
        let is_over = match &mut *lock(&self.state) {
            State::Ended(_) => true,
            State::Running(deferred) => {
                deferred.cancel();
                // How it ended interests nobody.
                let _ = deferred.wait_for(Duration::MAX);
                deferred.is_done()
            }
        };
        if is_over { lock(&self.end.kept).take() } else { None }
    }
}

/// What became of each row: status, truncated or not, tokens found, tokens kept.
pub(crate) type Rows = Vec<(i32, bool, u64, u64)>;

pub(crate) fn rows(reports: &[Report]) -> Rows {
    let row =
        |report: &Report| (report.status.code(), report.truncated, report.tokens_found, report.tokens_kept);
    reports.iter().map(row).collect()
}

/// A call that Python waits for, or not.
#[pyclass(frozen, module = "uform._uform")]
pub(crate) struct Deferred {
    /// `None` when the object goes.
    call: Option<Call>,
    /// What the caller gets; `None` once the garbage collector found that nobody can ask for it.
    output: Mutex<Option<Py<PyAny>>>,
    hook: Arc<Hook>,
    reports: bool,
    origin: Origin,
}

impl Deferred {
    pub(crate) fn new(call: Call, output: Py<PyAny>, hook: Arc<Hook>, reports: bool) -> Self {
        Self { call: Some(call), output: Mutex::new(Some(output)), hook, reports, origin: Origin::here() }
    }

    fn call(&self, py: Python<'_>) -> PyResult<&Call> {
        self.origin.check(py, "the deferred call")?;
        Ok(self.call.as_ref().expect("taken out in drop only"))
    }
}

#[pymethods]
impl Deferred {
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.call(py)?.is_ended())
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let call = self.call(py)?;
        py.detach(|| call.cancel());
        Ok(())
    }

    /// Waits for the end of the call, for `timeout` seconds at most, and gives its output and reports. A timeout means what it
    /// means in C; without one it waits for as long as it takes.
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<(Py<PyAny>, Option<Rows>)> {
        let call = self.call(py)?;
        if timeout.is_some_and(f64::is_nan) {
            return Err(errors::invalid(py, "timeout: expected seconds, found NaN"));
        }
        if !call.is_ended() {
            progress::refuse_inside(py, call.end.executor)?;
        }
        // A time that is negative or too far away for the clock never comes.
        let limit = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let deadline = limit.and_then(|time| Instant::now().checked_add(time));
        loop {
            let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
            let ended = py.detach(|| call.wait(left.min(SLICE)));
            if ended {
                break;
            }
            py.check_signals()?;
            if left.is_zero() {
                let message = format!("the call is not done after {} seconds", timeout.unwrap_or_default());
                return Err(errors::exception(py, Status::TimedOut, &message));
            }
        }
        let result = py.detach(|| call.result());
        // Whoever has the result may also use the output's memory for something else.
        let kept = lock(&call.end.kept).take();
        End::release(kept);
        match result {
            Ok(reports) => {
                let object = lock(&self.output).as_ref().map(|object| object.clone_ref(py));
                let object = object.ok_or_else(|| errors::invalid(py, "the deferred call was collected"))?;
                Ok((object, self.reports.then(|| rows(&reports))))
            }
            Err(error) => Err(self
                .hook
                .failure(py)
                .unwrap_or_else(|| errors::exception(py, error.status(), error.message()))),
        }
    }

    /// Calls `callback` without arguments when the call has ended: on the executor's thread, or here if it has already.
    fn on_done(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let call = self.call(py)?;
        let at_once = match &mut *lock(&call.end.callbacks) {
            Some(callbacks) => {
                callbacks.push(callback);
                return Ok(());
            }
            None => callback,
        };
        at_once.call0(py).map(drop)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The engine's thread may hold the locks, and what a running call refers to is in use.
        if self.origin.is_here() && self.call.as_ref().is_some_and(Call::is_ended) {
            if let Ok(output) = self.output.try_lock() {
                visit.call(&*output)?;
            }
            self.hook.traverse(&visit)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        if self.origin.is_here() {
            let output = lock(&self.output).take();
            drop((output, self.hook.take_failure()));
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if self.origin.is_here() {
            let call = self.call.take();
            // A call that runs ends first, and what ends with it may need the interpreter.
            Python::attach(|py| End::release(py.detach(move || call.and_then(Call::abandon))));
        } else {
            // In a forked child nothing runs, and locks may be held for ever.
            mem::forget(self.call.take());
        }
    }
}
