//! Warnings of the engine. They go to the one callback that the program registered, and nowhere without one.

use std::sync::{Arc, Mutex};

type Sink = Arc<dyn Fn(&str) + Send + Sync>;

static SINK: Mutex<Option<Sink>> = Mutex::new(None);

/// Sends warnings to `sink` from now on, or nowhere when it is `None`. Any thread.
pub fn set_sink(sink: Option<Sink>) {
    *SINK.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = sink;
}

/// Hands one sentence to the registered callback, which is called without any lock of ours. Any thread.
pub fn warn(message: &str) {
    let sink = SINK.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    if let Some(sink) = sink {
        sink(message);
    }
}
