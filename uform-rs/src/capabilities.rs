//! What the library is, what it was built for, and where its warnings go.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use crate::classes::{CPUClass, constant};
use crate::error::{Result, call};
use crate::sys;

/// The version of the engine, like "4.0.0".
pub fn version() -> &'static str {
    // SAFETY: the version is a constant string.
    unsafe { constant(sys::uform_version()) }
}

/// The names of the classes that this build has kernels for, separated by commas: CPU classes by number, then GPU
/// classes by number.
///
/// Calls `uform_capabilities_compiled`.
pub fn capabilities_compiled() -> &'static str {
    // SAFETY: the list is a constant string.
    unsafe { constant(sys::uform_capabilities_compiled()) }
}

/// The names of the classes that this machine offers to this build, in the form of [`capabilities_compiled`].
///
/// Calls `uform_capabilities_available`.
pub fn capabilities_available() -> &'static str {
    // SAFETY: the list is a constant string.
    unsafe { constant(sys::uform_capabilities_available()) }
}

/// The class that executors dispatch as unless one is pinned: the widest that this machine can run, or what the
/// environment variable `UFORM_CPU_CLASS` names; `None` when that names none that can run here.
pub fn cpu_class_detected() -> Option<CPUClass> {
    // SAFETY: the function takes nothing and returns a number.
    CPUClass::from_number(unsafe { sys::uform_cpu_class_detected() })
}

type LogCallback = Arc<dyn Fn(&str) + Send + Sync>;

/// Read by every warning. The engine is only ever given `receive_warning`, which needs no context, so that a warning
/// that is under way while the callback changes never meets a freed one.
static LOG_CALLBACK: RwLock<Option<LogCallback>> = RwLock::new(None);

/// Sends the warnings of this process to `callback` from now on, or nowhere with `None`. The library writes nothing to
/// the standard streams. The callback may run on any thread, also on several at once; a panic in it is dropped.
pub fn set_log_callback(callback: Option<LogCallback>) -> Result<()> {
    let receiver: sys::uform_log_callback_t = callback.is_some().then_some(receive_warning as _);
    *LOG_CALLBACK.write().unwrap_or_else(PoisonError::into_inner) = callback;
    // SAFETY: the function lives as long as the process and uses no context.
    call(|error| unsafe { sys::uform_log_callback(receiver, std::ptr::null_mut(), error) })
}

unsafe extern "C" fn receive_warning(_context: *mut c_void, message: *const c_char, length: usize) {
    let callback = LOG_CALLBACK.read().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(callback) = callback else { return };
    // SAFETY: the engine hands over as many readable bytes as it says.
    let bytes = unsafe { std::slice::from_raw_parts(message.cast::<u8>(), length) };
    let _ = catch_unwind(AssertUnwindSafe(|| callback(&String::from_utf8_lossy(bytes))));
}
