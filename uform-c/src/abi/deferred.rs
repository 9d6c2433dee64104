//! Calls that were submitted and end later.

use std::ffi::c_void;
use std::sync::Arc;

use crate::base::{Result, Status, err};
use crate::executors::Call;

use super::error::{UFORM_STATUS_OK, UFORM_STATUS_PENDING, uform_error_t, uform_status_t};
use super::guard::{guard, guard_value, record};
use super::handle::{self, CallbackContext, Crossing};

/// A deferred call. Once it has ended, its status never changes and the handle holds nothing but the result.
pub struct uform_deferred_t {
    pub(super) call: Arc<Call>,
}

/// Told once that a deferred call has ended, with its status and, unless that is `OK`, a record that is readable during
/// the callback. Runs on the executor's own thread, or on the registering one if the call had ended before. No lock is
/// held; it may call anything except `uform_executor_drain` and `uform_executor_free` of that executor. It must not
/// unwind.
pub type uform_deferred_callback_t =
    Option<unsafe extern "C" fn(context: *mut c_void, status: uform_status_t, error: *const uform_error_t)>;

/// Asks without waiting: `status_out` receives `PENDING`, or how the call ended. The function's own status is `OK` in
/// each case; `error` receives the sentence of a call that failed.
///
/// Thread safety: one thread at a time per deferred call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_deferred_poll(
    deferred: *const uform_deferred_t,
    status_out: *mut uform_status_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let status = match handle::borrow(deferred, "deferred")?.call.poll() {
                None => UFORM_STATUS_PENDING,
                Some(Ok(())) => UFORM_STATUS_OK,
                Some(Err(failure)) => {
                    super::guard::fill(error, &failure);
                    failure.status as uform_status_t
                }
            };
            handle::write(status_out, "status_out", status)
        })
    }
}

/// Waits up to `timeout` seconds for the call to end and returns how it did; `TIMED_OUT` when it has not. A negative or
/// infinite timeout waits for as long as it takes, zero does not wait.
///
/// Thread safety: one thread at a time per deferred call; blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_deferred_wait(
    deferred: *const uform_deferred_t,
    timeout: f64,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            if timeout.is_nan() {
                return err!(InvalidArgument, "timeout: expected seconds, found NaN");
            }
            handle::borrow(deferred, "deferred")?.call.wait(timeout)
        })
    }
}

/// Asks the call to stop: before it starts, or else at the next block of tokens. It then ends as `CANCELLED`; one that
/// has ended is not changed. Does not wait.
///
/// Thread safety: any thread, while no other thread frees the deferred call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_deferred_cancel(
    deferred: *const uform_deferred_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe { guard(error, || handle::borrow(deferred, "deferred")?.call.cancel()) }
}

/// Registers a callback for the end of the call; at once, on this thread, if it has ended. Each registration is
/// told once, before `uform_executor_free` returns; the handle of the call may be gone by then. Those who wait for the call,
/// and `uform_executor_drain`, may return before it is told.
///
/// Thread safety: one thread at a time per deferred call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_deferred_on_done(
    deferred: *const uform_deferred_t,
    callback: uform_deferred_callback_t,
    context: *mut c_void,
    error: *mut uform_error_t,
) -> uform_status_t {
    let context: CallbackContext = Crossing(context);
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let Some(callback) = callback else { return err!(InvalidArgument, "callback is NULL") };
            handle::borrow(deferred, "deferred")?.call.on_done(Box::new(move |result: &Result<()>| {
                match result {
                    // SAFETY: the caller registered the function for this very use and said that it does not unwind.
                    Ok(()) => callback(context.get(), Status::Ok as uform_status_t, std::ptr::null()),
                    // SAFETY: as above; the record lives until the callback returns.
                    Err(failure) => {
                        callback(context.get(), failure.status as uform_status_t, &record(failure))
                    }
                }
            }));
            Ok(())
        })
    }
}

/// Ends the handle. A call that has not ended is cancelled first, and the function returns when nothing touches its
/// texts, output and reports any more. NULL does nothing. It must not be called from a progress callback of that very
/// call, which could not end before: it then returns while texts, output and reports are still in use.
///
/// Thread safety: one thread at a time per deferred call; blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_deferred_free(deferred: *mut uform_deferred_t) {
    // SAFETY: the handle is used as the C declaration demands of the caller.
    guard_value((), || unsafe {
        if let Some(handle) = handle::borrow_optional(deferred) {
            handle.call.abandon();
        }
        handle::end(deferred);
    });
}
