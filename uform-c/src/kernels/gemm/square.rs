//! Tiles by instructions of NEON that multiply two words of each of two rows by two words of each of two columns, for a sum
//! of 2 × 2 in one register.
//!
//! Panels and rows lie as for all other tiles: two steps of four columns are zipped into two operands, and the words of two
//! rows are put side by side as they are read. So a step of two words takes, for six rows of a panel, 24 products, 8 zips and 3
//! reads into half a register, where one row by four columns at a time is 48 products.
//!
//! The instructions have to add the two products of words one after the other, first word first, each as the instruction for a
//! single row does: then tiles of both kinds give the same bits, and one may serve the few rows and steps that do not
//! fill the other.

use std::arch::aarch64::*;
use std::marker::PhantomData;

use crate::kernels::simd::{Kernel, Vector};

use super::dot::Dot;
use super::kinds::{Tiles, Unit};
use super::tile::tile;
use super::{PANEL, Tile, TileFunction};

/// Sums of two rows by two columns.
pub(super) type Sums = uint32x4_t;

/// How words of two rows and two columns are multiplied and summed.
pub(super) trait Square: Dot {
    /// Reads two steps of four columns and adds their products with pairs of rows, two words of each row, to sums number `first`
    /// and the next of each pair.
    ///
    /// # Safety
    /// The machine has the instructions, and four words can be read at `columns` and a step behind.
    unsafe fn multiply<const PAIRS: usize>(
        columns: *const u32,
        rows: &[uint32x4_t; PAIRS],
        sums: &mut [[Sums; BLOCKS]; PAIRS],
        first: usize,
    );
}

/// Implements [`Square`] by one instruction over elements of that arrangement, for two or three pairs of rows. Reads, zips and
/// products are one block of assembly: compilers would zip all columns of a step first, for which there are too few registers.
macro_rules! square {
    ($name:ident, $instruction:literal, $elements:literal) => {
        impl $crate::kernels::gemm::square::Square for $name {
            #[inline(always)]
            unsafe fn multiply<const PAIRS: usize>(
                columns: *const u32,
                rows: &[std::arch::aarch64::uint32x4_t; PAIRS],
                sums: &mut [[$crate::kernels::gemm::square::Sums; $crate::kernels::gemm::square::BLOCKS]; PAIRS],
                first: usize,
            ) {
                const { assert!(PAIRS == 2 || PAIRS == 3) };
                let [mut a, mut b, mut c, mut d] =
                    [sums[0][first], sums[0][first + 1], sums[1][first], sums[1][first + 1]];
                // SAFETY: the caller's promise.
                unsafe {
                    if PAIRS == 2 {
                        std::arch::asm!(
                            "ldr {low:q}, [{columns}]",
                            "ldr {next:q}, [{columns}, #64]",
                            "zip2 {high:v}.4s, {low:v}.4s, {next:v}.4s",
                            "zip1 {low:v}.4s, {low:v}.4s, {next:v}.4s",
                            concat!($instruction, " {a:v}.4s, {r0:v}.", $elements, ", {low:v}.", $elements),
                            concat!($instruction, " {c:v}.4s, {r1:v}.", $elements, ", {low:v}.", $elements),
                            concat!($instruction, " {b:v}.4s, {r0:v}.", $elements, ", {high:v}.", $elements),
                            concat!($instruction, " {d:v}.4s, {r1:v}.", $elements, ", {high:v}.", $elements),
                            a = inout(vreg) a,
                            b = inout(vreg) b,
                            c = inout(vreg) c,
                            d = inout(vreg) d,
                            r0 = in(vreg) rows[0],
                            r1 = in(vreg) rows[1],
                            low = out(vreg) _,
                            next = out(vreg) _,
                            high = out(vreg) _,
                            columns = in(reg) columns,
                            options(pure, readonly, nostack, preserves_flags)
                        );
                    } else {
                        let [mut e, mut f] = [sums[PAIRS - 1][first], sums[PAIRS - 1][first + 1]];
                        std::arch::asm!(
                            "ldr {low:q}, [{columns}]",
                            "ldr {next:q}, [{columns}, #64]",
                            "zip2 {high:v}.4s, {low:v}.4s, {next:v}.4s",
                            "zip1 {low:v}.4s, {low:v}.4s, {next:v}.4s",
                            concat!($instruction, " {a:v}.4s, {r0:v}.", $elements, ", {low:v}.", $elements),
                            concat!($instruction, " {c:v}.4s, {r1:v}.", $elements, ", {low:v}.", $elements),
                            concat!($instruction, " {e:v}.4s, {r2:v}.", $elements, ", {low:v}.", $elements),
                            concat!($instruction, " {b:v}.4s, {r0:v}.", $elements, ", {high:v}.", $elements),
                            concat!($instruction, " {d:v}.4s, {r1:v}.", $elements, ", {high:v}.", $elements),
                            concat!($instruction, " {f:v}.4s, {r2:v}.", $elements, ", {high:v}.", $elements),
                            a = inout(vreg) a,
                            b = inout(vreg) b,
                            c = inout(vreg) c,
                            d = inout(vreg) d,
                            e = inout(vreg) e,
                            f = inout(vreg) f,
                            r0 = in(vreg) rows[0],
                            r1 = in(vreg) rows[1],
                            r2 = in(vreg) rows[PAIRS - 1],
                            low = out(vreg) _,
                            next = out(vreg) _,
                            high = out(vreg) _,
                            columns = in(reg) columns,
                            options(pure, readonly, nostack, preserves_flags)
                        );
                        [sums[PAIRS - 1][first], sums[PAIRS - 1][first + 1]] = [e, f];
                    }
                }
                [sums[0][first], sums[0][first + 1], sums[1][first], sums[1][first + 1]] = [a, b, c, d];
            }
        }
    };
}
pub(super) use square;

/// Tiles by rows and panels.
struct ByRows<S>(S);

impl<S: Square> ByRows<S> {
    const ALL: &[&[TileFunction]] = &[
        &[tile::<S, 1, 4>, tile::<S, 1, 8>, tile::<S, 1, 12>, tile::<S, 1, 16>],
        &[tile::<S, 2, 4>, tile::<S, 2, 8>],
        &[square_tile::<S, 3, 2>],
        &[square_tile::<S, 4, 2>],
        &[square_tile::<S, 5, 3>],
        &[square_tile::<S, 6, 3>],
    ];
}

/// The tiles of one way to multiply words.
pub(super) const fn tiles<S: Square>() -> Tiles {
    Tiles { unit: Unit { rows: 2, steps: 1 }, ..Tiles::of::<S>(ByRows::<S>::ALL) }
}

/// [`TileFunction`] of `ROWS` rows, which are `PAIRS` pairs, and one panel.
///
/// # Safety
/// See [`TileFunction`].
unsafe fn square_tile<S: Square, const ROWS: usize, const PAIRS: usize>(whole: &Tile) {
    let even = whole.depth & !1;
    // SAFETY: the caller's promise; the last step of an odd number is one behind the even ones.
    unsafe {
        S::run(SquareKernel::<S, ROWS, PAIRS>(Tile { depth: even, ..*whole }, PhantomData));
        if even < whole.depth {
            let (input, panel) = (whole.input.add(even), whole.panel.add(even * PANEL));
            tile::<S, ROWS, 4>(&Tile { depth: 1, input, panel, accumulate: true, ..*whole });
        }
    }
}

struct SquareKernel<S, const ROWS: usize, const PAIRS: usize>(Tile, PhantomData<S>);

/// Pairs of columns of a panel.
pub(super) const BLOCKS: usize = PANEL / 2;

/// The two rows of a pair; where the last one has no second, it stands for that too, and its sums are not written.
#[inline(always)]
fn rows_of<const ROWS: usize>(pair: usize) -> [usize; 2] {
    [2 * pair, (2 * pair + 1).min(ROWS - 1)]
}

/// Two words of each of two rows.
///
/// # Safety
/// Two words can be read at both.
#[inline(always)]
unsafe fn two_and_two(first: *const u32, second: *const u32) -> uint32x4_t {
    // SAFETY: the caller's promise; every 64-bit Arm has NEON.
    unsafe { vcombine_u32(vld1_u32(first), vld1_u32(second)) }
}

impl<S: Square, const ROWS: usize, const PAIRS: usize> Kernel for SquareKernel<S, ROWS, PAIRS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Tile { depth, input, input_stride, panel, output, output_stride, accumulate, .. } = self.0;
        // SAFETY: the pointers are good for `ROWS` rows, a panel and `depth` steps, an even number.
        unsafe {
            let mut sums = [[vdupq_n_u32(0); BLOCKS]; PAIRS];
            if accumulate {
                for (pair, sums) in sums.iter_mut().enumerate() {
                    let [first, second] = rows_of::<ROWS>(pair).map(|row| output.add(row * output_stride));
                    for (block, sum) in sums.iter_mut().enumerate() {
                        *sum = two_and_two(first.add(2 * block), second.add(2 * block));
                    }
                }
            }
            for k in (0..depth).step_by(2) {
                let mut rows = [vdupq_n_u32(0); PAIRS];
                for (pair, rows) in rows.iter_mut().enumerate() {
                    let [first, second] = rows_of::<ROWS>(pair).map(|row| input.add(row * input_stride + k));
                    *rows = two_and_two(first, second);
                }
                for first in (0..BLOCKS).step_by(2) {
                    S::multiply(panel.add(k * PANEL + 2 * first), &rows, &mut sums, first);
                }
            }
            for (pair, sums) in sums.iter().enumerate() {
                let [first, second] = rows_of::<ROWS>(pair);
                for (block, sum) in sums.iter().enumerate() {
                    vst1_u32(output.add(first * output_stride + 2 * block), vget_low_u32(*sum));
                    if second != first {
                        vst1_u32(output.add(second * output_stride + 2 * block), vget_high_u32(*sum));
                    }
                }
            }
        }
    }
}
