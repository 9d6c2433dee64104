//! Tiles for vectors of four in thirty-two registers: up to 6 × 16, twenty-four sums, four columns and one value.
//!
//! Bytes are widened to halves and multiplied by SMLAL, which adds four products at a time to four sums, as many as FMLA
//! does: NEON without its dot products has nothing wider for sums of 32 bits.

use std::arch::aarch64::*;

use crate::kernels::simd::{F32x4, I32x4};

use super::TileFunction;
use super::dot::{Dot, Floats, instruction};
use super::kinds::{self, Gemms, Tiles};
use super::tile::tile;

/// Words of weights that stay in the first-level cache.
pub(super) const WEIGHTS_BLOCK: usize = 6144;

/// Tiles by rows and panels.
struct ByRows<D>(D);

impl<D: Dot> ByRows<D> {
    const ALL: &[&[TileFunction]] = &[
        &[tile::<D, 1, 4>, tile::<D, 1, 8>, tile::<D, 1, 12>, tile::<D, 1, 16>],
        &[tile::<D, 2, 4>, tile::<D, 2, 8>],
        &[tile::<D, 3, 4>],
        &[tile::<D, 4, 4>],
        &[tile::<D, 5, 4>],
        &[tile::<D, 6, 4>],
    ];
}

/// The tiles of one way to multiply words.
pub(super) const fn tiles<D: Dot>() -> Tiles {
    Tiles::of::<D>(ByRows::<D>::ALL)
}

/// The low halves of four columns, then their high ones; a tile does this once for all of its rows. By TBL, as what
/// compilers make of a shuffle is two registers.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
pub(super) unsafe fn low_halves_first(column: I32x4) -> uint8x16_t {
    // SAFETY: the caller's promise.
    unsafe {
        let order = vld1q_u8([0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15].as_ptr());
        vqtbl1q_u8(vreinterpretq_u8_u32(column.register()), order)
    }
}

/// A word is two signed integers of 16 bits, and sums are exact.
struct Halves;

instruction!(Halves, F32x4, I32x4, I32x4, "neon", |value, column, sum| {
    let column = vreinterpretq_s16_u8(low_halves_first(column));
    let value = vreinterpretq_s16_u32(value.register());
    let sum = vreinterpretq_s32_u32(sum.register());
    let sum = vmlal_laneq_s16::<0>(sum, vget_low_s16(column), value);
    I32x4::of(vreinterpretq_u32_s32(vmlal_high_laneq_s16::<1>(sum, column, value)))
});

/// Products over vectors of four lanes, those of narrow types by widening.
pub(in crate::kernels) const fn gemms() -> Gemms {
    kinds::by_widening::<F32x4>(tiles::<Floats<F32x4>>(), tiles::<Halves>(), WEIGHTS_BLOCK)
}
