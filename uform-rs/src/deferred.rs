//! Calls that were submitted and end later.

use std::ffi::c_void;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::{Error, Record, Result, Status, call};
use crate::sys;

/// A deferred call. It owns what the call reads and writes, and gives the output back as its result, by waiting or by
/// `.await`. Any asynchronous runtime will do: the future is woken by the executor's own thread.
///
/// Dropping an unfinished one cancels it and returns when no kernel touches its memory any more. Dropped inside its own
/// progress callback, where the call cannot end, it leaks that memory instead.
///
/// Thread safety: `Send`, one thread at a time.
#[must_use = "dropping a deferred call cancels it"]
pub struct Deferred<T> {
    handle: *mut sys::uform_deferred_t,
    /// Makes the result of a call that succeeded, out of what the call owned; `None` once the result was taken. It
    /// must be dropped after the handle was ended.
    finish: Option<Box<dyn FnOnce() -> T + Send>>,
    /// Shared with the engine's callback, if one was registered.
    waker: Option<Arc<WakerSlot>>,
}

type WakerSlot = Mutex<Option<Waker>>;

// SAFETY: the C interface lets any thread use the handle as long as no two do at the same time; the rest is `Send`.
unsafe impl<T> Send for Deferred<T> {}

impl<T> Deferred<T> {
    /// # Safety
    /// `handle` is live and nobody else's; what its call touches is owned by `finish`.
    pub(crate) unsafe fn new(
        handle: *mut sys::uform_deferred_t,
        finish: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        Self { handle, finish: Some(Box::new(finish)), waker: None }
    }

    /// Waits for as long as it takes, and gives the result.
    pub fn wait(mut self) -> Result<T> {
        // SAFETY: the handle is live.
        call(|error| unsafe { sys::uform_deferred_wait(self.handle, f64::INFINITY, error) })?;
        self.take()
    }

    /// Waits up to `timeout`. `None` means that the call has not ended; a result is given once.
    pub fn wait_for(&mut self, timeout: Duration) -> Result<Option<T>> {
        // SAFETY: the handle is live.
        let waited =
            call(|error| unsafe { sys::uform_deferred_wait(self.handle, timeout.as_secs_f64(), error) });
        match waited {
            Ok(()) => self.take().map(Some),
            // It may have ended meanwhile, or that may be how it ended.
            Err(error) if error.status() == Status::TimedOut => match self.outcome() {
                Some(outcome) => outcome.and_then(|()| self.take()).map(Some),
                None => Ok(None),
            },
            Err(error) => Err(error),
        }
    }

    /// Asks the call to stop: before it starts, or else at the next block of tokens. It then ends as
    /// [`Status::Cancelled`]; one that has ended is not changed. Does not wait.
    pub fn cancel(&self) {
        // SAFETY: the handle is live; a NULL record is legal, and with a live handle the function cannot fail.
        unsafe { sys::uform_deferred_cancel(self.handle, std::ptr::null_mut()) };
    }

    /// Whether the call has ended, well or not.
    pub fn is_done(&self) -> bool {
        let mut status = sys::UFORM_STATUS_PENDING;
        // SAFETY: as for `cancel`.
        unsafe { sys::uform_deferred_poll(self.handle, &mut status, std::ptr::null_mut()) };
        status != sys::UFORM_STATUS_PENDING
    }

    /// Has `callback` told once how the call ended: on the executor's own thread, or on this one if it has ended. It
    /// may use anything of the library except `drain` and the end of that executor. A panic in it is dropped.
    pub fn on_done(&self, callback: impl FnOnce(Status) + Send + 'static) -> Result<()> {
        let callback: DoneCallback = Box::new(callback);
        let context = Box::into_raw(Box::new(callback));
        // SAFETY: the handle is live, and `run_callback` takes the box that the context addresses.
        let registered = call(|error| unsafe {
            sys::uform_deferred_on_done(self.handle, Some(run_callback), context.cast(), error)
        });
        if registered.is_err() {
            // SAFETY: a callback that was not registered is never run, so that the box is still ours.
            drop(unsafe { Box::from_raw(context) });
        }
        registered
    }

    /// How the call ended, or `None` while it has not.
    fn outcome(&self) -> Option<Result<()>> {
        let mut status = sys::UFORM_STATUS_PENDING;
        let mut record = Record::new();
        // SAFETY: the handle is live; status and record are live for the call.
        let asked = unsafe { sys::uform_deferred_poll(self.handle, &mut status, record.pointer()) };
        match (asked, status) {
            (sys::UFORM_STATUS_OK, sys::UFORM_STATUS_PENDING) => None,
            (sys::UFORM_STATUS_OK, sys::UFORM_STATUS_OK) => Some(Ok(())),
            (sys::UFORM_STATUS_OK, failed) | (failed, _) => Some(Err(record.error(failed))),
        }
    }

    /// The result of a call that succeeded, unless it was taken before.
    fn take(&mut self) -> Result<T> {
        match self.finish.take() {
            Some(finish) => Ok(finish()),
            None => Err(Error::invalid("the result of this deferred call was taken before")),
        }
    }
}

impl<T> Future for Deferred<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The waker is in place before the outcome is asked for, so that an end in between still wakes.
        let fresh = Some(context.waker().clone());
        match &self.waker {
            Some(slot) => *lock(slot) = fresh,
            None => {
                let slot = Arc::new(Mutex::new(fresh));
                self.waker = Some(Arc::clone(&slot));
                let wake = move |_| {
                    let waker = lock(&slot).take();
                    waker.into_iter().for_each(Waker::wake);
                };
                if let Err(error) = self.on_done(wake) {
                    return Poll::Ready(Err(error));
                }
            }
        }
        match self.outcome() {
            None => Poll::Pending,
            Some(Ok(())) => Poll::Ready(self.take()),
            Some(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}

fn lock(slot: &WakerSlot) -> std::sync::MutexGuard<'_, Option<Waker>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

type DoneCallback = Box<dyn FnOnce(Status) + Send>;

unsafe extern "C" fn run_callback(
    context: *mut c_void,
    status: sys::uform_status_t,
    _error: *const sys::uform_error_t,
) {
    // SAFETY: the context is the box that `on_done` registered, and each registration is told once.
    let callback = unsafe { Box::from_raw(context.cast::<DoneCallback>()) };
    // An unwinding callback would abort the process at this border.
    let _ = catch_unwind(AssertUnwindSafe(|| callback(Status::from_code(status))));
}

impl<T> Drop for Deferred<T> {
    fn drop(&mut self) {
        self.cancel();
        // SAFETY: the handle is live; a NULL record is legal, and how the call ended interests nobody.
        unsafe { sys::uform_deferred_wait(self.handle, f64::INFINITY, std::ptr::null_mut()) };
        if !self.is_done() {
            // Only the call itself cannot wait for its end, and goes on to use what `finish` owns.
            std::mem::forget(self.finish.take());
        }
        // Before the fields: from here on, the engine touches nothing that they own.
        // SAFETY: the handle is live, and nothing uses it after this.
        unsafe { sys::uform_deferred_free(self.handle) };
    }
}

impl<T> fmt::Debug for Deferred<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Deferred").field("outcome", &self.outcome()).finish()
    }
}
