//! The end of a JavaScript environment: of the process, or of a worker thread while others go on.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use napi::Env;
use napi_derive::napi;

/// Something that goes on in the background and can be asked to stop.
pub(crate) trait Background {
    /// Asks it to stop. Does not wait.
    fn cancel(&self);
    /// Whether asking still makes sense.
    fn is_running(&self) -> bool;
}

thread_local! {
    static RUNNING: RefCell<Vec<Weak<dyn Background>>> = const { RefCell::new(Vec::new()) };
    static ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Has `background` cancelled when the environment of this thread ends before it does.
pub(crate) fn cancel_at_end(background: &Rc<dyn Background>) {
    RUNNING.with_borrow_mut(|running| {
        running.retain(|other| other.upgrade().is_some_and(|other| other.is_running()));
        running.push(Rc::downgrade(background));
    });
}

/// Whether the environment of this thread is ending, so that what is freed now must be gone when this returns.
pub(crate) fn is_ending() -> bool {
    ENDING.get()
}

/// Runs whenever an environment loads the addon. Hooks run before the handles of the environment are finalized, and so
/// before an executor waits for its calls.
#[napi(module_exports)]
pub fn begin(_exports: napi::bindgen_prelude::Object<'_>, env: Env) -> napi::Result<()> {
    ENDING.set(false);
    env.add_env_cleanup_hook((), |()| {
        ENDING.set(true);
        let running = RUNNING.take();
        for background in running.iter().filter_map(Weak::upgrade) {
            background.cancel();
        }
    })?;
    Ok(())
}
