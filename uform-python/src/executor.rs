//! Executors, which Python's threads may share: one uses the handle at a time, and the others wait.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{self, OrRaise};
use crate::wait::{Origin, SLICE, Signal, lock};
use crate::{call, progress};

/// The number of the null executor. Others count from one and are never used again.
pub(crate) const NULL: u64 = 0;

struct Handle(uform::Executor);

// SAFETY: the C interface lets one thread at a time use an executor, and beside it the executor's own thread inside of
// callbacks while that one thread waits in `drain` or `trim`. `Executor::take` admits just these: it counts the holders under
// the lock of the slot, which no build of the interpreter takes part in, and lets a second one in only where a thread-local of
// ours says that it runs inside a callback and `Slot::waits` that the first one waits. A lock around the handle itself
// would not do: whoever waits would keep the callbacks out that it waits for.
unsafe impl Sync for Handle {}

/// Where the handle is.
struct Slot {
    /// `None` once the executor was freed.
    handle: Option<Arc<Handle>>,
    holders: usize,
    /// Whether its holder only waits for calls, whose callbacks may use the handle meanwhile.
    waits: bool,
}

struct Shared {
    number: u64,
    slot: Mutex<Slot>,
    returned: Condvar,
}

impl Shared {
    fn of(number: u64, handle: uform::Executor) -> Self {
        let slot = Slot { handle: Some(Arc::new(Handle(handle))), holders: 0, waits: false };
        Self { number, slot: Mutex::new(slot), returned: Condvar::new() }
    }
}

/// Host threads with their scratch; without arguments the null executor, which computes on the calling thread.
#[pyclass(frozen, module = "uform._uform")]
pub(crate) struct Executor {
    /// `None` when the object goes.
    shared: Option<Arc<Shared>>,
    origin: Origin,
}

/// The handle of an executor, lent to one thread. Given back when dropped.
pub(crate) struct Lent {
    handle: Option<Arc<Handle>>,
    owner: Option<Arc<Shared>>,
    waits: bool,
}

impl Lent {
    /// The null executor, of which every caller has its own.
    pub(crate) fn null() -> Self {
        let handle = Arc::new(Handle(uform::Executor::default()));
        Self { handle: Some(handle), owner: None, waits: false }
    }

    /// The number of the executor.
    pub(crate) fn number(&self) -> u64 {
        self.owner.as_ref().map_or(NULL, |owner| owner.number)
    }

    fn is_idle(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.owner.is_none() || self.describe().or_raise(py)?.deferred_waiting == 0)
    }

    /// Lets callbacks use the handle too: from here on it only waits for calls.
    fn wait_only(&mut self) {
        if let Some(owner) = &self.owner {
            self.waits = true;
            lock(&owner.slot).waits = true;
            owner.returned.notify_all();
        }
    }
}

impl Deref for Lent {
    type Target = uform::Executor;

    fn deref(&self) -> &uform::Executor {
        &self.handle.as_ref().expect("taken out in drop only").0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // First, so that whoever frees the executor then has the only one.
        self.handle = None;
        if let Some(owner) = &self.owner {
            let mut slot = lock(&owner.slot);
            slot.holders -= 1;
            slot.waits &= !self.waits;
            drop(slot);
            owner.returned.notify_all();
        }
    }
}

impl Executor {
    fn of(handle: uform::Executor) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(NULL);
        let number = MADE.fetch_add(1, Ordering::Relaxed) + 1;
        Self { shared: Some(Arc::new(Shared::of(number, handle))), origin: Origin::here() }
    }

    fn shared(&self) -> &Arc<Shared> {
        self.shared.as_ref().expect("taken out in drop only")
    }

    pub(crate) fn is_null(&self) -> bool {
        self.shared().number == NULL
    }

    /// Fails where waiting for a turn on the executor would never end.
    pub(crate) fn check_turn(&self, py: Python<'_>) -> PyResult<()> {
        progress::refuse_inside(py, self.shared().number)
    }

    /// Waits with the interpreter released until no other thread has the handle, and gives what `take` makes of the slot.
    fn take<T: Send>(&self, py: Python<'_>, take: impl Fn(&mut Slot) -> T + Sync) -> PyResult<T> {
        self.origin.check(py, "the executor")?;
        let shared = self.shared();
        let drives = call::is_in_callback(shared.number) || progress::is_inside(shared.number);
        let is_busy = |slot: &mut Slot| slot.holders > 0 && !(slot.waits && drives);
        loop {
            let taken = py.detach(|| {
                let (mut slot, waited) = shared
                    .returned
                    .wait_timeout_while(lock(&shared.slot), SLICE, is_busy)
                    .unwrap_or_else(PoisonError::into_inner);
                if waited.timed_out() { None } else { Some(take(&mut slot)) }
            });
            match taken {
                Some(taken) => return Ok(taken),
                None => py.check_signals()?,
            }
        }
    }

    /// Lends the handle, once no other thread has it.
    pub(crate) fn lend(&self, py: Python<'_>) -> PyResult<Lent> {
        if self.is_null() {
            return Ok(Lent::null());
        }
        let handle = self.take(py, |slot| {
            slot.holders += usize::from(slot.handle.is_some());
            slot.handle.clone()
        })?;
        match handle {
            Some(handle) => {
                Ok(Lent { handle: Some(handle), owner: Some(self.shared().clone()), waits: false })
            }
            None => Err(errors::invalid(py, "the executor was freed")),
        }
    }

    /// Lends the handle if no deferred call is waiting, so that what is done with it waits for nobody. Whoever held it while
    /// it waits would keep completion callbacks, and with them the very calls that it waits for, from using it.
    pub(crate) fn lend_if_idle(&self, py: Python<'_>) -> PyResult<Option<Lent>> {
        let lent = self.lend(py)?;
        Ok(lent.is_idle(py)?.then_some(lent))
    }

    /// Runs `work`, which waits for the calls submitted before it. On a thread of its own where there are any, while this one
    /// looks for signals; after one, the work is left to end on its own.
    fn after_calls(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&uform::Executor) -> uform::Result<()> + Send + 'static,
    ) -> PyResult<()> {
        self.check_turn(py)?;
        let mut lent = self.lend(py)?;
        // In a callback, the calls before it have this thread only.
        if lent.is_idle(py)? || call::is_in_callback(lent.number()) {
            return py.detach(move || work(&lent)).or_raise(py);
        }
        lent.wait_only();
        wait_apart(py, move || work(&lent))
    }
}

/// Does on a thread of its own what waits for calls, while this one looks for signals; after one, `work` is left to end on
/// its own. Where no thread is to be had, this one does it and looks for signals later.
fn wait_apart(py: Python<'_>, work: impl FnOnce() -> uform::Result<()> + Send + 'static) -> PyResult<()> {
    let work = Arc::new(Mutex::new(Some(work)));
    let ended = Arc::new(Signal::default());
    let (given, told) = (work.clone(), ended.clone());
    let run = move || {
        let work = lock(&given).take();
        let result = work.map_or(Ok(()), |work| work());
        told.set();
        result
    };
    let Ok(worker) = std::thread::Builder::new().name("uform-wait".into()).spawn(run) else {
        let work = lock(&work).take();
        return py.detach(|| work.map_or(Ok(()), |work| work())).or_raise(py);
    };
    while !py.detach(|| ended.wait(SLICE)) && !worker.is_finished() {
        py.check_signals()?;
    }
    match worker.join() {
        Ok(result) => result.or_raise(py),
        Err(_) => Err(errors::exception(py, uform::Status::Internal, "waiting for the calls panicked")),
    }
}

#[pymethods]
impl Executor {
    #[new]
    fn null() -> Self {
        let shared = Arc::new(Shared::of(NULL, uform::Executor::default()));
        Self { shared: Some(shared), origin: Origin::here() }
    }

    #[staticmethod]
    fn for_ram(
        py: Python<'_>,
        memory_domains: Vec<i32>,
        cpu_class: i32,
        threads: usize,
        deferred_limit: usize,
    ) -> PyResult<Self> {
        let cpu_class = uform::CPUClass::from_number(cpu_class);
        let made =
            py.detach(|| uform::Executor::for_ram(&memory_domains, cpu_class, threads, deferred_limit));
        Ok(Self::of(made.or_raise(py)?))
    }

    #[staticmethod]
    fn on_pool(
        py: Python<'_>,
        memory_domains: Vec<i32>,
        cpu_class: i32,
        pool: usize,
        deferred_limit: usize,
    ) -> PyResult<Self> {
        let cpu_class = uform::CPUClass::from_number(cpu_class);
        let pool = std::ptr::with_exposed_provenance_mut(pool);
        // SAFETY: the address is the caller's, who is told that the pool must outlive the executor.
        let made = unsafe { uform::Executor::on_pool(&memory_domains, cpu_class, pool, deferred_limit) };
        Ok(Self::of(made.or_raise(py)?))
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the verb has as many")]
    fn for_vram(
        py: Python<'_>,
        devices: Vec<i32>,
        gpu_class: i32,
        memory_domains: Vec<i32>,
        cpu_class: i32,
        streams: Vec<usize>,
        scratch_limit: usize,
        deferred_limit: usize,
    ) -> PyResult<Self> {
        let gpu_class = uform::GPUClass::from_number(gpu_class);
        let cpu_class = uform::CPUClass::from_number(cpu_class);
        let streams: Vec<_> = streams.into_iter().map(std::ptr::with_exposed_provenance_mut).collect();
        // SAFETY: the addresses are the caller's, who is told that the streams must outlive the executor.
        let made = unsafe {
            uform::Executor::for_vram(
                &devices,
                gpu_class,
                &memory_domains,
                cpu_class,
                &streams,
                scratch_limit,
                deferred_limit,
            )
        };
        Ok(Self::of(made.or_raise(py)?))
    }

    fn drain(&self, py: Python<'_>, mood: i32) -> PyResult<()> {
        let mood = uform::Mood::from_number(mood).unwrap_or_default();
        if call::is_in_callback(self.shared().number) {
            return Err(errors::invalid(py, "a completion callback cannot drain its executor"));
        }
        self.after_calls(py, move |executor| executor.drain(mood))
    }

    fn trim(&self, py: Python<'_>) -> PyResult<()> {
        self.after_calls(py, uform::Executor::trim)
    }

    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.lend(py)?.describe().or_raise(py)?;
        let fields = PyDict::new(py);
        fields.set_item("residency", found.residency.number())?;
        fields.set_item("cpu_class", found.cpu_class.map(uform::CPUClass::number))?;
        fields.set_item("gpu_class", found.gpu_class.map(uform::GPUClass::number))?;
        fields.set_item("mood", found.mood.number())?;
        fields.set_item("threads", found.threads)?;
        fields.set_item("deferred_limit", found.deferred_limit)?;
        fields.set_item("deferred_waiting", found.deferred_waiting)?;
        fields.set_item("scratch_bytes", found.scratch_bytes)?;
        fields.set_item("scratch_high_water_bytes", found.scratch_high_water_bytes)?;
        fields.set_item("memory_domains", found.memory_domains)?;
        Ok(fields)
    }

    /// Runs every deferred call and joins the threads. A second time it does nothing.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_null() {
            return Ok(());
        }
        self.check_turn(py)?;
        if call::is_in_callback(self.shared().number) {
            return Err(errors::invalid(py, "a completion callback cannot free its executor"));
        }
        match self.take(py, |slot| slot.handle.take())? {
            None => Ok(()),
            Some(handle) => wait_apart(py, move || {
                drop(handle);
                Ok(())
            }),
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            // Deferred calls end first, and their callbacks need the interpreter.
            Python::attach(|py| py.detach(move || drop(shared)));
        }
    }
}
