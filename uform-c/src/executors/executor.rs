//! Executors in RAM: host threads, their scratch, and the order of the calls that compute on them.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::base::{Result, err};
use crate::kernels;
use crate::system::budget::Budget;
use crate::system::cpu::{self, CpuClass};
use crate::system::fork;
use crate::system::topology::{self, Seat, Topology};

use super::core::Core;
use super::deferred::{Call, Work};
use super::pool::Pool;
use super::{Cancel, Context, Scratch, Team};

/// How many deferred calls an executor tracks at once where its maker asks for zero.
pub const DEFAULT_DEFERRED_LIMIT: usize = 64;

/// More threads than that are a mistake of the caller.
const MOST_THREADS: usize = 4096;

/// What an executor's threads do between calls, numbered as the C ABI numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u32)]
pub enum Mood {
    /// They sleep in the kernel and use no CPU.
    #[default]
    Parked = 0,
    /// They look for work without a pause, so that the next call starts at once.
    Spinning = 1,
}

impl Mood {
    /// The mood of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Parked, Self::Spinning].into_iter().find(|mood| *mood as u32 == number)
    }
}

/// What an executor is and has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// The class that its calls dispatch as.
    pub class: CpuClass,
    /// How many threads compute at once.
    pub threads: usize,
    /// The memory domains that its threads are spread over.
    pub memory_domains: Vec<i32>,
    /// What its threads do between calls.
    pub mood: Mood,
    /// How many deferred calls may be unfinished at once.
    pub deferred_limit: usize,
    /// How many deferred calls are unfinished: in line or running.
    pub deferred_waiting: usize,
    /// Bytes of scratch that it holds, over all threads.
    pub scratch_bytes: usize,
    /// The most bytes of scratch that were ever lent at once, summed over the threads.
    pub scratch_high_water: usize,
}

/// Host threads and their scratch. Calls run one at a time in the order of their submission, from whatever threads they
/// come. It starts parked. Dropping the last holder runs every deferred call and joins the threads.
pub struct Executor {
    core: ManuallyDrop<Arc<Core>>,
    memory_domains: Vec<i32>,
    /// Where the driver thread is kept; `None` leaves it to the system.
    driver_seat: Option<Seat>,
    deferred_limit: usize,
    generation: u64,
}

impl Executor {
    /// Starts an executor whose threads are spread over `memory_domains` (none: all of them) and compute as `class` (`None`:
    /// what `UFORM_CPU_CLASS` says, else the widest that runs here). Zero `threads` takes 7/8 of the usable cores of those
    /// domains, rounded up; zero `deferred_limit` takes [`DEFAULT_DEFERRED_LIMIT`].
    pub fn for_ram(
        memory_domains: &[i32],
        class: Option<CpuClass>,
        threads: usize,
        deferred_limit: usize,
    ) -> Result<Arc<Self>> {
        let kernels = kernels::for_class(cpu::resolve(class)?)?;
        if threads > MOST_THREADS {
            return err!(InvalidArgument, "threads: at most {MOST_THREADS} are possible, found {threads}");
        }
        let budget = Budget::of_process();
        let topology = Topology::of_machine(&budget);
        let chosen = topology.choose(memory_domains)?;
        let seated = topology.with_cores(&chosen);
        let usable = budget.limit(topology::count_cores(&seated));
        let threads = match threads {
            // Modules have no threads but the one that calls them.
            _ if cfg!(target_family = "wasm") => 1,
            0 => (usable * 7).div_ceil(8),
            _ => threads,
        };
        let domains: Vec<i32> = chosen.iter().map(|domain| domain.number).collect();
        // Where there is one domain, threads and pages are left to the system.
        let seats = if topology.domains.len() > 1 { topology::place(&seated, threads) } else { Vec::new() };
        let scratch = (0..threads).map(|thread| match seats.get(thread) {
            // Activations that all threads share lie in the leader's scratch.
            Some(_) if thread == 0 => Scratch::in_domains(domains.clone()),
            Some(seat) => Scratch::in_domains(vec![seat.domain]),
            None => Scratch::default(),
        });
        let scratch = scratch.collect();
        let driver_seat = seats.first().cloned();
        let pool = Pool::new(threads, usable, move |thread| {
            if let Some(seat) = seats.get(thread) {
                topology::pin(&seat.cpus);
            }
        })?;
        Ok(Arc::new(Self {
            core: ManuallyDrop::new(Arc::new(Core::new(kernels, pool, scratch))),
            memory_domains: domains,
            driver_seat,
            deferred_limit: if deferred_limit == 0 { DEFAULT_DEFERRED_LIMIT } else { deferred_limit },
            generation: fork::generation(),
        }))
    }

    fn check(&self) -> Result<()> {
        match self.generation == fork::generation() {
            true => Ok(()),
            false => {
                err!(Forked, "the executor was made before this process was forked, and has no threads here")
            }
        }
    }

    /// The memory domains to spread memory over that its threads use; none where the machine has but one.
    pub(super) fn placement(&self) -> Result<Vec<i32>> {
        self.check()?;
        Ok(if self.driver_seat.is_some() { self.memory_domains.clone() } else { Vec::new() })
    }

    /// Waits until the calls submitted before have ended, then runs `work` on this thread and the executor's others.
    /// Where nothing is in line and the workers are awake, that takes no allocation and no system call.
    /// A panic in it is an `Internal` error; a call made from inside another one of this executor is `InvalidArgument`.
    pub fn run<R>(&self, work: impl FnOnce(&Context) -> Result<R>) -> Result<R> {
        self.check()?;
        let _turn = self.core.enter()?;
        self.core.compute(&Cancel::default(), work)
    }

    /// Puts `work` in line, to run on a thread of the executor's own and its workers. `Contended` when as many calls as
    /// the executor tracks are unfinished. Where there are no threads it runs here and now.
    pub fn defer(&self, work: Work) -> Result<Arc<Call>> {
        self.check()?;
        if cfg!(target_family = "wasm") {
            return Ok(Arc::new(Call::completed(self.run(work))));
        }
        let call = Arc::new(Call::new(Arc::downgrade(&self.core), work));
        let seat = self.driver_seat.clone();
        let settle = move || seat.iter().for_each(|seat| topology::pin(&seat.cpus));
        self.core.submit(&call, self.deferred_limit, settle)?;
        Ok(call)
    }

    /// Waits until the calls submitted before have ended, then lets the threads do as `mood` says whenever they are idle. An
    /// error is the executor's own, never that of a call.
    pub fn drain(&self, mood: Mood) -> Result<()> {
        self.check()?;
        let _turn = self.core.enter()?;
        self.core.line().mood = mood;
        self.core.pool.set_spinning(mood == Mood::Spinning);
        Ok(())
    }

    /// What it is and has now.
    pub fn describe(&self) -> Result<Description> {
        self.check()?;
        let (mood, deferred_waiting) = {
            let line = self.core.line();
            (line.mood, line.deferred)
        };
        Ok(Description {
            class: self.core.kernels.class,
            threads: self.core.pool.threads(),
            memory_domains: self.memory_domains.clone(),
            mood,
            deferred_limit: self.deferred_limit,
            deferred_waiting,
            scratch_bytes: self.core.scratch.iter().map(Scratch::bytes).sum(),
            scratch_high_water: self.core.scratch.iter().map(Scratch::high_water).sum(),
        })
    }

    /// Waits until the calls submitted before have ended, then gives the scratch back to the system.
    pub fn trim(&self) -> Result<()> {
        self.check()?;
        let _turn = self.core.enter()?;
        self.core.scratch.iter().for_each(Scratch::trim);
        Ok(())
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // In a forked child the threads do not exist and locks may be held for ever, so that what was inherited is left alone.
        if self.check().is_ok() {
            self.core.close();
            // SAFETY: dropped here only, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.core) };
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Executor").field(&self.describe()).finish()
    }
}
