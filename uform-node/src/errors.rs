//! Errors as the TypeScript layer expects them: the name of a status in `code`, a sentence in `message`.

use uform::Status;

/// The result of everything here that can fail.
pub(crate) type Result<T> = std::result::Result<T, napi::Error<String>>;

/// A failure with that status.
pub(crate) fn failure(status: Status, message: impl Into<String>) -> napi::Error<String> {
    napi::Error::new(status.name().to_owned(), message.into())
}

/// A failure of the library.
pub(crate) fn failed(error: uform::Error) -> napi::Error<String> {
    let status = match error.status() {
        Status::Unknown(_) => Status::Internal,
        known => known,
    };
    failure(status, error.to_string())
}

/// A failure of the engine of JavaScript.
pub(crate) fn refused(error: napi::Error) -> napi::Error<String> {
    failure(Status::Internal, error.reason.clone())
}

/// What using a handle after `free` answers.
pub(crate) fn freed(noun: &str) -> napi::Error<String> {
    failure(Status::InvalidArgument, format!("the {noun} has been freed"))
}
