//! Host threads, their scratch, and the order of calls.

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use crate::classes::{CPUClass, GPUClass, Mood, Residency};
use crate::error::{Result, call};
use crate::sys;

/// The threads or device streams that an [`On`](crate::On) computes with, and the scratch that its calls use.
///
/// One executor serves any number of models of its residency, so that several models share the cores of a machine.
/// It runs one call at a time, in the order of submission; threads that want to compute at the same time take one
/// each. [`Executor::default`] is the null executor: it owns nothing, and calls on it compute on the calling thread.
///
/// Every constructor takes the most deferred calls that are tracked at once, where zero takes the default, 64;
/// submitting one more fails with [`Status::Contended`](crate::Status::Contended). An arena made in a host executor may
/// outlive it. Dropping an executor runs every deferred call that was submitted, then joins its threads.
///
/// Thread safety: `Send`, not `Sync`. In a forked child an inherited executor answers
/// [`Status::Forked`](crate::Status::Forked); new ones work.
///
/// ```
/// # fn main() -> uform::Result<()> {
/// use uform::{Executor, Mood};
///
/// let threads = Executor::for_ram(&[], None, 2, 0)?;
/// threads.drain(Mood::Spinning)?;
/// assert_eq!(threads.describe()?.threads, 2);
/// # Ok(())
/// # }
/// ```
pub struct Executor {
    /// NULL for the null executor. A raw pointer is neither `Send` nor `Sync`.
    handle: *mut sys::uform_executor_t,
}

// SAFETY: the C interface lets any thread use the handle as long as no two do at the same time.
unsafe impl Send for Executor {}

impl Executor {
    /// Spawns host threads for models in RAM, interleaved over the NUMA domains of `memory_domains`; none mean all.
    /// `cpu_class` pins the class that calls dispatch as; `None` takes what `UFORM_CPU_CLASS` names, or else the
    /// machine's own. Zero `threads` takes 7/8 of the usable cores of those domains, rounded up.
    ///
    /// [`Status::Unsupported`](crate::Status::Unsupported) when this machine lacks the class, naming those it can run.
    ///
    /// Calls `uform_executor_for_ram`.
    pub fn for_ram(
        memory_domains: &[i32],
        cpu_class: Option<CPUClass>,
        threads: usize,
        deferred_limit: usize,
    ) -> Result<Self> {
        Self::give(|handle, error| {
            // SAFETY: slice, place for the handle, and record are live for the call.
            unsafe {
                sys::uform_executor_for_ram(
                    memory_domains.as_ptr(),
                    memory_domains.len(),
                    cpu_class.map_or(0, CPUClass::number),
                    threads,
                    deferred_limit,
                    handle,
                    error,
                )
            }
        })
    }

    /// Would compute with the threads of a borrowed ForkUnion pool, so that several libraries of one process share
    /// them. Answers [`Status::Unsupported`](crate::Status::Unsupported) until borrowing is designed.
    ///
    /// Calls `uform_executor_on_pool`.
    ///
    /// # Safety
    /// `pool` addresses a live `fu_pool_t` of ForkUnion that outlives the executor.
    pub unsafe fn on_pool(
        memory_domains: &[i32],
        cpu_class: Option<CPUClass>,
        pool: *mut c_void,
        deferred_limit: usize,
    ) -> Result<Self> {
        Self::give(|handle, error| {
            // SAFETY: as for `for_ram`; the pool lives by the caller's promise.
            unsafe {
                sys::uform_executor_on_pool(
                    memory_domains.as_ptr(),
                    memory_domains.len(),
                    cpu_class.map_or(0, CPUClass::number),
                    pool,
                    deferred_limit,
                    handle,
                    error,
                )
            }
        })
    }

    /// Would open one stream on every GPU of `devices` (positions in what [`gpu_devices`](crate::gpu_devices) lists),
    /// or borrow the caller's `streams`, one CUDA stream per device in the same order. `gpu_class` pins the class that
    /// all of them dispatch as. The host's part takes 7/8 of the cores of `memory_domains` and dispatches as
    /// `cpu_class`; `None` derives either class from the hardware. `scratch_limit` bounds the bytes of scratch per
    /// device; zero lets it grow. Answers [`Status::Unsupported`](crate::Status::Unsupported): this version computes in
    /// RAM only.
    ///
    /// Calls `uform_executor_for_vram`.
    ///
    /// # Safety
    /// Every stream is a live CUDA stream on its device and outlives the executor.
    pub unsafe fn for_vram(
        devices: &[i32],
        gpu_class: Option<GPUClass>,
        memory_domains: &[i32],
        cpu_class: Option<CPUClass>,
        streams: &[*mut c_void],
        scratch_limit: usize,
        deferred_limit: usize,
    ) -> Result<Self> {
        Self::give(|handle, error| {
            // SAFETY: as for `for_ram`; the streams live by the caller's promise.
            unsafe {
                sys::uform_executor_for_vram(
                    devices.as_ptr(),
                    devices.len(),
                    gpu_class.map_or(0, GPUClass::number),
                    memory_domains.as_ptr(),
                    memory_domains.len(),
                    cpu_class.map_or(0, CPUClass::number),
                    streams.as_ptr(),
                    streams.len(),
                    scratch_limit,
                    deferred_limit,
                    handle,
                    error,
                )
            }
        })
    }

    fn give(
        make: impl FnOnce(*mut *mut sys::uform_executor_t, *mut sys::uform_error_t) -> sys::uform_status_t,
    ) -> Result<Self> {
        let mut handle = ptr::null_mut();
        call(|error| make(&mut handle, error))?;
        Ok(Self { handle })
    }

    /// Waits until every call submitted before has ended, then sets what the threads do whenever they are idle. A
    /// failure is one of the executor itself, such as a device fault, never one of the calls. On the null executor it
    /// does nothing. Not to be called from a callback of the same executor.
    ///
    /// Calls `uform_executor_drain`.
    pub fn drain(&self, mood: Mood) -> Result<()> {
        // SAFETY: the handle is live or NULL, and `&self` of a type that is not `Sync` keeps other threads away.
        call(|error| unsafe { sys::uform_executor_drain(self.handle, mood.number(), error) })
    }

    /// Says what the executor is and holds.
    pub fn describe(&self) -> Result<ExecutorDescription> {
        let mut raw = sys::uform_executor_description_t {
            size: size_of::<sys::uform_executor_description_t>(),
            residency: 0,
            cpu_class: 0,
            gpu_class: 0,
            mood: 0,
            threads: 0,
            deferred_limit: 0,
            deferred_waiting: 0,
            scratch_bytes: 0,
            scratch_high_water_bytes: 0,
            memory_domains_count: 0,
            memory_domains: [0; sys::UFORM_MEMORY_DOMAINS_CAPACITY as usize],
        };
        // SAFETY: as for `drain`; the structure says its size.
        call(|error| unsafe { sys::uform_executor_describe(self.handle, &mut raw, error) })?;
        let listed = raw.memory_domains_count.min(raw.memory_domains.len());
        Ok(ExecutorDescription {
            residency: Residency::from_number(raw.residency).unwrap_or(Residency::Ram),
            cpu_class: CPUClass::from_number(raw.cpu_class),
            gpu_class: GPUClass::from_number(raw.gpu_class),
            mood: Mood::from_number(raw.mood).unwrap_or_default(),
            threads: raw.threads,
            memory_domains: raw.memory_domains[..listed].to_vec(),
            deferred_limit: raw.deferred_limit,
            deferred_waiting: raw.deferred_waiting,
            scratch_bytes: raw.scratch_bytes,
            scratch_high_water_bytes: raw.scratch_high_water_bytes,
        })
    }

    /// Waits until every call submitted before has ended, then gives the scratch back to the system; the next call
    /// allocates what it needs anew. On the null executor it does nothing. Not to be called from a callback of the
    /// same executor.
    pub fn trim(&self) -> Result<()> {
        // SAFETY: as for `drain`.
        call(|error| unsafe { sys::uform_executor_trim(self.handle, error) })
    }

    pub(crate) fn handle(&self) -> *mut sys::uform_executor_t {
        self.handle
    }
}

impl Default for Executor {
    fn default() -> Self {
        Self { handle: ptr::null_mut() }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // SAFETY: the handle is live or NULL, and nothing uses it after this.
        unsafe { sys::uform_executor_free(self.handle) };
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.handle.is_null() {
            return formatter.write_str("Executor(the calling thread)");
        }
        match self.describe() {
            Ok(description) => formatter.debug_tuple("Executor").field(&description).finish(),
            Err(error) => formatter.debug_tuple("Executor").field(&error).finish(),
        }
    }
}

/// What an executor is and holds.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ExecutorDescription {
    /// The residency of the models that it runs.
    pub residency: Residency,
    /// The CPU class that its calls dispatch as.
    pub cpu_class: Option<CPUClass>,
    /// The GPU class that its calls dispatch as; `None` in RAM.
    pub gpu_class: Option<GPUClass>,
    /// What its threads do between calls.
    pub mood: Mood,
    /// Threads that compute at once, the caller being one of them in a synchronous call.
    pub threads: usize,
    /// The NUMA domains that its threads are spread over, 64 at most.
    pub memory_domains: Vec<i32>,
    /// Deferred calls that it tracks at once.
    pub deferred_limit: usize,
    /// Deferred calls that have not ended.
    pub deferred_waiting: usize,
    /// Bytes of scratch that it keeps now.
    pub scratch_bytes: u64,
    /// The most bytes of scratch that its calls ever used at once.
    pub scratch_high_water_bytes: u64,
}
