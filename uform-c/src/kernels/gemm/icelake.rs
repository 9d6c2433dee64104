//! i8 products by VPDPBUSD, over the tiles of sixteen lanes.

use std::arch::x86_64::_mm512_dpbusd_epi32;

use crate::kernels::simd::{F32x16, I32x16};

use super::dot::instruction;
use super::kinds::{self, Gemm};
use super::skylake::{WEIGHTS_BLOCK, tiles};

/// A word is four bytes, unsigned ones of the input and signed ones of the weights.
struct Bytes;

instruction!(
    Bytes,
    F32x16,
    I32x16,
    I32x16,
    "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512cd,avx512bw,avx512dq,avx512vl,avx512vnni",
    |value, column, sum| I32x16::of(_mm512_dpbusd_epi32(sum.register(), value.register(), column.register()))
);

/// Products of bytes.
pub(in crate::kernels) const fn i8() -> Gemm {
    kinds::i8::<F32x16>(tiles::<Bytes>(), WEIGHTS_BLOCK)
}
