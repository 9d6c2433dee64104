//! The inner loops: a tile of the product that stays in registers, and what is done to it afterwards.

use crate::kernels::activation::{Activation, Apply, Function};
use crate::kernels::simd::{Kernel, Vector};

use super::PANEL;

/// A tile of a product: rows of `input` times panels of 16 columns, over `depth` steps of k.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) depth: usize,
    pub(crate) input: *const f32,
    pub(crate) input_stride: usize,
    /// The first step of the first panel; a step is 16 floats.
    pub(crate) panel: *const f32,
    /// Floats from one panel to the next.
    pub(crate) panel_stride: usize,
    pub(crate) output: *mut f32,
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
pub(super) unsafe fn tile<V: Vector, const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    // SAFETY: the caller's promise.
    unsafe { V::run(TileKernel::<ROWS, VECTORS>(*tile)) }
}

struct TileKernel<const ROWS: usize, const VECTORS: usize>(Tile);

/// Steps of k between two branches.
const UNROLL: usize = 4;

/// Where vector number `index` of a row of panels lies, from the start of a step of the first panel.
#[inline(always)]
fn vector_offset<V: Vector>(index: usize, panel_stride: usize) -> usize {
    let per_panel = PANEL / V::LANES;
    index / per_panel * panel_stride + index % per_panel * V::LANES
}

/// Adds the products of one step of k to all sums.
///
/// # Safety
/// The machine has the instructions, `input` has `ROWS` rows, and `panel` starts a step of `VECTORS` vectors.
#[inline(always)]
unsafe fn step<V: Vector, const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[V; VECTORS]; ROWS],
    input: *const f32,
    input_stride: usize,
    panel: *const f32,
    panel_stride: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = V::splat(0.0);
        // Whichever side has fewer vectors waits in registers while the other passes by.
        if VECTORS <= ROWS {
            let mut columns = [zero; VECTORS];
            for (index, column) in columns.iter_mut().enumerate() {
                *column = V::load(panel.add(vector_offset::<V>(index, panel_stride)));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let value = V::splat(*input.add(row * input_stride));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = value.mul_add(column, *sum);
                }
            }
        } else {
            let mut values = [zero; ROWS];
            for (row, value) in values.iter_mut().enumerate() {
                *value = V::splat(*input.add(row * input_stride));
            }
            for index in 0..VECTORS {
                let column = V::load(panel.add(vector_offset::<V>(index, panel_stride)));
                for (sums, value) in sums.iter_mut().zip(values) {
                    sums[index] = value.mul_add(column, sums[index]);
                }
            }
        }
    }
}

impl<const ROWS: usize, const VECTORS: usize> Kernel for TileKernel<ROWS, VECTORS> {
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
        } = self.0;
        // SAFETY: the pointers are good for `ROWS` rows, `VECTORS` vectors of columns and `depth` steps.
        unsafe {
            let mut sums = [[V::splat(0.0); VECTORS]; ROWS];
            if accumulate {
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (index, sum) in sums.iter_mut().enumerate() {
                        *sum = V::load(output.add(row * output_stride + index * V::LANES));
                    }
                }
            }
            for _ in 0..depth / UNROLL {
                for k in 0..UNROLL {
                    step(&mut sums, input.add(k), input_stride, panel.add(k * PANEL), panel_stride);
                }
                (input, panel) = (input.add(UNROLL), panel.add(UNROLL * PANEL));
            }
            for k in 0..depth % UNROLL {
                step(&mut sums, input.add(k), input_stride, panel.add(k * PANEL), panel_stride);
            }
            for (row, sums) in sums.iter().enumerate() {
                for (index, sum) in sums.iter().enumerate() {
                    sum.store(output.add(row * output_stride + index * V::LANES));
                }
            }
        }
    }
}

/// The end of a product: output = activation(sums + bias) + residual, for `rows` × `columns`.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) sums: *const f32,
    pub(crate) sums_stride: usize,
    /// One float per column, or null.
    pub(crate) bias: *const f32,
    pub(crate) activation: Activation,
    /// As `rows` × `columns`, or null.
    pub(crate) residual: *const f32,
    pub(crate) residual_stride: usize,
    pub(crate) output: *mut f32,
    pub(crate) output_stride: usize,
}

/// Does what its argument says. Callers promise that the machine has the instructions and that the pointers are good for
/// that shape; `sums` and `output` may be the same, else nothing overlaps the output.
pub(crate) type EpilogueFunction = unsafe fn(&Epilogue);

/// [`EpilogueFunction`] for an instruction set.
///
/// # Safety
/// See [`EpilogueFunction`].
pub(super) unsafe fn epilogue<V: Vector>(epilogue: &Epilogue) {
    // SAFETY: the caller's promise.
    unsafe { V::run(EpilogueKernel(epilogue)) }
}

struct EpilogueKernel<'a>(&'a Epilogue);

impl Kernel for EpilogueKernel<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.activation.with::<V, _>(self) }
    }
}

impl EpilogueKernel<'_> {
    /// Finishes all columns, with or without a residual.
    ///
    /// # Safety
    /// As [`EpilogueFunction`]; the residual is there if `RESIDUAL` says so.
    #[inline(always)]
    unsafe fn finish<V: Vector, F: Function, const RESIDUAL: bool>(self) {
        let this = *self.0;
        // SAFETY: the pointers are good for `rows` × `columns`, and `column` stays below `columns`.
        unsafe {
            let zero = V::splat(0.0);
            for column in (0..this.columns).step_by(V::LANES) {
                let left = this.columns - column;
                let bias =
                    if this.bias.is_null() { zero } else { V::load_up_to(this.bias.add(column), left, zero) };
                let (mut sums, mut output) = (this.sums.add(column), this.output.add(column));
                let mut residual = this.residual.wrapping_add(column);
                for _ in 0..this.rows {
                    let mut value = F::of(V::load_up_to(sums, left, zero) + bias);
                    if RESIDUAL {
                        value = value + V::load_up_to(residual, left, zero);
                    }
                    value.store_up_to(output, left);
                    sums = sums.wrapping_add(this.sums_stride);
                    output = output.wrapping_add(this.output_stride);
                    residual = residual.wrapping_add(this.residual_stride);
                }
            }
        }
    }
}

impl Apply for EpilogueKernel<'_> {
    #[inline(always)]
    unsafe fn apply<V: Vector, F: Function>(self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.0.residual.is_null() {
                true => self.finish::<V, F, false>(),
                false => self.finish::<V, F, true>(),
            }
        }
    }
}
