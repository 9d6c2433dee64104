//! The one error type of the engine: a status that programs act on and a sentence that people read.

use std::fmt::{self, Write};

/// Why a call did not succeed, numbered as the C ABI numbers it. The numbers are append-only: 1 to 99 are mistakes
/// of the caller, 100 to 199 troubles of the environment, 200 to 299 states of a call or handle, 900 is a defect of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(i32)]
pub enum Status {
    /// The call succeeded.
    Ok = 0,
    /// An argument is out of range, malformed or contradicts another.
    InvalidArgument = 1,
    /// This build, machine or model cannot do what was asked.
    Unsupported = 2,
    /// The output does not fit the buffer that was given.
    BufferTooSmall = 3,
    /// A file, prompt or name does not exist.
    NotFound = 4,
    /// A file or buffer contradicts its own format.
    CorruptData = 5,
    /// A row could not be embedded, and no report was asked for.
    RowFailed = 6,
    /// Host or device memory ran out.
    OutOfMemory = 100,
    /// The operating system refused to read or write.
    Io = 101,
    /// A device that was asked for cannot be had.
    DeviceUnavailable = 102,
    /// A device stopped working.
    DeviceLost = 103,
    /// A limit on concurrent use is reached.
    Contended = 200,
    /// The call has not finished.
    Pending = 201,
    /// The call was cancelled.
    Cancelled = 202,
    /// The time given for waiting has passed.
    TimedOut = 203,
    /// The handle belongs to the parent of this forked process.
    Forked = 204,
    /// A defect of the library.
    Internal = 900,
}

/// A status other than [`Status::Ok`] with one sentence that holds the facts: which file, which key, what was
/// expected, what was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// What programs act on.
    pub status: Status,
    /// What people read.
    pub message: String,
}

/// What every fallible function of the engine returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `status` whose sentence is `message`.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// `OutOfMemory` for want of `bytes` for `what`. Making it does not end the process where there is no memory for its
    /// sentence either: that is then empty, and [`sentence`](Self::sentence) has another.
    pub fn out_of_memory(what: &str, bytes: u128) -> Self {
        /// Characters beside `what`: those of the sentence and of the longest number.
        const REST: usize = 128;
        let mut message = String::new();
        if message.try_reserve_exact(what.len() + REST).is_ok() {
            // There is room, and writing to a text does not fail.
            let _ = write!(message, "{what}: expected {bytes} bytes of memory, found fewer");
        }
        Self { status: Status::OutOfMemory, message }
    }

    /// What people read, never empty.
    pub fn sentence(&self) -> &str {
        match &self.message[..] {
            "" => "there is no memory, not even for a sentence about it",
            message => message,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.sentence())
    }
}

impl std::error::Error for Error {}

/// `err!(InvalidArgument, "rows: expected {}, found {}", 3, 4)` is an `Err` of that status and sentence.
macro_rules! err {
    ($status:ident, $($message:tt)+) => {
        Err($crate::base::Error::new($crate::base::Status::$status, format!($($message)+)))
    };
}
pub(crate) use err;
