//! What was compiled, what this machine offers, and the names of classes.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Arc, OnceLock};

use crate::base::{Result, err, log};
use crate::system::cpu::{self, CpuClass};
use crate::system::gpu::GpuClass;

use super::error::{uform_error_t, uform_status_t};
use super::guard::{guard, guard_value};
use super::handle::{self, Crossing};
use super::values::uform_text_t;

/// A family of CPUs that kernels are tuned for. Zero, where it is taken, derives the class of this machine.
pub type uform_cpu_class_t = i32;

/// Portable code without SIMD, on every machine.
pub const UFORM_CPU_CLASS_SERIAL: uform_cpu_class_t = 1;
/// x86 with AVX2 and FMA.
pub const UFORM_CPU_CLASS_INTEL_HASWELL: uform_cpu_class_t = 2;
/// x86 with AVX-VNNI, without AVX-512.
pub const UFORM_CPU_CLASS_INTEL_SIERRA: uform_cpu_class_t = 3;
/// x86 with the first AVX-512 instructions of servers.
pub const UFORM_CPU_CLASS_INTEL_SKYLAKE: uform_cpu_class_t = 4;
/// x86 with AVX-512 VNNI and VPOPCNT.
pub const UFORM_CPU_CLASS_INTEL_ICELAKE: uform_cpu_class_t = 5;
/// x86 with AVX-512 BF16: Zen 4 and later.
pub const UFORM_CPU_CLASS_AMD_GENOA: uform_cpu_class_t = 6;
/// x86 with AVX-512 FP16 and the BF16 and INT8 tiles of AMX.
pub const UFORM_CPU_CLASS_INTEL_SAPPHIRE: uform_cpu_class_t = 7;
/// x86 with the FP16 tiles of AMX.
pub const UFORM_CPU_CLASS_INTEL_GRANITE: uform_cpu_class_t = 8;
/// x86 with AVX10.2.
pub const UFORM_CPU_CLASS_INTEL_DIAMOND: uform_cpu_class_t = 9;
/// Arm with NEON alone.
pub const UFORM_CPU_CLASS_AWS_G2: uform_cpu_class_t = 10;
/// Arm of version 8.6: dot products, BF16 and I8MM.
pub const UFORM_CPU_CLASS_APPLE_M2: uform_cpu_class_t = 11;
/// Arm of version 8.6 with SME.
pub const UFORM_CPU_CLASS_APPLE_M4: uform_cpu_class_t = 12;
/// Arm of version 9.2 with SVE2.
pub const UFORM_CPU_CLASS_AWS_G5: uform_cpu_class_t = 13;
/// Arm of version 9.2 with FP8 dot products.
pub const UFORM_CPU_CLASS_NVIDIA_VERA: uform_cpu_class_t = 14;
/// RISC-V with the vectors of RVA23.
pub const UFORM_CPU_CLASS_ALIBABA_C930: uform_cpu_class_t = 15;
/// WebAssembly of 32 bits with fixed-width SIMD, in one thread.
pub const UFORM_CPU_CLASS_WASM32_V128: uform_cpu_class_t = 16;
/// WebAssembly of 64 bits with relaxed SIMD and threads.
pub const UFORM_CPU_CLASS_WASM64_EXTENDED: uform_cpu_class_t = 17;
/// The one class of a build for a single machine.
pub const UFORM_CPU_CLASS_MONOVERSIONED: uform_cpu_class_t = 18;

/// A family of GPUs that kernels are tuned for. Zero, where it is taken, derives the devices' own.
pub type uform_gpu_class_t = i32;

/// NVIDIA from compute capability 8.0 on that has no class of its own.
pub const UFORM_GPU_CLASS_NVIDIA_AMPERE: uform_gpu_class_t = 1;
/// NVIDIA Ada.
pub const UFORM_GPU_CLASS_NVIDIA_ADA: uform_gpu_class_t = 2;
/// NVIDIA Hopper.
pub const UFORM_GPU_CLASS_NVIDIA_HOPPER: uform_gpu_class_t = 3;
/// NVIDIA Blackwell of data centres.
pub const UFORM_GPU_CLASS_NVIDIA_BLACKWELL: uform_gpu_class_t = 4;
/// NVIDIA Blackwell of desktops.
pub const UFORM_GPU_CLASS_NVIDIA_BLACKWELL_RTX: uform_gpu_class_t = 5;
/// NVIDIA Rubin.
pub const UFORM_GPU_CLASS_NVIDIA_RUBIN: uform_gpu_class_t = 6;
/// AMD CDNA3.
pub const UFORM_GPU_CLASS_AMD_CDNA3: uform_gpu_class_t = 7;
/// AMD CDNA4.
pub const UFORM_GPU_CLASS_AMD_CDNA4: uform_gpu_class_t = 8;
/// AMD CDNA5.
pub const UFORM_GPU_CLASS_AMD_CDNA5: uform_gpu_class_t = 9;
/// Apple GPUs of family 7, and those without a class of their own.
pub const UFORM_GPU_CLASS_APPLE_METAL7: uform_gpu_class_t = 10;
/// Apple GPUs of family 9.
pub const UFORM_GPU_CLASS_APPLE_METAL9: uform_gpu_class_t = 11;
/// Apple GPUs of family 10.
pub const UFORM_GPU_CLASS_APPLE_METAL10: uform_gpu_class_t = 12;

/// The class of a build for one kind of machine, which is in it on machines that lack its instructions, too.
const ONLY_CLASS: &CStr = if cfg!(feature = "monoversioned") { c"monoversioned" } else { c"" };

/// A constant string with a terminating zero, made once from a name that is known at compile time.
fn constant(cell: &'static OnceLock<CString>, text: &str) -> *const c_char {
    guard_value(std::ptr::null(), || {
        cell.get_or_init(|| CString::new(text.replace('\0', "")).unwrap_or_default()).as_ptr()
    })
}

/// The version of this library, like "4.0.0", as a constant string.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn uform_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero inside"),
        };
    VERSION.as_ptr()
}

/// The names of the classes that this build has kernels for, separated by commas: CPU classes by number, then GPU
/// classes by number. A constant string.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn uform_capabilities_compiled() -> *const c_char {
    static TEXT: OnceLock<CString> = OnceLock::new();
    guard_value(ONLY_CLASS.as_ptr(), || constant(&TEXT, cpu::capabilities_compiled()))
}

/// The names of the classes that this machine offers to this build, in the form of `uform_capabilities_compiled`.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn uform_capabilities_available() -> *const c_char {
    static TEXT: OnceLock<CString> = OnceLock::new();
    guard_value(c"".as_ptr(), || constant(&TEXT, cpu::capabilities_available()))
}

/// The name of a CPU class, like "intel-haswell", as a constant string; NULL for a number that is no class.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn uform_cpu_class_name(cpu_class: uform_cpu_class_t) -> *const c_char {
    static NAMES: [OnceLock<CString>; 32] = [const { OnceLock::new() }; 32];
    guard_value(std::ptr::null(), || match cpu_class_of(cpu_class) {
        Ok(Some(class)) => constant(&NAMES[cpu_class as usize], class.name()),
        _ => std::ptr::null(),
    })
}

/// The CPU class of that name. `INVALID_ARGUMENT` names those there are.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_cpu_class_parse(
    text: *const c_char,
    length: usize,
    cpu_class_out: *mut uform_cpu_class_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let name = handle::utf8(&uform_text_t { data: text, length }, "text")?;
            handle::write(cpu_class_out, "cpu_class_out", CpuClass::parse(name)? as uform_cpu_class_t)
        })
    }
}

/// The class that executors of this process dispatch as unless one is pinned: the widest that this machine can run,
/// or what the environment variable `UFORM_CPU_CLASS` names. Zero when that names none that can run here.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn uform_cpu_class_detected() -> uform_cpu_class_t {
    guard_value(0, || cpu::resolve(None).map_or(0, |class| class as uform_cpu_class_t))
}

/// The name of a GPU class, like "nvidia-hopper", as a constant string; NULL for a number that is no class.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn uform_gpu_class_name(gpu_class: uform_gpu_class_t) -> *const c_char {
    static NAMES: [OnceLock<CString>; 32] = [const { OnceLock::new() }; 32];
    guard_value(std::ptr::null(), || match gpu_class_of(gpu_class) {
        Ok(Some(class)) => constant(&NAMES[gpu_class as usize], class.name()),
        _ => std::ptr::null(),
    })
}

/// The GPU class of that name. `INVALID_ARGUMENT` names those there are.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_gpu_class_parse(
    text: *const c_char,
    length: usize,
    gpu_class_out: *mut uform_gpu_class_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let name = handle::utf8(&uform_text_t { data: text, length }, "text")?;
            handle::write(gpu_class_out, "gpu_class_out", GpuClass::parse(name)? as uform_gpu_class_t)
        })
    }
}

/// A CPU class given by number, `None` for zero.
pub(super) fn cpu_class_of(number: uform_cpu_class_t) -> Result<Option<CpuClass>> {
    match (number, u32::try_from(number).ok().and_then(CpuClass::from_number)) {
        (0, _) => Ok(None),
        (_, Some(class)) => Ok(Some(class)),
        _ => err!(InvalidArgument, "cpu_class: expected 0 to 18, found {number}"),
    }
}

/// A GPU class given by number, `None` for zero.
pub(super) fn gpu_class_of(number: uform_gpu_class_t) -> Result<Option<GpuClass>> {
    match (number, u32::try_from(number).ok().and_then(GpuClass::from_number)) {
        (0, _) => Ok(None),
        (_, Some(class)) => Ok(Some(class)),
        _ => err!(InvalidArgument, "gpu_class: expected 0 to 12, found {number}"),
    }
}

/// Receives one warning: UTF-8 of `length` bytes, readable during the call. It must not unwind.
pub type uform_log_callback_t =
    Option<unsafe extern "C" fn(context: *mut c_void, message: *const c_char, length: usize)>;

/// Sends the warnings of this process to `callback` from now on, or nowhere when it is NULL. The library writes
/// nothing to the standard streams. The callback may run on any thread, also on several at once, and a call that began
/// before a change may still reach the callback of before.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_log_callback(
    callback: uform_log_callback_t,
    context: *mut c_void,
    error: *mut uform_error_t,
) -> uform_status_t {
    let context = Crossing(context);
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            log::set_sink(callback.map(|callback| {
                let sink = move |message: &str| {
                    // The caller registered the function for this very use, and the text outlives the call.
                    callback(context.get(), message.as_ptr().cast(), message.len())
                };
                Arc::new(sink) as Arc<dyn Fn(&str) + Send + Sync>
            }));
            Ok(())
        })
    }
}
