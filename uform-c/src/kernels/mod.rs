//! Layer 2: pure functions on views: no allocation, no threads, no globals. A family is a folder; its `mod.rs` states the
//! contract and the numerical notes. Kernels are written once over [`simd::Vector`] and compiled per instruction set.

use std::sync::OnceLock;

use crate::base::Result;
use crate::system::cpu::{self, CpuClass};

pub mod activation;
pub mod attention;
pub mod gemm;
pub mod norm;
pub mod pool;
pub mod simd;
pub mod softmax;

use gemm::Gemm;
use simd::{Portable, Vector};

/// The kernels of one CPU class. A value exists only where its instructions do, so that calling it is safe. Any thread.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// The class that these serve.
    pub class: CpuClass,
    gemm: Gemm,
    activate: activation::ActivateFunction,
    softmax_block: softmax::BlockFunction,
    divide: softmax::DivideFunction,
    layer_norm: norm::LayerNormFunction,
    normalize: norm::NormalizeFunction,
    pool: pool::PoolFunction,
}

/// The kernels of `class`, its own or those of the nearest ancestor that has some. `Unsupported` when this build or
/// machine cannot run them.
pub fn for_class(class: CpuClass) -> Result<&'static Kernels> {
    /// One per number of a class.
    static TABLE: [OnceLock<Kernels>; 32] = [const { OnceLock::new() }; 32];

    let class = cpu::demand(class)?;
    // SAFETY: the machine was just found to run this class, and so its ancestors.
    Ok(TABLE[class as usize].get_or_init(|| Kernels { class, ..unsafe { nearest(class) } }))
}

/// The kernels of the nearest class from `class` up that has some.
///
/// # Safety
/// The machine runs `class`.
unsafe fn nearest(mut class: CpuClass) -> Kernels {
    loop {
        // SAFETY: a machine that runs a class runs its ancestors.
        match (unsafe { own(class) }, class.parent()) {
            (Some(kernels), _) => return kernels,
            (None, Some(parent)) => class = parent,
            (None, None) => unreachable!("the root of the classes has kernels"),
        }
    }
}

/// The kernels that were made for this very class, if there are some.
///
/// # Safety
/// The machine runs `class`.
unsafe fn own(class: CpuClass) -> Option<Kernels> {
    // SAFETY: the machine has the instructions of the class, so those of its vector.
    unsafe {
        match class {
            CpuClass::Serial => {
                Some(Kernels::over::<Portable<4, false>>(class, gemm::serial::gemm::<Portable<4, false>>()))
            }
            #[cfg(target_arch = "x86_64")]
            CpuClass::IntelHaswell => {
                Some(Kernels::over::<simd::F32x8>(class, gemm::haswell::gemm::<simd::F32x8>()))
            }
            #[cfg(target_arch = "x86_64")]
            CpuClass::IntelSkylake => Some(Kernels::skylake::<simd::F32x16>()),
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
        unsafe { Self::over::<V>(CpuClass::IntelSkylake, gemm::skylake::gemm::<V>()) }
    }

    /// All families over one vector.
    ///
    /// # Safety
    /// The machine has the instructions of `V`, which are those of `gemm`.
    unsafe fn over<V: Vector>(class: CpuClass, gemm: Gemm) -> Self {
        Self {
            class,
            gemm,
            activate: activation::activate::<V>,
            softmax_block: softmax::block::<V>,
            divide: softmax::divide::<V>,
            layer_norm: norm::layer_norm::<V>,
            normalize: norm::normalize::<V>,
            pool: pool::pool::<V>,
        }
    }
}
