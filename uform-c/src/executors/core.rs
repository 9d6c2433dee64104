//! What an executor shares with its driver thread: the threads and scratch to compute with, and the order of calls.
//!
//! Synchronous and deferred calls stand in one line. A synchronous call computes on the thread that made it when its
//! turn comes; deferred ones are computed by the driver thread, which starts with the first of them. Whoever computes
//! is one of the executor's threads, so that as many compute at once either way.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::base::{Result, err};
use crate::kernels::Kernels;
use crate::system::float;

use super::context::panicked;
use super::deferred::Call;
use super::executor::Mood;
use super::pool::Pool;
use super::{Cancel, Context, Scratch};

/// Rounds that the driver of a spinning executor looks for the next call before it sleeps: some tens of microseconds. Not
/// without end like the workers, as it would be one thread too many during synchronous calls.
const LINGER: u32 = 2_000;
/// Rounds between two breaks for other threads.
const BREAK: u32 = 64;

pub(super) struct Core {
    pub(super) kernels: &'static Kernels,
    pub(super) pool: Pool,
    pub(super) scratch: Vec<Scratch>,
    line: Mutex<Line>,
    /// Told when the turn is given back, the line changes or the executor closes, if anyone waits for that.
    changed: Condvar,
    /// Counts the changes, so that the driver can look for one without the lock.
    changes: AtomicU32,
}

/// The order of calls.
#[derive(Default)]
pub(super) struct Line {
    /// The thread whose turn it is.
    holder: Option<ThreadMark>,
    waiting: VecDeque<Entry>,
    /// Calls that have ended and whose callbacks the driver has yet to call.
    ended: VecDeque<Arc<Call>>,
    next_ticket: u64,
    /// Deferred calls that wait or run.
    pub(super) deferred: usize,
    /// Threads that wait for a change.
    sleepers: usize,
    closing: bool,
    driver: Option<JoinHandle<()>>,
    driver_mark: Option<ThreadMark>,
    pub(super) mood: Mood,
}

enum Entry {
    /// A synchronous call, whose thread waits.
    Turn(u64),
    Deferred(Arc<Call>),
}

impl Line {
    /// `Cancelled` once the executor is being freed: those who would go on for ever keep it from ending otherwise.
    fn check_open(&self) -> Result<()> {
        match self.closing {
            true => err!(Cancelled, "the executor is being freed and takes no further calls"),
            false => Ok(()),
        }
    }
}

/// What tells threads that are alive apart: the address of a thread-local. Unlike `std::thread::current` it allocates
/// nothing on a thread that the standard library has not started.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ThreadMark(usize);

impl ThreadMark {
    fn here() -> Self {
        thread_local! { static MARK: u8 = const { 0 } }
        MARK.with(|mark| Self(std::ptr::from_ref(mark).addr()))
    }
}

/// The right to compute; given back when dropped.
pub(super) struct Turn<'core>(&'core Core);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = self.0.line();
        line.holder = None;
        // Whoever waits for the turn stands in line; the driver that sleeps need not know.
        if !line.waiting.is_empty() {
            self.0.tell(line);
        }
    }
}

impl Core {
    pub(super) fn new(kernels: &'static Kernels, pool: Pool, scratch: Vec<Scratch>) -> Self {
        Self {
            kernels,
            pool,
            scratch,
            line: Mutex::default(),
            changed: Condvar::new(),
            changes: AtomicU32::new(0),
        }
    }

    pub(super) fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Lets those who wait look again.
    fn tell(&self, line: MutexGuard<'_, Line>) {
        let anyone = line.sleepers > 0;
        // Under the lock, which is what orders it; those who look without one only want to know soon.
        self.changes.fetch_add(1, Ordering::Relaxed);
        drop(line);
        // Waking is a system call even when nobody sleeps.
        if anyone {
            self.changed.notify_all();
        }
    }

    /// Waits for a change, at most until `deadline`.
    fn sleep<'core>(
        &'core self,
        mut line: MutexGuard<'core, Line>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'core, Line> {
        line.sleepers += 1;
        let mut line = match deadline {
            None => self.changed.wait(line).unwrap_or_else(|poisoned| poisoned.into_inner()),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(line, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0
            }
        };
        line.sleepers -= 1;
        line
    }

    /// Looks for a change for a while, and says whether there was one.
    fn linger<'core>(&'core self, line: MutexGuard<'core, Line>) -> (MutexGuard<'core, Line>, bool) {
        let seen = self.changes.load(Ordering::Relaxed);
        let is_news = || self.changes.load(Ordering::Relaxed) != seen;
        drop(line);
        for round in 1..=LINGER {
            if is_news() {
                break;
            }
            std::hint::spin_loop();
            if round.is_multiple_of(BREAK) {
                std::thread::yield_now();
            }
        }
        let line = self.line();
        let news = is_news();
        (line, news)
    }

    /// Waits for all calls that stand in line now, then has the turn. `Cancelled` when the executor is being freed.
    pub(super) fn enter(&self) -> Result<Turn<'_>> {
        let here = ThreadMark::here();
        let mut line = self.line();
        if line.holder == Some(here) {
            return err!(InvalidArgument, "a call of this executor cannot make another one on it");
        }
        line.check_open()?;
        if line.holder.is_none() && line.waiting.is_empty() {
            line.holder = Some(here);
            return Ok(Turn(self));
        }
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        line.waiting.push_back(Entry::Turn(ticket));
        loop {
            let first = matches!(line.waiting.front(), Some(Entry::Turn(first)) if *first == ticket);
            if first && line.holder.is_none() {
                line.waiting.pop_front();
                line.holder = Some(here);
                return Ok(Turn(self));
            }
            line = self.help_or_sleep(line, here, None);
        }
    }

    /// On the driver thread, runs the deferred call whose turn it is; otherwise waits for a change. A completion callback
    /// runs on the driver thread and may itself wait for calls that only this thread can run; their callbacks are left to
    /// the driver's own loop, so that they never stack up.
    fn help_or_sleep<'core>(
        &'core self,
        line: MutexGuard<'core, Line>,
        here: ThreadMark,
        deadline: Option<Instant>,
    ) -> MutexGuard<'core, Line> {
        let drives = line.driver_mark == Some(here);
        let deferred = matches!(line.waiting.front(), Some(Entry::Deferred(_)));
        if deferred && line.holder.is_none() && drives {
            return self.run_first(line, here);
        }
        let (line, news) = match drives && line.mood == Mood::Spinning {
            true => self.linger(line),
            false => (line, false),
        };
        if news { line } else { self.sleep(line, deadline) }
    }

    /// Runs the deferred call that stands first in line.
    fn run_first<'core>(
        &'core self,
        mut line: MutexGuard<'core, Line>,
        here: ThreadMark,
    ) -> MutexGuard<'core, Line> {
        let Some(Entry::Deferred(call)) = line.waiting.pop_front() else {
            unreachable!("called when a deferred call is first");
        };
        line.holder = Some(here);
        drop(line);
        let cancel = call.cancellation();
        let Some(work) = call.start() else {
            unreachable!("nothing but this and a cancel takes calls out of line")
        };
        // Work that a cancel kept from running is dropped here, without the lock.
        let result = cancel.check().and_then(|()| self.compute(cancel, work));
        let mut line = self.line();
        line.holder = None;
        line.deferred -= 1;
        // The result is there before anyone can have the next turn, and the place in the table free before anyone
        // can see the result.
        call.finish(result);
        if call.has_callbacks() {
            line.ended.push_back(call);
        }
        self.tell(line);
        self.line()
    }

    /// Runs `work` on this thread and the pool. The caller has the turn.
    pub(super) fn compute<R>(&self, cancel: &Cancel, work: impl FnOnce(&Context) -> Result<R>) -> Result<R> {
        let opened = self.pool.open();
        let context =
            Context { kernels: self.kernels, team: &self.pool, scratch: &self.scratch, thread: 0, cancel };
        let state = float::DefaultState::enter();
        let result = catch_unwind(AssertUnwindSafe(|| work(&context)));
        drop((state, opened));
        // What a panic leaves half-written, the error declares unspecified.
        result.unwrap_or_else(|payload| Err(panicked(&*payload)))
    }

    /// Puts `call` in line, unless `limit` deferred calls are there already or the executor is being freed.
    pub(super) fn submit(
        self: &Arc<Self>,
        call: &Arc<Call>,
        limit: usize,
        settle: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let mut line = self.line();
        line.check_open()?;
        if line.deferred >= limit {
            return err!(Contended, "{limit} deferred calls are unfinished, which is this executor's limit");
        }
        if line.driver.is_none() {
            let core = self.clone();
            let driver = std::thread::Builder::new().name("uform-driver".into()).spawn(move || {
                settle();
                core.drive();
            });
            match driver {
                Ok(driver) => line.driver = Some(driver),
                Err(error) => {
                    return err!(OutOfMemory, "the thread for deferred calls could not be started: {error}");
                }
            }
        }
        line.deferred += 1;
        line.waiting.push_back(Entry::Deferred(call.clone()));
        self.tell(line);
        Ok(())
    }

    /// The life of the driver thread.
    fn drive(&self) {
        let here = ThreadMark::here();
        let mut line = self.line();
        line.driver_mark = Some(here);
        loop {
            if let Some(call) = line.ended.pop_front() {
                drop(line);
                call.call_back();
                drop(call);
                line = self.line();
            } else if line.closing && line.waiting.is_empty() {
                break;
            } else {
                line = self.help_or_sleep(line, here, None);
            }
        }
        drop(line);
        // Where a callback freed the executor, nobody else is left to wait for the workers.
        self.pool.stop();
    }

    /// Runs every deferred call, then ends all threads and waits for them. On the driver thread itself, which happens when a
    /// callback drops the executor's last holder, that is left to the driver.
    pub(super) fn close(&self) {
        let mut line = self.line();
        line.closing = true;
        let driver = line.driver.take();
        let on_driver = line.driver_mark == Some(ThreadMark::here());
        self.tell(line);
        if on_driver {
            return;
        }
        if let Some(driver) = driver {
            // The driver catches the panics of calls and callbacks and has no other.
            let _ = driver.join();
        }
        self.pool.stop();
    }

    /// Cancels `call` now if it has not started, and takes it out of the line; the driver calls its callbacks.
    pub(super) fn withdraw(&self, call: &Call) {
        let mut line = self.line();
        let is_it = |entry: &Entry| matches!(entry, Entry::Deferred(other) if std::ptr::eq(&**other, call));
        // A call that is not in line has started.
        let Some(place) = line.waiting.iter().position(is_it) else { return };
        let Some(Entry::Deferred(call)) = line.waiting.remove(place) else {
            unreachable!("the place was just looked up");
        };
        line.deferred -= 1;
        let work = call.start();
        call.finish(err!(Cancelled, "the call was cancelled before it started"));
        if call.has_callbacks() {
            line.ended.push_back(call);
        }
        self.tell(line);
        // Dropping what the call owns may run anything, so that it happens without the lock.
        drop(work);
    }

    /// Waits on the driver thread until `call` is done or `deadline` has passed, running what stands before it.
    /// Does nothing on other threads. `InvalidArgument` on a thread that computes for this executor, as its own call stands
    /// before the one waited for.
    pub(super) fn help_until_done(&self, call: &Call, deadline: Option<Instant>) -> Result<()> {
        let here = ThreadMark::here();
        let mut line = self.line();
        if line.holder == Some(here) && !call.is_done() {
            return err!(InvalidArgument, "a call of this executor cannot wait for a later one");
        }
        while line.driver_mark == Some(here)
            && !call.is_done()
            && deadline.is_none_or(|deadline| Instant::now() < deadline)
        {
            line = self.help_or_sleep(line, here, deadline);
        }
        Ok(())
    }
}
