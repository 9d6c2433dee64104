//! What a call computes with: the threads, the kernels and the scratch of its executor, for as long as it runs.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Error, Result, Status};
use crate::kernels::Kernels;

use super::Scratch;

/// Whether the caller still wants the result. Looked at between blocks of tokens; any thread may set it.
#[derive(Default, Debug)]
pub struct Cancel(AtomicBool);

impl Cancel {
    /// Asks the call to stop at the next block of tokens.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// A `Cancelled` error once [`request`](Cancel::request) was called.
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Acquire) {
            true => Err(Error::new(Status::Cancelled, "the call was cancelled")),
            false => Ok(()),
        }
    }
}

/// Threads that run the parts of one task. The executor's pool is one; the calling thread alone is another.
pub trait Team: Sync {
    /// How many threads compute at once, the caller being one of them.
    fn threads(&self) -> usize;

    /// Calls `body(thread, task)` once for every task below `tasks`, on any of the threads, and returns when all have
    /// ended. `thread` is below [`threads`](Team::threads) and no two bodies run with the same one at once.
    /// A panic in a body ends up as an `Internal` error here, after all other bodies have ended.
    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) -> Result<()>;
}

/// The calling thread as a team of one.
pub struct Alone;

impl Team for Alone {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) -> Result<()> {
        let all = AssertUnwindSafe(|| (0..tasks).for_each(|task| body(0, task)));
        // What a panic leaves half-written, the error of the call declares unspecified.
        catch_unwind(all).map_err(|payload| panicked(&*payload))
    }
}

/// The error of a call in which a thread panicked.
pub(super) fn panicked(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message");
    Error::new(Status::Internal, format!("a thread panicked: {text}"))
}

/// The means of one call, handed down from the executor through models and ops.
#[derive(Clone, Copy)]
pub struct Context<'call> {
    /// The kernels of the class that the executor dispatches as.
    pub kernels: &'static Kernels,
    /// The threads to split work over; inside a part of such work, a team of one.
    pub team: &'call dyn Team,
    /// One scratch per thread of the executor, by thread index; each is used by one thread at a time: its own
    /// while parts of work run, the leader between them.
    pub scratch: &'call [Scratch],
    /// Which of the scratches belongs to the thread that holds this context.
    pub thread: usize,
    /// Set when the caller no longer wants the result; looked at between blocks of tokens.
    pub cancel: &'call Cancel,
}

impl Context<'_> {
    /// The means of the part of a task that runs as `thread`: that thread alone, with its own scratch.
    pub fn part(&self, thread: usize) -> Self {
        Self { team: &Alone, scratch: &self.scratch[thread..=thread], thread: 0, ..*self }
    }
}
