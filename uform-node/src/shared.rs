//! Models that several threads of JavaScript use.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use uform::{Model, Status};

use crate::errors::{Result, failure};

/// A model that handles on any thread share. Its key opens it for as long as one of them is alive, so that keys own
/// nothing and need no end.
pub(crate) struct SharedModel {
    model: Model,
    key: u64,
}

static MODELS: LazyLock<Mutex<HashMap<u64, Weak<SharedModel>>>> = LazyLock::new(Mutex::default);
static NEXT_KEY: AtomicU64 = AtomicU64::new(0);

/// A number that differs between processes, so that a key of another one does not open a model of this.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());

fn models() -> MutexGuard<'static, HashMap<u64, Weak<SharedModel>>> {
    MODELS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedModel {
    /// Makes the first handle.
    pub(crate) fn new(model: Model) -> Arc<Self> {
        Arc::new(Self { model, key: NEXT_KEY.fetch_add(1, Ordering::Relaxed) })
    }

    /// The key that opens the model.
    pub(crate) fn share(self: &Arc<Self>) -> String {
        models().insert(self.key, Arc::downgrade(self));
        format!("{:016x}-{}", *PROCESS, self.key)
    }

    /// Another handle of the model with that key.
    pub(crate) fn open(key: &str) -> Result<Arc<Self>> {
        let (process, number) = key.split_once('-').unwrap_or_default();
        if process != format!("{:016x}", *PROCESS) {
            return Err(failure(Status::NotFound, "the token was not made in this process"));
        }
        let number: Option<u64> = number.parse().ok();
        number
            .and_then(|number| models().get(&number).and_then(Weak::upgrade))
            .ok_or_else(|| failure(Status::NotFound, "no handle of the shared model is alive any more"))
    }
}

impl Deref for SharedModel {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.model
    }
}

impl Drop for SharedModel {
    fn drop(&mut self) {
        models().remove(&self.key);
    }
}
