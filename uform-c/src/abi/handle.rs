//! The only place that turns raw pointers of the caller into references, slices and boxes.

use std::ffi::c_void;
use std::fmt::Display;

use crate::base::{Result, err};

use super::values::uform_text_t;

/// The value behind a pointer that must not be NULL.
///
/// # Safety
/// `pointer` is NULL or addresses a live `T` for the length of the call.
pub(super) unsafe fn borrow<'call, T>(pointer: *const T, name: &str) -> Result<&'call T> {
    // SAFETY: the caller's promise is ours.
    match unsafe { pointer.as_ref() } {
        Some(value) => Ok(value),
        None => err!(InvalidArgument, "{name} is NULL"),
    }
}

/// The value behind a pointer that may be NULL.
///
/// # Safety
/// As for [`borrow`].
pub(super) unsafe fn borrow_optional<'call, T>(pointer: *const T) -> Option<&'call T> {
    // SAFETY: the caller's promise is ours.
    unsafe { pointer.as_ref() }
}

/// A slice of the caller; NULL is legal when it is empty.
///
/// # Safety
/// `pointer` is NULL or addresses `count` live values for the length of the call.
pub(super) unsafe fn slice<'call, T>(
    pointer: *const T,
    count: usize,
    name: impl Display,
) -> Result<&'call [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return err!(InvalidArgument, "{name} is NULL, but its count is {count}");
    }
    if !pointer.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return err!(InvalidArgument, "{name}: {count} elements at an address that cannot hold them");
    }
    // SAFETY: not NULL, aligned, not too long, and live by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// The bytes of a text.
///
/// # Safety
/// The text addresses as many live bytes as it says for the length of the call.
pub(super) unsafe fn bytes<'call>(text: &uform_text_t, name: impl Display) -> Result<&'call [u8]> {
    // SAFETY: the caller's promise is ours.
    unsafe { slice(text.data.cast::<u8>(), text.length, name) }
}

/// UTF-8 of the caller.
///
/// # Safety
/// As for [`bytes`].
pub(super) unsafe fn utf8<'call>(text: &uform_text_t, name: &str) -> Result<&'call str> {
    // SAFETY: the caller's promise is ours.
    let bytes = unsafe { bytes(text, name)? };
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => err!(
            InvalidArgument,
            "{name} is not UTF-8: byte {} does not continue a character",
            error.valid_up_to()
        ),
    }
}

/// A place to write a result to; it must not be NULL.
///
/// # Safety
/// `pointer` is NULL or addresses memory for a `T` that nothing else touches during the call.
pub(super) unsafe fn write<T>(pointer: *mut T, name: &str, value: T) -> Result<()> {
    if pointer.is_null() {
        return err!(InvalidArgument, "{name} is NULL");
    }
    // SAFETY: not NULL, so by the caller's promise ours to write; callers pack structures as they like.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Makes a handle: `out` is set to NULL first, and to the new handle only on success.
///
/// # Safety
/// As for [`write`].
pub(super) unsafe fn give<T>(out: *mut *mut T, name: &str, make: impl FnOnce() -> Result<T>) -> Result<()> {
    // SAFETY: the caller's promise is ours.
    unsafe { write(out, name, std::ptr::null_mut())? };
    let handle = Box::into_raw(Box::new(make()?));
    // SAFETY: as above.
    unsafe { write(out, name, handle) }
}

/// Ends a handle; NULL is legal.
///
/// # Safety
/// `handle` is NULL or came from [`give`] and was not ended before.
pub(super) unsafe fn end<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: made by `give` from a box, and ended only once by the caller's promise.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// A pointer of the caller that crosses to the thread of a deferred call.
#[derive(Clone, Copy)]
pub(super) struct Crossing<T>(pub(super) T);

// SAFETY: the ABI makes it the caller's duty that what the pointers address lives until the deferred call has ended
// and is not touched by others before, whichever thread computes.
unsafe impl<T> Send for Crossing<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Crossing<T> {}

impl<T: Copy> Crossing<T> {
    /// What crosses. A method, so that closures capture the whole of it.
    pub(super) fn get(&self) -> T {
        self.0
    }
}

/// The context pointer that goes with a callback.
pub(super) type CallbackContext = Crossing<*mut c_void>;
