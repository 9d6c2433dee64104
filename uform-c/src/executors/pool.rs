//! A fork-join pool for layers that take microseconds.
//!
//! The leader, which is the thread that computes a call, publishes a job and works on it too; the workers take tasks
//! from it one by one, and the leader returns when all tasks have ended. A worker that comes late finds nothing left
//! and costs nothing, so that a thread without a core never holds up the others.
//!
//! Between the layers of a call the pool is open, and its workers spin. Between calls they do what the mood says. They
//! park by `std::thread::park`: it is the kernel's own primitive on every system (a futex on Linux and Windows),
//! needs no further crate, and leaves the thread that wakes them alone unless they really sleep. The crate
//! `atomic-wait` was the alternative; on macOS it calls into the C++ standard library.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{JoinHandle, Thread};

use crate::base::{Error, Result, err};
use crate::system::float;

use super::context::{Team, panicked};

/// The bit of a [`Shared::ticket`] that says that no task is left. Every worker may count the ticket up once more after it is
/// reached, for which the upper half of the numbers leaves room.
const EXHAUSTED: u32 = 1 << 31;

/// Reasons not to sleep: bits of [`Shared::gate`].
const OPEN: u32 = 1;
const SPINNING: u32 = 2;
const STOP: u32 = 4;

/// Rounds of looking for work after which a thread lets others have its core now and then, and between two such breaks. More
/// than the layers of a short query keep it waiting as a rule, so that this takes no system call. A round takes from 15 to 50
/// nanoseconds, by processor.
const PATIENCE: u32 = 1024;
const BREAK: u32 = 64;
/// Rounds that a worker looks on after a call before it parks, so that a burst of calls does not wake it each time.
const LINGER: u32 = 2_000;

/// How many threads of pools are awake in this process, to be held against the CPUs that it may use.
static COMPUTING: AtomicUsize = AtomicUsize::new(0);

/// A value on cache lines of its own. Two lines, as processors fetch them in pairs.
#[repr(align(128))]
struct Apart<T>(T);

/// What the leader and the workers share.
struct Shared {
    /// Tasks are taken by counting it up: while [`EXHAUSTED`] is not set, the old value was one task's.
    ticket: Apart<AtomicU32>,
    /// Tasks of the current job that have ended.
    ended: Apart<AtomicUsize>,
    /// Why workers may not sleep; zero lets them.
    gate: Apart<AtomicU32>,
    job: Apart<UnsafeCell<Job>>,
    panic: Mutex<Option<Error>>,
    /// Whether there is one, so that a job without takes no lock.
    panicked: AtomicBool,
    /// Which workers sleep or are about to.
    asleep: Vec<AtomicBool>,
    /// The workers' handles, there before the first call.
    workers: OnceLock<Vec<Thread>>,
    usable: usize,
}

/// A body and how many tasks it is called for.
struct Job {
    body: *const (dyn Fn(usize, usize) + Sync),
    tasks: usize,
}

// SAFETY: `job` is written by the leader only while no task of it is left or running, and read only by those who have
// taken a task that is; `Shared::work` says why these exclude each other. The body is `Sync`. All else is `Sync` by itself.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// The threads of an executor.
pub(super) struct Pool {
    shared: Arc<Shared>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    leading: AtomicBool,
}

impl Pool {
    /// Starts `threads - 1` workers that sleep; `settle` runs first on each, with its index among the threads.
    pub(super) fn new(
        threads: usize,
        usable: usize,
        settle: impl Fn(usize) + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            ticket: Apart(AtomicU32::new(EXHAUSTED)),
            ended: Apart(AtomicUsize::new(0)),
            gate: Apart(AtomicU32::new(0)),
            job: Apart(UnsafeCell::new(Job { body: &|_, _| {}, tasks: 0 })),
            panic: Mutex::new(None),
            panicked: AtomicBool::new(false),
            asleep: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            workers: OnceLock::new(),
            usable,
        });
        let pool = Self { shared, handles: Mutex::default(), leading: AtomicBool::new(false) };
        let settle = Arc::new(settle);
        for index in 1..threads {
            let (shared, settle) = (pool.shared.clone(), settle.clone());
            let started = std::thread::Builder::new().name(format!("uform-{index}")).spawn(move || {
                settle(index);
                // It was inherited from the thread that makes the executor.
                float::set_default();
                shared.serve(index);
            });
            match started {
                Ok(handle) => pool.handles().push(handle),
                // Dropping the pool ends those that were started.
                Err(error) => {
                    return err!(OutOfMemory, "thread {index} of {threads} could not be started: {error}");
                }
            }
        }
        let workers = pool.handles().iter().map(|handle| handle.thread().clone()).collect();
        let Ok(()) = pool.shared.workers.set(workers) else { unreachable!("set once, here") };
        Ok(pool)
    }

    fn handles(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.handles.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Lets workers spin between calls, or sleep.
    pub(super) fn set_spinning(&self, spinning: bool) {
        match spinning {
            true => self.shared.rouse(SPINNING),
            false => self.shared.calm(SPINNING),
        }
    }

    /// Wakes the workers and keeps them awake until what it returns is dropped.
    pub(super) fn open(&self) -> Opened<'_> {
        self.shared.rouse(OPEN);
        Opened(self)
    }

    /// Ends the workers and waits for them. Not from one of them.
    pub(super) fn stop(&self) {
        self.shared.rouse(STOP);
        for handle in self.handles().drain(..) {
            handle.thread().unpark();
            // A worker catches the panics of bodies and has no other, so that there is nothing to learn from the result.
            let _ = handle.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
        self.shared.calm(STOP | SPINNING);
    }
}

/// An open pool: its workers are awake.
pub(super) struct Opened<'pool>(&'pool Pool);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.shared.calm(OPEN);
    }
}

impl Team for Pool {
    fn threads(&self) -> usize {
        self.shared.threads()
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) -> Result<()> {
        if self.leading.swap(true, Ordering::Acquire) {
            return err!(Internal, "a part of a task tried to split its work over the threads that run it");
        }
        let shared = &*self.shared;
        let mut first = 0;
        while first < tasks {
            // Jobs of more tasks than tickets can count are cut.
            let count = (tasks - first).min(EXHAUSTED as usize);
            match first {
                0 => shared.lead(count, body),
                _ => shared.lead(count, &|thread, task| body(thread, first + task)),
            }
            first += count;
        }
        self.leading.store(false, Ordering::Release);
        match shared.panicked.load(Ordering::Acquire) {
            false => Ok(()),
            true => {
                shared.panicked.store(false, Ordering::Relaxed);
                shared.panic().take().map_or(Ok(()), Err)
            }
        }
    }
}

impl Shared {
    fn panic(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs one job on all threads that come; the leader's part.
    fn lead(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        if tasks == 1 || self.asleep.is_empty() {
            for task in 0..tasks {
                self.call(body, 0, task);
            }
            return;
        }
        // SAFETY: only lengthens the lifetime. No thread calls the body after this function has returned: that takes a
        // ticket of this job, and `ended` has counted all of them by then.
        let body = unsafe {
            std::mem::transmute::<&(dyn Fn(usize, usize) + Sync), &'static (dyn Fn(usize, usize) + Sync)>(
                body,
            )
        };
        // SAFETY: the job before has ended (the loop below) and nobody reads it without a ticket, of which none is left.
        unsafe { *self.job.0.get() = Job { body, tasks } };
        self.ended.0.store(0, Ordering::Relaxed);
        // Publishes the job and the zero: whoever takes a ticket reads from this store, or from a chain of additions to it.
        self.ticket.0.store(EXHAUSTED - tasks as u32, Ordering::Release);
        let mut patience = Patience::default();
        self.work(0);
        // Acquire pairs with the Release of each thread that added its share: what the bodies wrote is seen from here on,
        // and their reading of the job lies before our writing of the next.
        while self.ended.0.load(Ordering::Acquire) < tasks {
            patience.spend(self);
        }
    }

    /// Takes tasks of the current job until none is left.
    ///
    /// A thread may see that there are tickets, lose its core, and take one of a later job: that is as good, since the
    /// addition that takes the ticket is also what makes that job visible. Whoever has a valid ticket may read the job
    /// until it has added its task to `ended`, as the leader writes the next job only when all have been added.
    fn work(&self, thread: usize) {
        let mut ended = 0;
        loop {
            let ticket = self.ticket.0.load(Ordering::Relaxed);
            if ticket >= EXHAUSTED {
                break;
            }
            let ticket = self.ticket.0.fetch_add(1, Ordering::Acquire);
            if ticket >= EXHAUSTED {
                break;
            }
            // SAFETY: the ticket is valid and its task not yet added to `ended`, so the job stays as it is and its body alive.
            let (body, tasks) = unsafe {
                let job = &*self.job.0.get();
                (&*job.body, job.tasks)
            };
            self.call(body, thread, tasks - (EXHAUSTED - ticket) as usize);
            ended += 1;
        }
        if ended > 0 {
            self.ended.0.fetch_add(ended, Ordering::Release);
        }
    }

    fn call(&self, body: &(dyn Fn(usize, usize) + Sync), thread: usize, task: usize) {
        // A panic leaves half-written outputs behind, which the error of the call declares unspecified.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(thread, task))) {
            self.panic().get_or_insert_with(|| panicked(&*payload));
            self.panicked.store(true, Ordering::Release);
        }
    }

    /// The life of a worker.
    fn serve(&self, thread: usize) {
        let mut patience = Patience::default();
        loop {
            if self.ticket.0.load(Ordering::Relaxed) < EXHAUSTED {
                self.work(thread);
                patience = Patience::default();
                continue;
            }
            let gate = self.gate.0.load(Ordering::Relaxed);
            if gate & STOP != 0 {
                return;
            }
            if gate != 0 || patience.spent < LINGER {
                patience.spend(self);
            } else {
                self.sleep(thread);
                // The system may have woken us on the core of the one who did it and who has yet to publish a job: give it back soon.
                patience = Patience { spent: PATIENCE - 1 };
            }
        }
    }

    /// Parks a worker until the gate has a reason to be awake.
    fn sleep(&self, thread: usize) {
        let asleep = &self.asleep[thread - 1];
        loop {
            // Either this store comes before the gate opens in the one order of all SeqCst operations, and the opener
            // sees it and unparks us; or the gate was open before, and the load below sees that. It is made anew each
            // time, because whoever unparked us has reset it.
            asleep.store(true, Ordering::SeqCst);
            if self.gate.0.load(Ordering::SeqCst) != 0 {
                break;
            }
            std::thread::park();
        }
        asleep.store(false, Ordering::Relaxed);
        // Those who wake wake others, so that the leader does not make one system call for each.
        self.wake(thread);
    }

    /// Gives workers `reason` to be awake.
    fn rouse(&self, reason: u32) {
        if self.gate.0.fetch_or(reason, Ordering::SeqCst) == 0 {
            COMPUTING.fetch_add(self.threads(), Ordering::Relaxed);
            self.wake(0);
        }
    }

    /// Takes `reason` back, which leaves workers to sleep if it was the last.
    fn calm(&self, reason: u32) {
        let before = self.gate.0.fetch_and(!reason, Ordering::SeqCst);
        if before != 0 && before & !reason == 0 {
            COMPUTING.fetch_sub(self.threads(), Ordering::Relaxed);
        }
    }

    fn threads(&self) -> usize {
        self.asleep.len() + 1
    }

    /// Wakes up to two sleeping workers, those behind `thread` first.
    fn wake(&self, thread: usize) {
        let Some(workers) = self.workers.get() else { return };
        let mut woken = 0;
        for place in (thread..workers.len()).chain(0..thread.min(workers.len())) {
            let asleep = &self.asleep[place];
            // The exchange gives each sleeper to one waker; the load spares it for those that are awake.
            if asleep.load(Ordering::SeqCst) && asleep.swap(false, Ordering::SeqCst) {
                workers[place].unpark();
                woken += 1;
                if woken == 2 {
                    return;
                }
            }
        }
    }
}

/// How long a thread has looked for work.
#[derive(Default)]
struct Patience {
    spent: u32,
}

impl Patience {
    /// One more look in vain: a hint to the processor, and a break for other threads where that may matter.
    fn spend(&mut self, shared: &Shared) {
        self.spent = self.spent.saturating_add(1);
        std::hint::spin_loop();
        if self.spent.is_multiple_of(BREAK)
            && (self.spent >= PATIENCE || COMPUTING.load(Ordering::Relaxed) > shared.usable)
        {
            if self.spent > 1 << 20 {
                self.spent = LINGER;
            }
            std::thread::yield_now();
        }
    }
}
