//! Layer 2: pure functions on views: no allocation, no threads, no globals. A family is a folder; its `mod.rs` states the
//! contract and the numerical notes. Kernels are written once over [`simd::Vector`] and compiled per instruction set.

use crate::base::Result;
use crate::system::cpu::{self, CpuClass};

pub mod activation;
pub mod attention;
pub mod gemm;
pub mod norm;
pub mod pool;
pub mod rotary;
pub mod simd;
pub mod softmax;

use gemm::Gemms;
use simd::{Portable, Vector};

/// The kernels of one CPU class. A value exists only where its instructions do, so that calling it is safe. Any thread.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// The class that these serve.
    pub class: CpuClass,
    gemms: Gemms,
    activate: activation::ActivateFunction,
    pack_pairs: attention::PackPairsFunction,
    softmax_block: softmax::BlockFunction,
    divide: softmax::DivideFunction,
    layer_norm: norm::LayerNormFunction,
    rms_norm: norm::RmsNormFunction,
    normalize: norm::NormalizeFunction,
    rotate: rotary::RotateFunction,
    pool: pool::PoolFunction,
}

/// The kernels of `class`, its own or those of the nearest ancestor that has some. `Unsupported` when this build or
/// machine cannot run them.
pub fn for_class(class: CpuClass) -> Result<&'static Kernels> {
    cpu::demand(class).map(of_runnable)
}

/// The kernels of a class that this machine runs.
#[cfg(not(feature = "monoversioned"))]
fn of_runnable(class: CpuClass) -> &'static Kernels {
    /// One per number of a class.
    static TABLE: [std::sync::OnceLock<Kernels>; 32] = [const { std::sync::OnceLock::new() }; 32];

    // SAFETY: the machine was found to run this class, and so its ancestors.
    TABLE[class as usize].get_or_init(|| Kernels { class, ..unsafe { nearest(class) } })
}

/// The kernels of the one class that there is. Made by the compiler, so that it drops all others.
#[cfg(feature = "monoversioned")]
fn of_runnable(class: CpuClass) -> &'static Kernels {
    // SAFETY: a class is asked for when the machine was found to have all that this build may use.
    static ONLY: Kernels =
        Kernels { class: CpuClass::Monoversioned, ..unsafe { nearest(CpuClass::Monoversioned) } };

    debug_assert!(class == ONLY.class);
    &ONLY
}

/// The kernels of the nearest class from `class` up that has some.
///
/// # Safety
/// The machine runs `class`.
const unsafe fn nearest(mut class: CpuClass) -> Kernels {
    loop {
        // SAFETY: a machine that runs a class runs its ancestors.
        match (unsafe { own(class) }, class.parent()) {
            (Some(kernels), _) => return kernels,
            (None, Some(parent)) => class = parent,
            (None, None) => panic!("the root of the classes has kernels"),
        }
    }
}

/// The kernels that were made for this very class, if there are some.
///
/// # Safety
/// The machine runs `class`.
const unsafe fn own(class: CpuClass) -> Option<Kernels> {
    // SAFETY: the machine has the instructions of the class, so those of its vector.
    unsafe {
        match class {
            CpuClass::Serial => {
                Some(Kernels::over::<Portable<4, false>>(class, gemm::serial::gemms::<Portable<4, false>>()))
            }
            #[cfg(target_arch = "x86_64")]
            CpuClass::IntelHaswell => {
                Some(Kernels::over::<simd::F32x8>(class, gemm::haswell::gemms::<simd::F32x8>()))
            }
            #[cfg(target_arch = "x86_64")]
            CpuClass::IntelSierra => Some(Kernels::over_sierra()),
            #[cfg(target_arch = "x86_64")]
            CpuClass::IntelSkylake
            | CpuClass::IntelIcelake
            | CpuClass::AmdGenoa
            | CpuClass::IntelSapphire
            | CpuClass::IntelGranite => {
                let skylake = gemm::skylake::gemms::<simd::F32x16>();
                let icelake = Gemms { i8: gemm::icelake::i8(), ..skylake };
                let genoa = icelake.with_bf16(gemm::genoa::bf16());
                let gemms = match class {
                    CpuClass::IntelSkylake => skylake,
                    CpuClass::IntelIcelake => icelake,
                    CpuClass::AmdGenoa => genoa,
                    CpuClass::IntelSapphire => {
                        gemm::sapphire::gemms::<simd::F32x16, gemm::amx::Instructions>(genoa)
                    }
                    _ => gemm::granite::gemms::<simd::F32x16, gemm::amx::Instructions>(genoa),
                };
                Some(Kernels::over::<simd::F32x16>(class, gemms))
            }
            #[cfg(target_arch = "aarch64")]
            CpuClass::AwsG2 => Some(Kernels::over::<simd::F32x4>(class, gemm::g2::gemms())),
            #[cfg(target_arch = "aarch64")]
            CpuClass::AppleM2 => {
                let (f16, i8) = (gemm::m2::f16(), gemm::m2::i8());
                let gemms = Gemms { f16, i8, ..gemm::g2::gemms() }.with_bf16(gemm::m2::bf16());
                Some(Kernels::over::<simd::F32x4>(class, gemms))
            }
            #[cfg(target_arch = "aarch64")]
            CpuClass::AppleM4 => Some(Kernels::over::<simd::F32x4>(class, gemm::sme::gemms())),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            CpuClass::Wasm32V128 => Some(Kernels::over::<simd::F32x4>(class, gemm::wasm32_v128::gemms())),
            _ => None,
        }
    }
}

impl Kernels {
    /// The kernels of the class `IntelSkylake` over any vector of sixteen lanes: over [`Portable`] they are a model of
    /// that class which runs everywhere, slowly.
    ///
    /// # Safety
    /// The machine has the instructions of `V`.
    pub unsafe fn skylake<V: Vector>() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::over::<V>(CpuClass::IntelSkylake, gemm::skylake::gemms::<V>()) }
    }

    /// The kernels of the class `IntelGranite`, and so those of `IntelSapphire`, over any vector of sixteen lanes and anything
    /// that does what AMX does. Attention is in f32.
    ///
    /// # Safety
    /// The machine has the instructions of `V` and `A`.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn granite<V: Vector, A: gemm::Amx>() -> Self {
        let gemms = gemm::granite::gemms::<V, A>(gemm::skylake::gemms::<V>());
        // SAFETY: the caller's promise.
        unsafe { Self::over::<V>(CpuClass::IntelGranite, gemms) }
    }

    /// The kernels of the class `IntelSierra` on any machine that has the instructions which they use: those of
    /// `IntelHaswell` and AVX-VNNI. The class itself asks for more, as its kernels may come to use it.
    pub fn sierra() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if for_class(CpuClass::IntelHaswell).is_ok() && std::arch::is_x86_feature_detected!("avxvnni") {
            // SAFETY: both were just found.
            return Some(unsafe { Self::over_sierra() });
        }
        None
    }

    /// The kernels of the class `IntelSierra`.
    ///
    /// # Safety
    /// The machine has the instructions of `IntelHaswell` and AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    const unsafe fn over_sierra() -> Self {
        let gemms = Gemms { i8: gemm::sierra::i8(), ..gemm::haswell::gemms::<simd::F32x8>() };
        // SAFETY: the caller's promise.
        unsafe { Self::over::<simd::F32x8>(CpuClass::IntelSierra, gemms) }
    }

    /// All families over one vector.
    ///
    /// # Safety
    /// The machine has the instructions of `V`, which suffice for `gemms`.
    const unsafe fn over<V: Vector>(class: CpuClass, gemms: Gemms) -> Self {
        Self {
            class,
            gemms,
            activate: activation::activate::<V>,
            pack_pairs: attention::pack_pairs::<V>,
            softmax_block: softmax::block::<V>,
            divide: softmax::divide::<V>,
            layer_norm: norm::layer_norm::<V>,
            rms_norm: norm::rms_norm::<V>,
            normalize: norm::normalize::<V>,
            rotate: rotary::rotate::<V>,
            pool: pool::pool::<V>,
        }
    }
}
