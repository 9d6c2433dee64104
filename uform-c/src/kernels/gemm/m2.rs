//! bf16 products by BFDOT and BFMMLA, i8 products by USDOT and USMMLA, f16 products by FMLAL.
//!
//! BFDOT takes subnormal numbers for zeros and rounds the sum of its two products, and the sum of that and what was there,
//! to odd: where bits are lost the last one is set, whatever the lost ones are. An error is thus up to one unit in the last
//! place, not half of one, but as often up as down. BFMMLA does the same twice, one pair of products after the other. All
//! processors do so as long as FPCR is in its default state, those with other bf16 arithmetic (FEAT_EBF16) too: Arm
//! Architecture Reference Manual for A-profile architecture, BFDotAdd and BFMatMulAddH.
//!
//! FMLAL multiplies exactly and rounds the sum to f32 once, as FMLA does with widened factors, so that bits are those of the
//! classes that widen. It has no more products than FMLA: what it saves is the widening, and half the memory of the factors.
//!
//! All are in assembly, as the intrinsics are not stable in Rust 1.95.

use std::arch::aarch64::{float32x4_t, uint32x4_t};
use std::arch::asm;

use crate::kernels::simd::{F32x4, I32x4};

use super::dot::instruction;
use super::g2::{WEIGHTS_BLOCK, low_halves_first, tiles};
use super::kinds::{self, Gemm};
use super::square::{self, square};

/// A word is two bf16.
struct Bf16;

instruction!(Bf16, F32x4, I32x4, F32x4, "neon,bf16", |value, column, sum| {
    let mut sum: float32x4_t = sum.register();
    asm!(
        "bfdot {sum:v}.4s, {value:v}.8h, {column:v}.8h",
        sum = inout(vreg) sum,
        value = in(vreg) value.register(),
        column = in(vreg) column.register(),
        options(pure, nomem, nostack, preserves_flags)
    );
    F32x4::of(sum)
});

square!(Bf16, "bfmmla", "8h");

/// A word is two f16.
struct F16;

instruction!(F16, F32x4, I32x4, F32x4, "neon,fp16,fhm", |value, column, sum| {
    let mut sum: float32x4_t = sum.register();
    asm!(
        "fmlal {sum:v}.4s, {column:v}.4h, {value:v}.h[0]",
        "fmlal2 {sum:v}.4s, {column:v}.4h, {value:v}.h[1]",
        sum = inout(vreg) sum,
        value = in(vreg_low16) value.register(),
        column = in(vreg) low_halves_first(column),
        options(pure, nomem, nostack, preserves_flags)
    );
    F32x4::of(sum)
});

/// A word is four bytes, unsigned ones of the input and signed ones of the weights.
struct Bytes;

instruction!(Bytes, F32x4, I32x4, I32x4, "neon,i8mm", |value, column, sum| {
    let mut sum: uint32x4_t = sum.register();
    asm!(
        "usdot {sum:v}.4s, {value:v}.16b, {column:v}.16b",
        sum = inout(vreg) sum,
        value = in(vreg) value.register(),
        column = in(vreg) column.register(),
        options(pure, nomem, nostack, preserves_flags)
    );
    I32x4::of(sum)
});

square!(Bytes, "usmmla", "16b");

/// Products of bf16.
pub(in crate::kernels) const fn bf16() -> Gemm {
    kinds::bf16::<F32x4>(square::tiles::<Bf16>(), WEIGHTS_BLOCK)
}

/// Products of f16.
pub(in crate::kernels) const fn f16() -> Gemm {
    kinds::f16::<F32x4>(tiles::<F16>(), WEIGHTS_BLOCK)
}

/// Products of bytes.
pub(in crate::kernels) const fn i8() -> Gemm {
    kinds::i8::<F32x4>(square::tiles::<Bytes>(), WEIGHTS_BLOCK)
}
