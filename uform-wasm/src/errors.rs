//! Errors as the TypeScript layer expects them: the name of a status in `code`, a sentence in `message`.

use js_sys::Error;
use uform::Status;
use wasm_bindgen::JsValue;

use crate::objects::set;

/// The result of everything here that can fail.
pub(crate) type Result<T> = std::result::Result<T, JsValue>;

/// A failure with that status.
pub(crate) fn failure(status: Status, message: &str) -> JsValue {
    let error = Error::new(message);
    set(&error, "code", status.name());
    error.into()
}

/// A failure of the library.
pub(crate) fn failed(error: uform::Error) -> JsValue {
    let status = match error.status() {
        Status::Unknown(_) => Status::Internal,
        known => known,
    };
    failure(status, &error.to_string())
}

/// What using a handle after `free` answers.
pub(crate) fn freed(noun: &str) -> JsValue {
    failure(Status::InvalidArgument, &format!("the {noun} has been freed"))
}

/// What a panic throws. `fatal` tells the other side that this instance has ended.
pub(crate) fn panicked(message: &str) -> JsValue {
    let error = Error::new(message);
    set(&error, "code", Status::Internal.name());
    set(&error, "fatal", true);
    error.into()
}
