//! The parts of a model that is being loaded, each by one thread of a team.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::base::{Error, Result};
use crate::executors::Team;

/// Where a model is loaded, and who hears of it.
pub(super) struct Loading<'l> {
    pub(super) team: &'l dyn Team,
    /// The memory domains that weights are spread over; none: where they are first touched.
    pub(super) domains: &'l [i32],
    /// Called on the calling thread whenever that has done a part; an error of its ends the loading.
    pub(super) progress: &'l (dyn Fn() -> Result<()> + Sync),
}

/// Reads one part.
pub(super) type Part<'p> = &'p (dyn Fn() -> Result<()> + Sync);

impl Loading<'_> {
    /// Reads all parts, the first ones first. After an error no later one is begun; of several errors the one of the earliest part
    /// is answered.
    pub(super) fn read(&self, parts: &[Part]) -> Result<()> {
        let earliest = AtomicUsize::new(usize::MAX);
        let first: Mutex<Option<(usize, Error)>> = Mutex::default();
        self.team.run(parts.len(), &|thread, index| {
            if index > earliest.load(Ordering::Relaxed) {
                return;
            }
            let told = || if thread == 0 { (self.progress)() } else { Ok(()) };
            if let Err(error) = parts[index]().and_then(|()| told()) {
                earliest.fetch_min(index, Ordering::Relaxed);
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(earlier, _)| index < *earlier) {
                    *first = Some((index, error));
                }
            }
        })?;
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

/// A part that is there when it has been read.
pub(super) struct Slot<T>(OnceLock<T>);

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Keeps what was read.
    pub(super) fn fill(&self, part: Result<T>) -> Result<()> {
        part.map(|part| {
            self.0.get_or_init(|| part);
        })
    }

    /// What was read, after all parts were without an error.
    pub(super) fn take(self) -> T {
        let Some(part) = self.0.into_inner() else {
            unreachable!("every part was read or an error ended it")
        };
        part
    }
}
