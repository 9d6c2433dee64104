//! The inner loop: a tile of the product that stays in registers.

use std::marker::PhantomData;

use crate::kernels::simd::{Kernel, Lanes, Vector};

use super::PANEL;
use super::dot::Dot;

/// A tile of a product: rows of `input` times panels of 16 columns, over `depth` steps of k, of one word each.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) rows: usize,
    pub(crate) depth: usize,
    pub(crate) input: *const u32,
    pub(crate) input_stride: usize,
    /// The first step of the first panel; a step is 16 words.
    pub(crate) panel: *const u32,
    /// Words from one panel to the next.
    pub(crate) panel_stride: usize,
    /// Sums, as f32 or i32.
    pub(crate) output: *mut u32,
    pub(crate) output_stride: usize,
    /// Whether sums go on from what the output holds, or start at zero.
    pub(crate) accumulate: bool,
}

/// Computes a tile of as many rows and panels as it is compiled for. Callers promise that the machine has the
/// instructions and that the tile's pointers are good for that many.
pub(crate) type TileFunction = unsafe fn(&Tile);

/// [`TileFunction`] of `ROWS` rows and `VECTORS` vectors of columns, which make up whole panels.
///
/// # Safety
/// See [`TileFunction`].
pub(super) unsafe fn tile<D: Dot, const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    // SAFETY: the caller's promise.
    unsafe { D::run(TileKernel::<D, ROWS, VECTORS>(*tile, PhantomData)) }
}

struct TileKernel<D, const ROWS: usize, const VECTORS: usize>(Tile, PhantomData<D>);

/// Steps of k between two branches, in a tile of that many rows. One in WebAssembly, for tiles whose sums and columns fill the
/// registers: of several steps the compiler reads all columns first, and then engines keep sums in memory.
const fn unroll(rows: usize) -> usize {
    if cfg!(target_family = "wasm") && rows > 1 { 1 } else { 4 }
}

/// Where vector number `index` of a row of panels lies, from the start of a step of the first panel.
#[inline(always)]
fn vector_offset<D: Dot>(index: usize, panel_stride: usize) -> usize {
    let per_panel = PANEL / D::Sum::COUNT;
    index / per_panel * panel_stride + index % per_panel * D::Sum::COUNT
}

/// Adds the products of one step of k to all sums.
///
/// # Safety
/// The machine has the instructions, `input` has `ROWS` rows, and `panel` starts a step of `VECTORS` vectors.
#[inline(always)]
unsafe fn step<D: Dot, const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[D::Sum; VECTORS]; ROWS],
    input: *const u32,
    input_stride: usize,
    panel: *const u32,
    panel_stride: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = D::Operand::zero();
        // Whichever side has fewer vectors waits in registers while the other passes by.
        if VECTORS <= ROWS {
            let mut columns = [zero; VECTORS];
            for (index, column) in columns.iter_mut().enumerate() {
                *column = D::Operand::read(panel.add(vector_offset::<D>(index, panel_stride)));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let value = D::Operand::repeat(input.add(row * input_stride));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = D::dot(value, column, *sum);
                }
            }
        } else {
            let mut values = [zero; ROWS];
            for (row, value) in values.iter_mut().enumerate() {
                *value = D::Operand::repeat(input.add(row * input_stride));
            }
            for index in 0..VECTORS {
                let column = D::Operand::read(panel.add(vector_offset::<D>(index, panel_stride)));
                for (sums, value) in sums.iter_mut().zip(values) {
                    sums[index] = D::dot(value, column, sums[index]);
                }
            }
        }
    }
}

impl<D: Dot, const ROWS: usize, const VECTORS: usize> Kernel for TileKernel<D, ROWS, VECTORS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Tile {
            depth,
            mut input,
            input_stride,
            mut panel,
            panel_stride,
            output,
            output_stride,
            accumulate,
            rows: _,
        } = self.0;
        // SAFETY: the pointers are good for `ROWS` rows, `VECTORS` vectors of columns and `depth` steps.
        unsafe {
            let mut sums = [[D::Sum::zero(); VECTORS]; ROWS];
            if accumulate {
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (index, sum) in sums.iter_mut().enumerate() {
                        *sum = D::Sum::read(output.add(row * output_stride + index * D::Sum::COUNT));
                    }
                }
            }
            for _ in 0..depth / unroll(ROWS) {
                for k in 0..unroll(ROWS) {
                    step::<D, ROWS, VECTORS>(
                        &mut sums,
                        input.add(k),
                        input_stride,
                        panel.add(k * PANEL),
                        panel_stride,
                    );
                }
                (input, panel) = (input.add(unroll(ROWS)), panel.add(unroll(ROWS) * PANEL));
            }
            for k in 0..depth % unroll(ROWS) {
                step::<D, ROWS, VECTORS>(
                    &mut sums,
                    input.add(k),
                    input_stride,
                    panel.add(k * PANEL),
                    panel_stride,
                );
            }
            for (row, sums) in sums.iter().enumerate() {
                for (index, sum) in sums.iter().enumerate() {
                    sum.write(output.add(row * output_stride + index * D::Sum::COUNT));
                }
            }
        }
    }
}
