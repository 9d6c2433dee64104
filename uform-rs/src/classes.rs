//! Enumerations with the numbers of the C interface.

use std::ffi::CStr;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result, call};
use crate::sys;

/// Defines an enumeration whose variants carry the numbers of the C interface.
macro_rules! numbered {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(i32)]
        pub enum $type {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $type {
            /// Every value, by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The value with that number of the C interface.
            pub fn from_number(number: i32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The number in the C interface.
            pub fn number(self) -> i32 {
                self as i32
            }
        }
    };
}

/// Adds a spelling of its own to a numbered enumeration.
macro_rules! spelled {
    ($type:ident, $what:literal { $($variant:ident => $name:literal,)* }) => {
        impl $type {
            /// The spelling, which [`FromStr`](std::str::FromStr) reads.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::Error;

            fn from_str(text: &str) -> $crate::Result<Self> {
                match text {
                    $($name => Ok(Self::$variant),)*
                    _ => Err($crate::Error::invalid(format!(
                        "{}: expected one of {}, found {text:?}",
                        $what,
                        [$($name),*].join(", ")
                    ))),
                }
            }
        }
    };
}

pub(crate) use {numbered, spelled};

numbered! {
    /// A family of CPUs that kernels are tuned for. Executors report the one they dispatch as, and may be pinned to one.
    CPUClass {
        /// Portable code without SIMD: runs everywhere.
        Serial = 1,
        /// x86 since Haswell: AVX2 and FMA on 256 bits.
        IntelHaswell = 2,
        /// x86 efficiency cores since Sierra Forest: AVX-VNNI and its successors, no AVX-512.
        IntelSierra = 3,
        /// x86 since Skylake servers: the foundation of AVX-512.
        IntelSkylake = 4,
        /// x86 since Ice Lake: AVX-512 with VNNI and VPOPCNT.
        IntelIcelake = 5,
        /// x86 since Zen 4: AVX-512 with dot products of bf16.
        AmdGenoa = 6,
        /// x86 since Sapphire Rapids: Genoa's set, FP16 in AVX-512, and AMX tiles of bf16 and i8.
        IntelSapphire = 7,
        /// x86 since Granite Rapids: Sapphire Rapids' set and AMX tiles of f16.
        IntelGranite = 8,
        /// x86 since Diamond Rapids: Granite Rapids' set and the FP8 conversions of AVX10.2.
        IntelDiamond = 9,
        /// Arm with plain NEON: Graviton2 (Neoverse N1), and phones older than Armv8.6.
        AwsG2 = 10,
        /// Arm since v8.6: NEON with dot products and arithmetic of bf16 and f16, as in Apple M2, Cortex-A710 and X2.
        AppleM2 = 11,
        /// Arm as in Apple M4: the set of v8.6 and SME's outer products.
        AppleM4 = 12,
        /// Arm v9.2 as in Graviton5 (Neoverse V3).
        AwsG5 = 13,
        /// Arm v9.2 as in NVIDIA Vera, with dot products of FP8.
        NvidiaVera = 14,
        /// RISC-V with the vectors of RVA23, as in Alibaba's C930 (XuanTie).
        AlibabaC930 = 15,
        /// WebAssembly as every engine has it: 32-bit addresses, one thread, SIMD of 128 bits.
        Wasm32V128 = 16,
        /// WebAssembly with relaxed SIMD, shared memory for threads, and 64-bit addresses.
        Wasm64Extended = 17,
        /// The only class of a build for one machine: whatever its compiler flags allow.
        Monoversioned = 18,
    }
}

numbered! {
    /// A family of GPUs that kernels are tuned for: for devices what [`CPUClass`] is for CPUs.
    GPUClass {
        /// NVIDIA Ampere (A100, A10, RTX 30), and any NVIDIA GPU that has no class of its own.
        NvidiaAmpere = 1,
        /// NVIDIA Ada (L4, L40S, RTX 40), which converts FP8.
        NvidiaAda = 2,
        /// NVIDIA Hopper (H100, H200).
        NvidiaHopper = 3,
        /// NVIDIA Blackwell in data centers (B200, B300, GB300).
        NvidiaBlackwell = 4,
        /// NVIDIA Blackwell on desks (RTX 50, RTX PRO 6000, DGX Spark).
        NvidiaBlackwellRtx = 5,
        /// NVIDIA Rubin, the GPU of the Vera-Rubin platform.
        NvidiaRubin = 6,
        /// AMD CDNA3 (MI300X, MI325X): gfx942, FP8 in the FNUZ form.
        AmdCdna3 = 7,
        /// AMD CDNA4 (MI350X, MI355X): gfx950, FP8 in the OCP form.
        AmdCdna4 = 8,
        /// AMD CDNA5 (MI400): gfx1250.
        AmdCdna5 = 9,
        /// Apple's seventh GPU family (M1, M2), and any Apple GPU that has no class of its own.
        AppleMetal7 = 10,
        /// Apple's ninth GPU family (M3, M4).
        AppleMetal9 = 11,
        /// Apple's tenth GPU family (M5).
        AppleMetal10 = 12,
    }
}

numbered! {
    /// The maker whose runtime drives a GPU.
    GPUVendor {
        /// NVIDIA, by the CUDA driver.
        Nvidia = 1,
        /// AMD, by HIP.
        Amd = 2,
        /// Apple, by Metal.
        Apple = 3,
    }
}

numbered! {
    /// What the threads of an executor do between calls. Inside a call they spin between its layers in either mood.
    #[derive(Default)]
    Mood {
        /// They sleep in the kernel and use no CPU. Executors start like this.
        #[default]
        Parked = 0,
        /// They keep spinning, so that the next call starts at once.
        Spinning = 1,
    }
}
spelled!(Mood, "mood" { Parked => "parked", Spinning => "spinning", });

numbered! {
    /// Where weights lie and outputs land.
    Residency {
        /// Host memory.
        Ram = 1,
        /// Device memory.
        Vram = 2,
    }
}
spelled!(Residency, "residency" { Ram => "ram", Vram => "vram", });

numbered! {
    /// The type of a matrix's elements.
    #[derive(Default)]
    Dtype {
        /// IEEE 754 binary32.
        #[default]
        F32 = 1,
        /// IEEE 754 binary16.
        F16 = 2,
        /// The upper half of a binary32, rounded to nearest even.
        Bf16 = 3,
        /// Signed bytes: the value times a scale, rounded to nearest even and saturated.
        I8 = 4,
        /// Unsigned bytes: as signed bytes, plus 128.
        U8 = 5,
        /// Bits, set where the value is positive: eight to a byte, the first dimension in the most significant bit.
        B1 = 6,
    }
}
spelled!(Dtype, "dtype" {
    F32 => "f32", F16 => "f16", Bf16 => "bf16", I8 => "i8", U8 => "u8", B1 => "b1",
});

impl Dtype {
    /// Bytes of a row of so many elements, or `None` when no memory is that large.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        match self {
            Self::F32 => columns.checked_mul(4),
            Self::F16 | Self::Bf16 => columns.checked_mul(2),
            Self::I8 | Self::U8 => Some(columns),
            Self::B1 => Some(columns.div_ceil(8)),
        }
    }
}

/// A constant string of the C interface; empty for NULL.
///
/// # Safety
/// `text` is NULL or a zero-terminated string that is never freed.
pub(crate) unsafe fn constant(text: *const std::ffi::c_char) -> &'static str {
    if text.is_null() {
        return "";
    }
    // SAFETY: not NULL, so a constant string by the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
}

impl fmt::Display for CPUClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the names of classes are constant strings.
        formatter.pad(unsafe { constant(sys::uform_cpu_class_name(self.number())) })
    }
}

impl FromStr for CPUClass {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut number = 0;
        // SAFETY: text, number and record are live for the call.
        call(|error| unsafe {
            sys::uform_cpu_class_parse(text.as_ptr().cast(), text.len(), &mut number, error)
        })?;
        Self::from_number(number).ok_or_else(|| unknown_class(text, number))
    }
}

impl fmt::Display for GPUClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the names of classes are constant strings.
        formatter.pad(unsafe { constant(sys::uform_gpu_class_name(self.number())) })
    }
}

impl FromStr for GPUClass {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut number = 0;
        // SAFETY: text, number and record are live for the call.
        call(|error| unsafe {
            sys::uform_gpu_class_parse(text.as_ptr().cast(), text.len(), &mut number, error)
        })?;
        Self::from_number(number).ok_or_else(|| unknown_class(text, number))
    }
}

fn unknown_class(text: &str, number: i32) -> Error {
    Error::new(
        crate::Status::Unsupported,
        format!("{text}: class {number} is newer than this version of the crate"),
    )
}
