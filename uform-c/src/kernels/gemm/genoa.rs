//! bf16 products by VDPBF16PS, over the tiles of sixteen lanes.

use std::arch::x86_64::{__m512bh, _mm512_dpbf16_ps};
use std::mem::transmute;

use crate::kernels::simd::{F32x16, I32x16};

use super::dot::instruction;
use super::kinds::{self, Gemm};
use super::skylake::{WEIGHTS_BLOCK, tiles};

/// A word is two bf16. The instruction takes subnormal numbers for zeros.
struct Bf16;

instruction!(
    Bf16,
    F32x16,
    I32x16,
    F32x16,
    "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512cd,avx512bw,avx512dq,avx512vl,avx512bf16",
    |value, column, sum| F32x16::of(_mm512_dpbf16_ps(sum.register(), pairs(value), pairs(column)))
);

/// The words as what they hold.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn pairs(words: I32x16) -> __m512bh {
    // SAFETY: two types of one register, in both of which any bits are a value.
    unsafe { transmute(words.register()) }
}

/// Products of bf16.
pub(in crate::kernels) const fn bf16() -> Gemm {
    kinds::bf16::<F32x16>(tiles::<Bf16>(), WEIGHTS_BLOCK)
}
