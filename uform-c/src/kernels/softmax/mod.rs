//! Softmax of rows, whole or in blocks of columns with a running maximum and sum.
//!
//! Contract: scores are multiplied by a positive scale, and weights are e to the scaled score less the greatest scaled
//! score so far. Blocks follow Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018): when a later
//! block has a greater maximum, what was summed before is scaled down.
//!
//! Numerical notes: exponentials are powers of two, log₂e being part of the scale; weights below 2⁻¹²⁶ of the greatest are
//! zero. Sums are in f32, by lane and then across lanes, in an order that the class and the count of columns decide
//! alone. A NaN or positive infinity makes its whole row NaN, as in PyTorch.
//!
//! Why not a table of exponentials: the polynomial keeps the multipliers busy that would wait for the table anyway.

use std::ptr::null_mut;

use crate::base::MatrixMut;

use super::Kernels;
use super::simd::{Kernel, Vector, Words, math, positive_to_bf16};

/// A block of columns of some rows of scores, and what is known of each row from the blocks before.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Scores that become weights, unless there is another place for those.
    pub(super) scores: *mut f32,
    pub(super) stride: usize,
    /// Where the weights go in bf16, up to the next multiple of 16 columns with zeros behind the last; or null.
    pub(super) rounded: *mut u16,
    pub(super) rounded_stride: usize,
    /// The scale of the scores times log₂e.
    pub(super) scale: f32,
    /// Whether no block came before, so that nothing is known yet.
    pub(super) first: bool,
    /// Per row: the greatest scaled score so far.
    pub(super) greatest: *mut f32,
    /// Per row: the sum of the weights so far.
    pub(super) sums: *mut f32,
    /// Per row `mixed_columns` floats that were summed with the weights so far and are scaled down like them.
    pub(super) mixed: *mut f32,
    pub(super) mixed_columns: usize,
    pub(super) mixed_stride: usize,
}

/// Does what its argument says. Callers promise that the machine has the instructions and that the pointers are good.
pub(super) type BlockFunction = unsafe fn(&Block);

/// [`BlockFunction`] for an instruction set.
///
/// # Safety
/// See [`BlockFunction`].
pub(super) unsafe fn block<V: Vector>(block: &Block) {
    // SAFETY: the caller's promise.
    unsafe { V::run(BlockKernel(*block)) }
}

struct BlockKernel(Block);

/// The greatest of `count` scores.
///
/// # Safety
/// The machine has the instructions, and `count` scores can be read.
#[inline(always)]
unsafe fn greatest<V: Vector>(scores: *const f32, count: usize) -> f32 {
    // SAFETY: the caller's promise; `index` stays below `count`.
    unsafe {
        let lowest = V::splat(f32::NEG_INFINITY);
        let mut most = [lowest; 4];
        let mut index = 0;
        while index + 4 * V::LANES <= count {
            for (part, most) in most.iter_mut().enumerate() {
                *most = V::load(scores.add(index + part * V::LANES)).max(*most);
            }
            index += 4 * V::LANES;
        }
        while index < count {
            most[0] = V::load_up_to(scores.add(index), count - index, lowest).max(most[0]);
            index += V::LANES;
        }
        most[0].max(most[1]).max(most[2].max(most[3])).greatest()
    }
}

/// Turns `count` scores into weights and adds them up.
///
/// # Safety
/// The machine has the instructions, and `count` scores can be read and written.
#[inline(always)]
unsafe fn weigh<V: Vector>(scores: *mut f32, count: usize, scale: f32, greatest: f32) -> f32 {
    // SAFETY: the caller's promise; `index` stays below `count`.
    unsafe {
        let (scale, offset, lowest) = (V::splat(scale), V::splat(-greatest), V::splat(f32::NEG_INFINITY));
        let mut sum = V::splat(0.0);
        let mut index = 0;
        while index < count {
            let score = V::load_up_to(scores.add(index), count - index, lowest);
            let weight = math::exp2(score.mul_add(scale, offset));
            weight.store_up_to(scores.add(index), count - index);
            sum = sum + weight;
            index += V::LANES;
        }
        sum.sum()
    }
}

/// Turns `count` scores into weights in bf16 and adds those up before they are rounded, as their errors then cancel.
///
/// # Safety
/// The machine has the instructions, `count` scores can be read, and `rounded` is as [`Block`] says.
#[inline(always)]
unsafe fn weigh_rounded<V: Vector>(
    scores: *const f32,
    rounded: *mut u16,
    count: usize,
    scale: f32,
    greatest: f32,
) -> f32 {
    // SAFETY: the caller's promise; `index` stays below `count`, and 16 is a multiple of the lanes.
    unsafe {
        let (scale, offset, lowest) = (V::splat(scale), V::splat(-greatest), V::splat(f32::NEG_INFINITY));
        let mut sum = V::splat(0.0);
        for index in (0..count.next_multiple_of(16)).step_by(V::LANES) {
            let score = match count.checked_sub(index) {
                Some(left) if left > 0 => V::load_up_to(scores.add(index), left, lowest),
                _ => lowest,
            };
            let weight = math::exp2_coarse(score.mul_add(scale, offset));
            // A weight that is no number makes the sum none, so that it may round to anything.
            positive_to_bf16(weight).store_halves(rounded.add(index));
            sum = sum + weight;
        }
        sum.sum()
    }
}

/// Multiplies `count` floats.
///
/// # Safety
/// The machine has the instructions, and `count` floats can be read and written.
#[inline(always)]
unsafe fn scale_by<V: Vector>(values: *mut f32, count: usize, factor: f32) {
    // SAFETY: the caller's promise; `index` stays below `count`.
    unsafe {
        let (factor, zero) = (V::splat(factor), V::splat(0.0));
        for index in (0..count).step_by(V::LANES) {
            let value = V::load_up_to(values.add(index), count - index, zero) * factor;
            value.store_up_to(values.add(index), count - index);
        }
    }
}

impl Kernel for BlockKernel {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let this = self.0;
        for row in 0..this.rows {
            // SAFETY: the pointers are good for `rows` rows.
            unsafe {
                let scores = this.scores.add(row * this.stride);
                let (known, sum) = (&mut *this.greatest.add(row), &mut *this.sums.add(row));
                let scaled = greatest::<V>(scores, this.columns) * this.scale;
                let most = if this.first || scaled > *known { scaled } else { *known };
                let weights = if this.rounded.is_null() {
                    weigh::<V>(scores, this.columns, this.scale, most)
                } else {
                    let rounded = this.rounded.add(row * this.rounded_stride);
                    weigh_rounded::<V>(scores, rounded, this.columns, this.scale, most)
                };
                if this.first {
                    *sum = weights;
                } else {
                    let mut shrink = 1.0f32;
                    if most != *known {
                        math::exp2(V::splat(*known - most)).store_first(&mut shrink, 1);
                        scale_by::<V>(this.mixed.add(row * this.mixed_stride), this.mixed_columns, shrink);
                    }
                    *sum = *sum * shrink + weights;
                }
                *known = most;
            }
        }
    }
}

/// Rows that are divided by a number each.
#[derive(Clone, Copy)]
pub(super) struct Divide {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) from: *const f32,
    pub(super) from_stride: usize,
    pub(super) by: *const f32,
    pub(super) to: *mut f32,
    pub(super) to_stride: usize,
}

/// Does what its argument says. Callers promise that the machine has the instructions and that the pointers are good;
/// `from` and `to` may be the same.
pub(super) type DivideFunction = unsafe fn(&Divide);

/// [`DivideFunction`] for an instruction set.
///
/// # Safety
/// See [`DivideFunction`].
pub(super) unsafe fn divide<V: Vector>(divide: &Divide) {
    // SAFETY: the caller's promise.
    unsafe { V::run(DivideKernel(*divide)) }
}

struct DivideKernel(Divide);

impl Kernel for DivideKernel {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let this = self.0;
        for row in 0..this.rows {
            // SAFETY: the pointers are good for `rows` × `columns`, and `column` stays below `columns`.
            unsafe {
                let factor = V::splat(1.0 / *this.by.add(row));
                let (from, to) = (this.from.add(row * this.from_stride), this.to.add(row * this.to_stride));
                for column in (0..this.columns).step_by(V::LANES) {
                    let left = this.columns - column;
                    let value = V::load_up_to(from.add(column), left, factor) * factor;
                    value.store_up_to(to.add(column), left);
                }
            }
        }
    }
}

impl Kernels {
    /// Turns each row into the softmax of `scale` times its elements, in place. The scale is positive.
    pub fn softmax(&self, mut rows: MatrixMut<f32>, scale: f32) {
        let columns = rows.columns();
        for row in 0..rows.rows() {
            let (mut greatest, mut sum) = (0.0, 0.0);
            let scores = rows.row_mut(row).as_mut_ptr();
            // SAFETY: kernels of a class exist only where its instructions do, and one row is one row.
            unsafe {
                (self.softmax_block)(&Block {
                    rows: 1,
                    columns,
                    scores,
                    stride: columns,
                    rounded: null_mut(),
                    rounded_stride: 0,
                    scale: scale * std::f32::consts::LOG2_E,
                    first: true,
                    greatest: &mut greatest,
                    sums: &mut sum,
                    mixed: scores,
                    mixed_columns: 0,
                    mixed_stride: 0,
                });
                (self.divide)(&Divide {
                    rows: 1,
                    columns,
                    from: scores,
                    from_stride: columns,
                    by: &sum,
                    to: scores,
                    to_stride: columns,
                });
            }
        }
    }
}
