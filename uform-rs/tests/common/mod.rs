//! What several tests need.
#![allow(dead_code)]

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use uform::{Executor, LoadOptions, Model};

/// A tiny model of the conformance suite.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance/models").join(name)
}

/// The same, loaded on the calling thread.
pub(crate) fn load(name: &str) -> Model {
    Model::load_ram(path(name), &Executor::default(), &LoadOptions::default()).unwrap()
}

/// all-MiniLM-L6-v2 where `scripts/setup.sh` put it; `None` where it did not.
pub(crate) fn minilm() -> Option<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache"),
    };
    Some(cache.join("uform/models/all-MiniLM-L6-v2")).filter(|path| path.join("config.json").exists())
}

pub(crate) fn executor(threads: usize) -> Executor {
    Executor::for_ram(&[], None, threads, 0).unwrap()
}

/// Texts that are many and long enough to keep an executor busy for a while.
pub(crate) fn long_texts(count: usize) -> Vec<String> {
    (0..count)
        .map(|index| format!("{index} ") + &"the cat and the dog see the house at night ".repeat(6))
        .collect()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest asynchronous runtime: polls one future on this thread and sleeps in between.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
