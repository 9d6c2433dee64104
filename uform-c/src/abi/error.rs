//! The status that every fallible function returns, and the record that holds the sentence to it.

/// What became of a call. Zero is success; any other number, also one unknown to the caller, is a failure.
/// 1 to 99 are mistakes of the caller, 100 to 199 troubles of the environment, 200 to 299 states of a call or
/// handle, 900 is a defect of the library. Numbers are only ever added.
pub type uform_status_t = i32;

/// The call succeeded.
pub const UFORM_STATUS_OK: uform_status_t = 0;
/// An argument is out of range, malformed, or contradicts another.
pub const UFORM_STATUS_INVALID_ARGUMENT: uform_status_t = 1;
/// This build, machine or model cannot do what was asked.
pub const UFORM_STATUS_UNSUPPORTED: uform_status_t = 2;
/// The output does not fit the buffer that was given.
pub const UFORM_STATUS_BUFFER_TOO_SMALL: uform_status_t = 3;
/// A file, prompt or name does not exist.
pub const UFORM_STATUS_NOT_FOUND: uform_status_t = 4;
/// A file or buffer contradicts its own format.
pub const UFORM_STATUS_CORRUPT_DATA: uform_status_t = 5;
/// A row could not be embedded, and no reports were asked for; the sentence names the row.
pub const UFORM_STATUS_ROW_FAILED: uform_status_t = 6;
/// Host or device memory ran out.
pub const UFORM_STATUS_OUT_OF_MEMORY: uform_status_t = 100;
/// The operating system refused to read or write.
pub const UFORM_STATUS_IO: uform_status_t = 101;
/// A device that was asked for cannot be had.
pub const UFORM_STATUS_DEVICE_UNAVAILABLE: uform_status_t = 102;
/// A device stopped working.
pub const UFORM_STATUS_DEVICE_LOST: uform_status_t = 103;
/// A limit on concurrent use is reached.
pub const UFORM_STATUS_CONTENDED: uform_status_t = 200;
/// The deferred call has not finished.
pub const UFORM_STATUS_PENDING: uform_status_t = 201;
/// The call was cancelled.
pub const UFORM_STATUS_CANCELLED: uform_status_t = 202;
/// The time given for waiting has passed.
pub const UFORM_STATUS_TIMED_OUT: uform_status_t = 203;
/// The executor belongs to the parent of this forked process.
pub const UFORM_STATUS_FORKED: uform_status_t = 204;
/// A defect of the library.
pub const UFORM_STATUS_INTERNAL: uform_status_t = 900;

/// Bytes of a sentence in an error record, its terminating zero included.
pub const UFORM_ERROR_MESSAGE_CAPACITY: usize = 1024;

/// The caller's record of a failure, on the stack or wherever it likes. Written only by a call that fails, so it
/// needs no initialization before a status is looked at. Wherever one is taken, NULL is legal.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_error_t {
    /// The status that the failed call returned.
    pub status: uform_status_t,
    /// Bytes in `message` before its terminating zero.
    pub message_length: u32,
    /// One sentence with the facts, in UTF-8, zero-terminated, cut at a character boundary if it is too long.
    pub message: [std::ffi::c_char; UFORM_ERROR_MESSAGE_CAPACITY],
}
