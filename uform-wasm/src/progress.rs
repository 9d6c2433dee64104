//! Functions of JavaScript that the engine calls: with progress, while a call computes, and with warnings.

use std::ops::ControlFlow;
use std::sync::Arc;

use js_sys::Function;
use uform::Progress;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::errors::{Result, failed};

/// A function of JavaScript that stays on its thread.
struct Teller(Function);

// SAFETY: a module of this class has one thread, which owns every value of JavaScript that it sees.
unsafe impl Send for Teller {}
// SAFETY: as above.
unsafe impl Sync for Teller {}

impl Teller {
    fn say(&self, message: &str) {
        // What the callback throws is nobody's.
        let _ = self.0.call1(&JsValue::UNDEFINED, &message.into());
    }

    fn tell(&self, done: u64, total: u64) -> ControlFlow<()> {
        let answer = self.0.call2(&JsValue::UNDEFINED, &(done as f64).into(), &(total as f64).into());
        // The layer above catches what the callback of the user throws, so that an exception here is a stop too.
        match answer {
            Ok(answer) if answer != false => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}

/// Tells `callback` of the work done and all of it; its answer `false` stops the call.
pub(crate) fn progress(callback: Option<Function>) -> Option<Progress> {
    let teller = Teller(callback?);
    Some(Arc::new(move |done, total| teller.tell(done, total)))
}

/// Sends the warnings of this module to a callback, or nowhere.
#[wasm_bindgen(js_name = setLogCallback)]
pub fn set_log_callback(callback: Option<Function>) -> Result<()> {
    let callback = callback.map(Teller).map(|teller| Arc::new(move |message: &str| teller.say(message)) as _);
    uform::set_log_callback(callback).map_err(failed)
}
