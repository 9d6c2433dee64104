//! Executors.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;

use js_sys::Array;
use uform::{Executor, Mood, Status};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::errors::{Result, failed, failure, freed};
use crate::objects::{object, text_or_null};
use crate::options::{count, cpu_class, gpu_class};

/// An executor that its handle and the calls on it keep.
struct SharedExecutor {
    executor: Executor,
    in_use: Cell<bool>,
}

/// The handle of an executor.
#[wasm_bindgen]
pub struct CompiledExecutor {
    shared: RefCell<Option<Rc<SharedExecutor>>>,
    /// Whether it owns an executor, or stands for the calling thread, which any number of calls may use at once.
    owned: bool,
}

/// The right to use an executor until it is dropped.
pub(crate) struct InUse {
    shared: Rc<SharedExecutor>,
    owned: bool,
}

impl Deref for InUse {
    type Target = Executor;

    fn deref(&self) -> &Executor {
        &self.shared.executor
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.owned {
            self.shared.in_use.set(false);
        }
    }
}

impl CompiledExecutor {
    fn new(executor: Executor, owned: bool) -> Self {
        let shared = SharedExecutor { executor, in_use: Cell::new(false) };
        Self { shared: RefCell::new(Some(Rc::new(shared))), owned }
    }

    /// The executor, unless the handle has ended or a call on it is running, whose progress callback then asks for it.
    pub(crate) fn executor(&self) -> Result<InUse> {
        let shared = self.shared.borrow().clone().ok_or_else(|| freed("executor"))?;
        match self.owned && shared.in_use.replace(true) {
            false => Ok(InUse { shared, owned: self.owned }),
            true => {
                Err(failure(Status::Contended, "the executor is in use: its progress callback called it"))
            }
        }
    }
}

/// The executor that owns nothing, for calls that are given none.
#[wasm_bindgen(js_name = callingThread)]
pub fn calling_thread() -> CompiledExecutor {
    CompiledExecutor::new(Executor::default(), false)
}

#[wasm_bindgen]
impl CompiledExecutor {
    /// Sets the mood. Every call has ended when another can be made.
    pub fn drain(&self, mood: i32) -> Result<()> {
        let mood = Mood::from_number(mood)
            .ok_or_else(|| failure(Status::InvalidArgument, &format!("mood: there is no number {mood}")))?;
        self.executor()?.drain(mood).map_err(failed)
    }

    /// Says what the executor is and holds.
    pub fn describe(&self) -> Result<JsValue> {
        let description = self.executor()?.describe().map_err(failed)?;
        let domains: Array = description.memory_domains.iter().map(|domain| JsValue::from(*domain)).collect();
        Ok(object([
            ("residency", description.residency.to_string().into()),
            ("cpuClass", description.cpu_class.map_or_else(String::new, |class| class.to_string()).into()),
            ("gpuClass", text_or_null(description.gpu_class)),
            ("mood", description.mood.number().into()),
            ("threads", (description.threads as f64).into()),
            ("deferredLimit", (description.deferred_limit as f64).into()),
            ("deferredWaiting", (description.deferred_waiting as f64).into()),
            ("scratchBytes", (description.scratch_bytes as f64).into()),
            ("scratchHighWaterBytes", (description.scratch_high_water_bytes as f64).into()),
            ("memoryDomains", domains.into()),
        ]))
    }

    /// Gives the scratch back.
    pub fn trim(&self) -> Result<()> {
        self.executor()?.trim().map_err(failed)
    }

    /// Ends the handle.
    pub fn end(&self) {
        self.shared.take();
    }
}

/// Makes an executor for models in RAM.
#[wasm_bindgen(js_name = executorForRam)]
pub fn executor_for_ram(
    memory_domains: Vec<i32>,
    class: Option<String>,
    threads: f64,
    deferred_limit: f64,
) -> Result<CompiledExecutor> {
    Executor::for_ram(&memory_domains, cpu_class(class)?, count(threads), count(deferred_limit))
        .map(|executor| CompiledExecutor::new(executor, true))
        .map_err(failed)
}

/// An address that crossed as a big integer.
fn address(name: &str, number: u64) -> Result<*mut std::ffi::c_void> {
    match usize::try_from(number) {
        Ok(address) => Ok(std::ptr::without_provenance_mut(address)),
        Err(_) => Err(failure(
            Status::InvalidArgument,
            &format!("{name}: the number is no address of this machine"),
        )),
    }
}

/// Would borrow a pool.
#[wasm_bindgen(js_name = executorOnPool)]
pub fn executor_on_pool(
    memory_domains: Vec<i32>,
    class: Option<String>,
    pool: u64,
    deferred_limit: f64,
) -> Result<CompiledExecutor> {
    let class = cpu_class(class)?;
    let pool = address("pool", pool)?;
    // SAFETY: that the address is a pool that outlives the executor is promised by whoever passes it, as documented.
    unsafe { Executor::on_pool(&memory_domains, class, pool, count(deferred_limit)) }
        .map(|executor| CompiledExecutor::new(executor, true))
        .map_err(failed)
}

/// Would open streams on GPUs.
#[wasm_bindgen(js_name = executorForVram)]
pub fn executor_for_vram(
    devices: Vec<i32>,
    class_of_gpus: Option<String>,
    memory_domains: Vec<i32>,
    class: Option<String>,
    streams: Vec<u64>,
    scratch_limit: f64,
    deferred_limit: f64,
) -> Result<CompiledExecutor> {
    let class_of_gpus = gpu_class(class_of_gpus)?;
    let class = cpu_class(class)?;
    let streams = streams.iter().map(|stream| address("streams", *stream)).collect::<Result<Vec<_>>>()?;
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
    .map(|executor| CompiledExecutor::new(executor, true))
    .map_err(failed)
}
