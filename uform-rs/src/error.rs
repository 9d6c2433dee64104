//! What became of a call, and the sentence that goes with a failure.

use std::fmt;
use std::mem::MaybeUninit;

use crate::sys;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $constant:ident, $name:literal;)*) => {
        /// What became of a call or of a row. Codes 1 to 99 are mistakes of the caller, 100 to 199 troubles of the
        /// environment, 200 to 299 states of a call or handle; 900 is a defect of the library.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $variant,)*
            /// A code that this version of the crate does not know.
            Unknown(i32),
        }

        impl Status {
            /// Every status with a name, by code.
            pub const ALL: &'static [Status] = &[$(Status::$variant),*];

            /// The status of a code of the C interface.
            pub fn from_code(code: i32) -> Self {
                match code {
                    $(sys::$constant => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }

            /// The code of the C interface.
            pub fn code(self) -> i32 {
                match self {
                    $(Self::$variant => sys::$constant,)*
                    Self::Unknown(code) => code,
                }
            }

            /// The name in lower case with hyphens, like "invalid-argument".
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(_) => "unknown",
                }
            }
        }
    };
}

statuses! {
    /// Success.
    Ok = UFORM_STATUS_OK, "ok";
    /// An argument has a value that it must not have.
    InvalidArgument = UFORM_STATUS_INVALID_ARGUMENT, "invalid-argument";
    /// This version, build or machine cannot do it.
    Unsupported = UFORM_STATUS_UNSUPPORTED, "unsupported";
    /// The memory given for a result is too small.
    BufferTooSmall = UFORM_STATUS_BUFFER_TOO_SMALL, "buffer-too-small";
    /// A file, prompt or device of that name is not there.
    NotFound = UFORM_STATUS_NOT_FOUND, "not-found";
    /// A file does not follow its format.
    CorruptData = UFORM_STATUS_CORRUPT_DATA, "corrupt-data";
    /// A row could not be embedded, and no reports were asked for.
    RowFailed = UFORM_STATUS_ROW_FAILED, "row-failed";
    /// Memory ran out.
    OutOfMemory = UFORM_STATUS_OUT_OF_MEMORY, "out-of-memory";
    /// The system could not read or write.
    Io = UFORM_STATUS_IO, "io";
    /// The device cannot be used now.
    DeviceUnavailable = UFORM_STATUS_DEVICE_UNAVAILABLE, "device-unavailable";
    /// The device failed during a call.
    DeviceLost = UFORM_STATUS_DEVICE_LOST, "device-lost";
    /// The executor tracks as many unfinished deferred calls as it may.
    Contended = UFORM_STATUS_CONTENDED, "contended";
    /// The call has not ended.
    Pending = UFORM_STATUS_PENDING, "pending";
    /// The call was stopped on request.
    Cancelled = UFORM_STATUS_CANCELLED, "cancelled";
    /// The call did not end in the time given.
    TimedOut = UFORM_STATUS_TIMED_OUT, "timed-out";
    /// The executor belongs to the parent of this forked process.
    Forked = UFORM_STATUS_FORKED, "forked";
    /// A defect of the library.
    Internal = UFORM_STATUS_INTERNAL, "internal";
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(code) => write!(formatter, "unknown status {code}"),
            known => formatter.write_str(known.name()),
        }
    }
}

/// A failure: its status, and one sentence with the facts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    status: Status,
    message: String,
}

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Status::InvalidArgument, message)
    }

    /// Why it failed, as something to branch on.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Why it failed, as a sentence: which file, key or argument, what was expected, what was found.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            return self.status.fmt(formatter);
        }
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A record that a function of the C interface may fill.
pub(crate) struct Record(MaybeUninit<sys::uform_error_t>);

impl Record {
    pub(crate) fn new() -> Self {
        let mut record = MaybeUninit::<sys::uform_error_t>::uninit();
        let pointer = record.as_mut_ptr();
        // SAFETY: the field lies in the record. The message is not set: only as much as was written is ever read.
        unsafe { (&raw mut (*pointer).message_length).write(0) };
        Self(record)
    }

    /// What the function takes.
    pub(crate) fn pointer(&mut self) -> *mut sys::uform_error_t {
        self.0.as_mut_ptr()
    }

    /// The failure with that status and the sentence in the record.
    pub(crate) fn error(&self, status: sys::uform_status_t) -> Error {
        let record = self.0.as_ptr();
        // SAFETY: the length was set by `new` or by the function, which writes as many bytes of the message as it says.
        let bytes = unsafe {
            let length = (*record).message_length as usize;
            let start = (&raw const (*record).message).cast::<u8>();
            std::slice::from_raw_parts(start, length.min(sys::UFORM_ERROR_MESSAGE_CAPACITY as usize))
        };
        Error::new(Status::from_code(status), String::from_utf8_lossy(bytes))
    }
}

/// Runs one function of the C interface with a fresh error record and turns its status into a result.
pub(crate) fn call(function: impl FnOnce(*mut sys::uform_error_t) -> sys::uform_status_t) -> Result<()> {
    let mut record = Record::new();
    match function(record.pointer()) {
        sys::UFORM_STATUS_OK => Ok(()),
        status => Err(record.error(status)),
    }
}
