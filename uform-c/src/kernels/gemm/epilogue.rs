//! The end of a product: what is done to the sums of a tile while they are in the cache.

use std::marker::PhantomData;

use crate::kernels::activation::{Activation, Apply, Function};
use crate::kernels::simd::{Kernel, Vector, Words};

use super::prepare::ZERO;

/// output = activation(sums + bias) + residual, for `rows` × `columns`.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// f32, or i32 of quantized products.
    pub(crate) sums: *const u32,
    pub(crate) sums_stride: usize,
    /// One float per row of a quantized product.
    pub(crate) row_scales: *const f32,
    /// One float per column of a quantized product.
    pub(crate) column_scales: *const f32,
    /// One sum of weights per column of a quantized product.
    pub(crate) column_sums: *const i32,
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
pub(super) unsafe fn epilogue<V: Vector, S: Sums>(epilogue: &Epilogue) {
    // SAFETY: the caller's promise.
    unsafe { V::run(EpilogueKernel::<S>(epilogue, PhantomData)) }
}

/// How sums are read as floats.
pub(super) trait Sums: 'static {
    /// What is looked up once for a register of columns.
    type Columns<V: Vector>: Copy;

    /// Looks it up for columns from `column` on, of which `left` are there.
    ///
    /// # Safety
    /// The machine has the instructions, and the pointers of `epilogue` are good.
    unsafe fn columns<V: Vector>(epilogue: &Epilogue, column: usize, left: usize) -> Self::Columns<V>;

    /// The sums at `from`, of which `left` are there, in a row, and `bias`.
    ///
    /// # Safety
    /// As above.
    unsafe fn read<V: Vector>(
        epilogue: &Epilogue,
        row: usize,
        columns: Self::Columns<V>,
        from: *const u32,
        left: usize,
        bias: V,
    ) -> V;
}

/// Sums are f32 as they stand.
pub(super) struct Plain;

impl Sums for Plain {
    type Columns<V: Vector> = ();

    #[inline(always)]
    unsafe fn columns<V: Vector>(_: &Epilogue, _: usize, _: usize) {}

    #[inline(always)]
    unsafe fn read<V: Vector>(_: &Epilogue, _: usize, (): (), from: *const u32, left: usize, bias: V) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_up_to(from.cast(), left, V::splat(0.0)) + bias }
    }
}

/// Sums are i32 of bytes: value = scale of the row · scale of the column · (sum - 128 · sum of the weights).
pub(super) struct Scaled;

impl Sums for Scaled {
    type Columns<V: Vector> = (V, V::Words);

    #[inline(always)]
    unsafe fn columns<V: Vector>(epilogue: &Epilogue, column: usize, left: usize) -> (V, V::Words) {
        // SAFETY: the caller's promise.
        unsafe {
            let zero = V::splat(0.0);
            let scales = V::load_up_to(epilogue.column_scales.add(column), left, zero);
            // Words pass through a register of floats as they are.
            let sums = V::load_up_to(epilogue.column_sums.add(column).cast(), left, zero);
            (scales, sums.to_words().mul(V::Words::splat(ZERO.wrapping_neg() as u32)))
        }
    }

    #[inline(always)]
    unsafe fn read<V: Vector>(
        epilogue: &Epilogue,
        row: usize,
        (scales, shifts): (V, V::Words),
        from: *const u32,
        left: usize,
        bias: V,
    ) -> V {
        // SAFETY: the caller's promise; the difference is exact, as all sums are far below 2³¹.
        unsafe {
            let scale = V::splat(*epilogue.row_scales.add(row));
            let products = V::load_up_to(from.cast(), left, V::splat(0.0)).to_words();
            (V::convert(products.add(shifts)) * scales).mul_add(scale, bias)
        }
    }
}

struct EpilogueKernel<'a, S>(&'a Epilogue, PhantomData<S>);

impl<S: Sums> Kernel for EpilogueKernel<'_, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.activation.with::<V, _>(self) }
    }
}

impl<S: Sums> EpilogueKernel<'_, S> {
    /// Finishes all columns, with or without a residual.
    ///
    /// # Safety
    /// As [`EpilogueFunction`]; the residual is there if `RESIDUAL` says so.
    #[inline(always)]
    unsafe fn finish<V: Vector, F: Function, const RESIDUAL: bool>(self) {
        let this = self.0;
        // SAFETY: the pointers are good for `rows` × `columns`, and `column` stays below `columns`.
        unsafe {
            let zero = V::splat(0.0);
            for column in (0..this.columns).step_by(V::LANES) {
                let left = this.columns - column;
                let bias =
                    if this.bias.is_null() { zero } else { V::load_up_to(this.bias.add(column), left, zero) };
                let (mut sums, mut output) = (this.sums.add(column), this.output.add(column));
                let mut residual = this.residual.wrapping_add(column);
                let columns = S::columns::<V>(self.0, column, left);
                for row in 0..this.rows {
                    let mut value = F::of(S::read::<V>(self.0, row, columns, sums, left, bias));
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

impl<S: Sums> Apply for EpilogueKernel<'_, S> {
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
