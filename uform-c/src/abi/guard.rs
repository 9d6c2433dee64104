//! The way out of every exported function: errors and panics become a status and a sentence, nothing else crosses.

use std::any::Any;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::{Error, Result, Status};
use crate::system::cpu;

use super::error::{UFORM_ERROR_MESSAGE_CAPACITY, uform_error_t, uform_status_t};

/// Runs the body of an exported function; on failure fills `error`, unless it is NULL.
///
/// # Safety
/// `error` is NULL or addresses an error record that nothing else touches during the call.
pub(super) unsafe fn guard(error: *mut uform_error_t, body: impl FnOnce() -> Result<()>) -> uform_status_t {
    if !cpu::has_built() {
        // SAFETY: the caller's promise is ours.
        unsafe { refuse(error) };
        return Status::Unsupported as uform_status_t;
    }
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok as uform_status_t,
        Ok(Err(failure)) => failure,
        Err(panic) => Error::new(Status::Internal, format!("a defect of the library: {}", sentence(&*panic))),
    };
    // SAFETY: the caller's promise is ours.
    unsafe { fill(error, &failure) };
    failure.status as uform_status_t
}

/// Runs the body of an exported function that cannot fail; a panic gives `fallback`, and so does a machine that lacks what the
/// compiler may use in this build.
pub(super) fn guard_value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    if !cpu::has_built() {
        return fallback;
    }
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

/// Writes a failure into the caller's record, unless it is NULL.
///
/// # Safety
/// As for [`guard`].
pub(super) unsafe fn fill(error: *mut uform_error_t, failure: &Error) {
    if error.is_null() {
        return;
    }
    // SAFETY: not NULL, so by the caller's promise a record that is ours during the call.
    unsafe { error.write(record(failure)) };
}

/// Says that this machine lacks what the compiler may use in this build, with none of it: by functions of the C library,
/// for which the compiler has to take lengths that it does not know.
///
/// # Safety
/// As for [`guard`].
unsafe fn refuse(error: *mut uform_error_t) {
    const { assert!(cpu::LACKING.len() < UFORM_ERROR_MESSAGE_CAPACITY) };
    if error.is_null() {
        return;
    }
    // SAFETY: not NULL, so by the caller's promise a record that is ours during the call, and longer than the sentence.
    unsafe {
        let message = (&raw mut (*error).message).cast::<u8>();
        message.write_bytes(0, black_box(UFORM_ERROR_MESSAGE_CAPACITY));
        message.copy_from_nonoverlapping(cpu::LACKING.as_ptr(), black_box(cpu::LACKING.len()));
        (*error).status = Status::Unsupported as uform_status_t;
        (*error).message_length = cpu::LACKING.len() as u32;
    }
}

/// The record of a failure, its sentence cut at a character boundary.
pub(super) fn record(failure: &Error) -> uform_error_t {
    let text = failure.sentence();
    let text = &text[..text.floor_char_boundary(UFORM_ERROR_MESSAGE_CAPACITY - 1)];
    let mut message = [0; UFORM_ERROR_MESSAGE_CAPACITY];
    for (to, from) in message.iter_mut().zip(text.bytes()) {
        *to = from as std::ffi::c_char;
    }
    uform_error_t { status: failure.status as uform_status_t, message_length: text.len() as u32, message }
}

fn sentence(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it panicked without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(record: &uform_error_t) -> String {
        let bytes: Vec<u8> =
            record.message.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
        assert_eq!(bytes.len(), record.message_length as usize);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_panic_becomes_internal_with_its_text() {
        let mut error = record(&Error::new(Status::Ok, ""));
        // SAFETY: the record is a local.
        let status = unsafe { guard(&mut error, || panic!("seven {}", 8)) };
        assert_eq!((status, error.status), (900, 900));
        assert!(text_of(&error).ends_with("seven 8"));
        // SAFETY: NULL is legal.
        assert_eq!(unsafe { guard(std::ptr::null_mut(), || panic!()) }, 900);
        assert_eq!(guard_value(7, || panic!()), 7);
    }

    #[test]
    fn long_sentences_are_cut_between_characters() {
        for pad in 0..4 {
            let text = "x".repeat(pad) + &"😀".repeat(400);
            let cut = text_of(&record(&Error::new(Status::Io, text.clone())));
            assert!(text.starts_with(&cut) && cut.len() > UFORM_ERROR_MESSAGE_CAPACITY - 6);
        }
    }
}
