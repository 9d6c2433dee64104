//! Warnings of the library.

use std::sync::Arc;

use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;

use crate::errors::{Result, failed, refused};

/// Sends the warnings of this process to a callback on the thread of JavaScript that sets it, or nowhere. It does not
/// keep the event loop alive.
#[napi]
pub fn set_log_callback(callback: Option<Function<'_, FnArgs<(String,)>, ()>>) -> Result<()> {
    let Some(callback) = callback else {
        return uform::set_log_callback(None).map_err(failed);
    };
    let function = callback
        .build_threadsafe_function::<String>()
        .weak::<true>()
        .build_callback(|context| Ok(FnArgs::from((context.value,))))
        .map_err(refused)?;
    uform::set_log_callback(Some(Arc::new(move |message: &str| {
        function.call(message.to_owned(), ThreadsafeFunctionCallMode::NonBlocking);
    })))
    .map_err(failed)
}
