//! Executors.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use napi::bindgen_prelude::{BigInt, Null};
use napi_derive::napi;
use uform::{Executor, Mood, Status};

use crate::devices::class_or_null;
use crate::environment;
use crate::errors::{Result, failed, failure, freed};
use crate::options::{count, cpu_class, gpu_class};

/// An executor that one thread at a time uses: that of JavaScript, one that loads a model in the background, or one that
/// computes while that of JavaScript reports progress.
pub(crate) struct SharedExecutor {
    executor: Mutex<Executor>,
    /// Loads in the background that were submitted and have not ended.
    loads: AtomicUsize,
}

/// The executor as its handle and those who use it keep it.
pub(crate) type ExecutorCell = Arc<SharedExecutor>;

/// The right to use an executor until it is dropped. Never waits, so that no call from JavaScript stops the event loop.
pub(crate) fn borrow(cell: &SharedExecutor) -> Result<MutexGuard<'_, Executor>> {
    let contended = |why: &str| Err(failure(Status::Contended, format!("the executor is in use: {why}")));
    if cell.loads.load(Ordering::Acquire) > 0 {
        return contended("it lends its threads to a model that loads in the background");
    }
    match cell.executor.try_lock() {
        Ok(executor) => Ok(executor),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => contended("its progress callback called it"),
    }
}

/// The place of a load in the background, which has the executor to itself from its submission to its end: calls of
/// JavaScript are refused, and what is running or was submitted before is waited for.
pub(crate) struct Reservation(ExecutorCell);

impl Reservation {
    pub(crate) fn new(cell: ExecutorCell) -> Self {
        cell.loads.fetch_add(1, Ordering::AcqRel);
        Self(cell)
    }

    /// Waits for the executor; never on the thread of JavaScript.
    pub(crate) fn wait(&self) -> MutexGuard<'_, Executor> {
        self.0.executor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.loads.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Runs `work` on an executor, or on the calling thread when there is none.
pub(crate) fn on_executor<R>(
    cell: Option<&SharedExecutor>,
    work: impl FnOnce(&Executor) -> uform::Result<R>,
) -> Result<R> {
    match cell {
        Some(cell) => work(&*borrow(cell)?),
        None => work(&Executor::default()),
    }
    .map_err(failed)
}

/// The handle of an executor.
#[napi]
pub struct CompiledExecutor {
    cell: RefCell<Option<ExecutorCell>>,
}

/// What an executor is and holds.
#[napi(object, object_from_js = false)]
pub struct ExecutorDescription {
    /// Where its models lie.
    pub residency: String,
    /// The class that it dispatches as.
    pub cpu_class: String,
    /// The GPU class that it dispatches as.
    pub gpu_class: napi::Either<String, Null>,
    /// A number of `Mood`.
    pub mood: i32,
    /// Threads that compute at once.
    pub threads: f64,
    /// Deferred calls that it tracks.
    pub deferred_limit: f64,
    /// Deferred calls that have not ended.
    pub deferred_waiting: f64,
    /// Bytes of scratch.
    pub scratch_bytes: f64,
    /// The most bytes of scratch ever in use.
    pub scratch_high_water_bytes: f64,
    /// NUMA domains.
    pub memory_domains: Vec<i32>,
}

impl CompiledExecutor {
    fn new(executor: Executor) -> Self {
        let shared = SharedExecutor { executor: Mutex::new(executor), loads: AtomicUsize::new(0) };
        Self { cell: RefCell::new(Some(Arc::new(shared))) }
    }

    /// The executor, unless it has been freed.
    pub(crate) fn cell(&self) -> Result<ExecutorCell> {
        self.cell.borrow().clone().ok_or_else(|| freed("executor"))
    }

    fn with<R>(&self, work: impl FnOnce(&Executor) -> uform::Result<R>) -> Result<R> {
        on_executor(Some(&*self.cell()?), work)
    }
}

#[napi]
impl CompiledExecutor {
    /// Waits for every call, then sets the mood.
    #[napi]
    pub fn drain(&self, mood: i32) -> Result<()> {
        let mood = Mood::from_number(mood)
            .ok_or_else(|| failure(Status::InvalidArgument, format!("mood: there is no number {mood}")))?;
        self.with(|executor| executor.drain(mood))
    }

    /// Says what the executor is and holds.
    #[napi]
    pub fn describe(&self) -> Result<ExecutorDescription> {
        let description = self.with(Executor::describe)?;
        Ok(ExecutorDescription {
            residency: description.residency.to_string(),
            cpu_class: description.cpu_class.map_or_else(String::new, |class| class.to_string()),
            gpu_class: class_or_null(description.gpu_class),
            mood: description.mood.number(),
            threads: description.threads as f64,
            deferred_limit: description.deferred_limit as f64,
            deferred_waiting: description.deferred_waiting as f64,
            scratch_bytes: description.scratch_bytes as f64,
            scratch_high_water_bytes: description.scratch_high_water_bytes as f64,
            memory_domains: description.memory_domains,
        })
    }

    /// Waits for every call, then gives the scratch back.
    #[napi]
    pub fn trim(&self) -> Result<()> {
        self.with(Executor::trim)
    }

    /// Runs every deferred call and joins the threads; after a load in the background that still uses them.
    #[napi]
    pub fn free(&self) {
        self.cell.take();
    }
}

impl Drop for CompiledExecutor {
    /// The collector must not wait for the calls of a forgotten executor. At the end of the environment its calls have
    /// been cancelled, and no thread shall remain.
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take()
            && !environment::is_ending()
        {
            // Where no thread is to be had, the executor ends here: the closure and what it owns are dropped.
            let _ = std::thread::Builder::new().name("uform-free".to_owned()).spawn(move || drop(cell));
        }
    }
}

/// Spawns host threads.
#[napi]
pub fn executor_for_ram(
    memory_domains: Vec<i32>,
    class: Option<String>,
    threads: f64,
    deferred_limit: f64,
) -> Result<CompiledExecutor> {
    let class = cpu_class(class.as_deref())?;
    Executor::for_ram(&memory_domains, class, count(threads), count(deferred_limit))
        .map(CompiledExecutor::new)
        .map_err(failed)
}

/// An address that crossed as a big integer.
fn address(name: &str, number: &BigInt) -> Result<*mut std::ffi::c_void> {
    let (_, address, lossless) = number.get_u64();
    match usize::try_from(address) {
        Ok(address) if lossless => Ok(std::ptr::without_provenance_mut(address)),
        _ => {
            Err(failure(Status::InvalidArgument, format!("{name}: the number is no address of this machine")))
        }
    }
}

/// Would borrow a pool.
#[napi]
pub fn executor_on_pool(
    memory_domains: Vec<i32>,
    class: Option<String>,
    pool: BigInt,
    deferred_limit: f64,
) -> Result<CompiledExecutor> {
    let class = cpu_class(class.as_deref())?;
    let pool = address("pool", &pool)?;
    // SAFETY: that the address is a pool that outlives the executor is promised by whoever passes it, as documented.
    unsafe { Executor::on_pool(&memory_domains, class, pool, count(deferred_limit)) }
        .map(CompiledExecutor::new)
        .map_err(failed)
}

/// Would open streams on GPUs.
#[napi]
pub fn executor_for_vram(
    devices: Vec<i32>,
    class_of_gpus: Option<String>,
    memory_domains: Vec<i32>,
    class: Option<String>,
    streams: Vec<BigInt>,
    scratch_limit: f64,
    deferred_limit: f64,
) -> Result<CompiledExecutor> {
    let class_of_gpus = gpu_class(class_of_gpus.as_deref())?;
    let class = cpu_class(class.as_deref())?;
    let streams = streams.iter().map(|stream| address("streams", stream)).collect::<Result<Vec<_>>>()?;
    let (scratch_limit, deferred_limit) = (count(scratch_limit), count(deferred_limit));
    // SAFETY: that the addresses are streams that outlive the executor is promised by whoever passes them.
    unsafe {
        Executor::for_vram(
            &devices,
            class_of_gpus,
            &memory_domains,
            class,
            &streams,
            scratch_limit,
            deferred_limit,
        )
    }
    .map(CompiledExecutor::new)
    .map_err(failed)
}
