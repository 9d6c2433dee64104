//! Executors: host threads, scratch and the order of calls.

use std::ffi::c_void;
use std::sync::Arc;

use crate::base::{Result, err};
use crate::executors::{self, Description, Executor, Mood};

use super::capabilities::{cpu_class_of, gpu_class_of, uform_cpu_class_t, uform_gpu_class_t};
use super::error::{uform_error_t, uform_status_t};
use super::guard::{guard, guard_value};
use super::handle;
use super::options;
use super::values::{UFORM_RESIDENCY_RAM, numbered, uform_residency_t};

/// Host threads or device streams with their scratch. Runs one call at a time, in the order of submission, and serves
/// any number of models of its residency. Wherever one is taken, NULL is the null executor: it owns nothing and
/// computes on the calling thread. One thread at a time may use an executor; callbacks of its own calls may, as their
/// types say, while that thread waits in one of its functions.
pub struct uform_executor_t {
    pub(super) executor: Arc<Executor>,
}

/// What the threads of an executor do between calls. Inside a call they spin between its layers in either mood.
pub type uform_mood_t = i32;

/// They sleep in the kernel and use no CPU. Executors start like this.
pub const UFORM_MOOD_PARKED: uform_mood_t = 0;
/// They keep spinning, so that the next call starts at once.
pub const UFORM_MOOD_SPINNING: uform_mood_t = 1;

/// Domains that an executor's description has room for.
pub const UFORM_MEMORY_DOMAINS_CAPACITY: usize = 64;

/// What an executor is and holds. Set `size` to the size of the structure before asking.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_executor_description_t {
    /// Bytes of this structure, set by the caller.
    pub size: usize,
    /// The residency of the models that it runs.
    pub residency: uform_residency_t,
    /// The CPU class that its calls dispatch as.
    pub cpu_class: uform_cpu_class_t,
    /// The GPU class that its calls dispatch as; zero in RAM.
    pub gpu_class: uform_gpu_class_t,
    /// What its threads do between calls.
    pub mood: uform_mood_t,
    /// Threads that compute at once, the caller being one of them in a synchronous call.
    pub threads: usize,
    /// Deferred calls that it tracks at once.
    pub deferred_limit: usize,
    /// Deferred calls that have not ended.
    pub deferred_waiting: usize,
    /// Bytes of scratch that it keeps now.
    pub scratch_bytes: u64,
    /// The most bytes of scratch that its calls ever used at once.
    pub scratch_high_water_bytes: u64,
    /// NUMA domains that its threads are spread over; may exceed the room in `memory_domains`.
    pub memory_domains_count: usize,
    /// The first of those domains.
    pub memory_domains: [i32; UFORM_MEMORY_DOMAINS_CAPACITY],
}

options::sized!(uform_executor_description_t: size, residency, cpu_class, gpu_class, mood, threads, deferred_limit, deferred_waiting, scratch_bytes, scratch_high_water_bytes, memory_domains_count, memory_domains);

/// Spawns host threads for models in RAM, interleaved over the NUMA domains of `memory_domains`; none mean all.
/// `cpu_class` pins the class that calls dispatch as; zero takes `UFORM_CPU_CLASS` or else the machine's own. Zero
/// `threads` takes 7/8 of the usable cores of those domains, rounded up. `deferred_limit` bounds the deferred calls
/// that are tracked at once; zero takes 64. `UNSUPPORTED` when this machine lacks the class, naming those it can run;
/// `INVALID_ARGUMENT` for a domain that does not exist.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_executor_for_ram(
    memory_domains: *const i32,
    memory_domains_count: usize,
    cpu_class: uform_cpu_class_t,
    threads: usize,
    deferred_limit: usize,
    executor_out: *mut *mut uform_executor_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::give(executor_out, "executor_out", || {
                let domains = handle::slice(memory_domains, memory_domains_count, "memory_domains")?;
                let executor = Executor::for_ram(domains, cpu_class_of(cpu_class)?, threads, deferred_limit)?;
                Ok(uform_executor_t { executor })
            })
        })
    }
}

/// Would make an executor over the threads of a borrowed ForkUnion pool, a `fu_pool_t` that outlives it. Answers
/// `UNSUPPORTED` until borrowing is designed.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_executor_on_pool(
    memory_domains: *const i32,
    memory_domains_count: usize,
    cpu_class: uform_cpu_class_t,
    pool: *mut c_void,
    deferred_limit: usize,
    executor_out: *mut *mut uform_executor_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    let _ = (pool, deferred_limit);
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::give(executor_out, "executor_out", || {
                handle::slice(memory_domains, memory_domains_count, "memory_domains")?;
                cpu_class_of(cpu_class)?;
                err!(Unsupported, "on_pool: this version cannot borrow a ForkUnion pool; use for_ram")
            })
        })
    }
}

/// Would open one stream on every named GPU for models in VRAM, or borrow the caller's `streams`, one per device.
/// Answers `UNSUPPORTED`: this version computes in RAM only.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_executor_for_vram(
    devices: *const i32,
    devices_count: usize,
    gpu_class: uform_gpu_class_t,
    memory_domains: *const i32,
    memory_domains_count: usize,
    cpu_class: uform_cpu_class_t,
    streams: *const *mut c_void,
    streams_count: usize,
    scratch_limit: usize,
    deferred_limit: usize,
    executor_out: *mut *mut uform_executor_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    let _ = (scratch_limit, deferred_limit);
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::give(executor_out, "executor_out", || {
                handle::slice(devices, devices_count, "devices")?;
                handle::slice(memory_domains, memory_domains_count, "memory_domains")?;
                handle::slice(streams, streams_count, "streams")?;
                gpu_class_of(gpu_class)?;
                cpu_class_of(cpu_class)?;
                err!(
                    Unsupported,
                    "for_vram: this version has no GPU kernels and computes in RAM only; use for_ram"
                )
            })
        })
    }
}

/// Waits until every call submitted to the executor before has ended, then sets what its threads do whenever they are
/// idle. A failure is one of the executor itself, never one of the calls. On the null executor it does nothing. Callbacks
/// that were registered for those calls are told by another thread, and the last of them may still run, or have yet to
/// start, when it returns; only `uform_executor_free` waits for them.
///
/// Thread safety: one thread at a time per executor; blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_executor_drain(
    executor: *mut uform_executor_t,
    mood: uform_mood_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let mood = numbered(mood, "mood", "0 (parked) or 1 (spinning)", Mood::from_number)?;
            handle::borrow_optional(executor).map_or(Ok(()), |handle| handle.executor.drain(mood))
        })
    }
}

/// Says what the executor is and holds; of the null executor, what it holds for the calling thread.
///
/// Thread safety: one thread at a time per executor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_executor_describe(
    executor: *const uform_executor_t,
    description_out: *mut uform_executor_description_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let description = match handle::borrow_optional(executor) {
                Some(handle) => handle.executor.describe()?,
                None => executors::describe_calling_thread()?,
            };
            options::write(description_out, convert(&description))
        })
    }
}

fn convert(description: &Description) -> uform_executor_description_t {
    let mut memory_domains = [0; UFORM_MEMORY_DOMAINS_CAPACITY];
    for (to, from) in memory_domains.iter_mut().zip(&description.memory_domains) {
        *to = *from;
    }
    uform_executor_description_t {
        size: size_of::<uform_executor_description_t>(),
        residency: UFORM_RESIDENCY_RAM,
        cpu_class: description.class as uform_cpu_class_t,
        gpu_class: 0,
        mood: description.mood as uform_mood_t,
        threads: description.threads,
        deferred_limit: description.deferred_limit,
        deferred_waiting: description.deferred_waiting,
        scratch_bytes: description.scratch_bytes as u64,
        scratch_high_water_bytes: description.scratch_high_water as u64,
        memory_domains_count: description.memory_domains.len(),
        memory_domains,
    }
}

/// Waits until every call submitted before has ended, then gives the scratch back to the system. The next call
/// allocates what it needs anew. The null executor gives back the scratch of the calling thread.
///
/// Thread safety: one thread at a time per executor; blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_executor_trim(
    executor: *mut uform_executor_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || match handle::borrow_optional(executor) {
            Some(handle) => handle.executor.trim(),
            None => {
                executors::trim_calling_thread();
                Ok(())
            }
        })
    }
}

/// Runs every deferred call that was submitted and every callback, joins the threads and ends the handle. Calls that a
/// callback makes on the executor meanwhile are `CANCELLED`. NULL does nothing.
///
/// Thread safety: one thread at a time per executor; blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_executor_free(executor: *mut uform_executor_t) {
    // SAFETY: the handle is used as the C declaration demands of the caller.
    guard_value((), || unsafe { handle::end(executor) });
}

/// The engine's executor behind a handle, `None` for the null executor.
pub(super) unsafe fn executor_of<'call>(executor: *const uform_executor_t) -> Option<&'call Arc<Executor>> {
    // SAFETY: the caller's promise is ours.
    unsafe { handle::borrow_optional(executor) }.map(|handle| &handle.executor)
}

/// Runs `body` on the executor, or on the calling thread where there is none.
pub(super) fn run<R>(
    executor: Option<&Arc<Executor>>,
    body: impl FnOnce(&executors::Context<'_>) -> Result<R>,
) -> Result<R> {
    match executor {
        Some(executor) => executor.run(body),
        None => executors::on_calling_thread(None, body),
    }
}

const _: () =
    assert!(Mood::Parked as i32 == UFORM_MOOD_PARKED && Mood::Spinning as i32 == UFORM_MOOD_SPINNING);
