//! i8 products by the 256-bit VPDPBUSD of AVX-VNNI, over the tiles of eight lanes.

use std::arch::x86_64::_mm256_dpbusd_avx_epi32;

use crate::kernels::simd::{F32x8, I32x8};

use super::dot::instruction;
use super::haswell::{WEIGHTS_BLOCK, tiles};
use super::kinds::{self, Gemm};

/// A word is four bytes, unsigned ones of the input and signed ones of the weights.
struct Bytes;

instruction!(
    Bytes,
    F32x8,
    I32x8,
    I32x8,
    "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avxvnni",
    |value, column, sum| I32x8::of(_mm256_dpbusd_avx_epi32(
        sum.register(),
        value.register(),
        column.register()
    ))
);

/// Products of bytes.
pub(in crate::kernels) const fn i8() -> Gemm {
    kinds::i8::<F32x8>(tiles::<Bytes>(), WEIGHTS_BLOCK)
}
