//! Norms of rows: layer normalization, that by the root of the mean square, and scaling to unit length.
//!
//! Contract: a row of the output depends on its row of the input alone. Layer normalization takes the mean, then the mean
//! of the squared differences from it (two passes, never `E[x²] - E[x]²`, which cancels), as `torch.nn.LayerNorm` defines
//! it; the root mean square is that of `torch.nn.RMSNorm` (Zhang and Sennrich, arXiv:1910.07467); `normalize` divides by the greater of the Euclidean norm and 10⁻¹², as `torch.nn.functional.normalize`.
//!
//! Numerical notes: sums are in f32 in four accumulators of a vector each, so in an order that the class and the width
//! decide. Relative errors are some units in the last place for widths up to thousands. A NaN or infinity makes its row NaN.
//!
//! Why not one pass (Welford): rows lie in the first-level cache, so a second pass costs less than the divisions.

use crate::base::{Matrix, MatrixMut};

use super::Kernels;
use super::simd::{Kernel, Vector};

/// Normalizes rows. Callers promise that the machine has the instructions and that all shapes agree.
pub(super) type LayerNormFunction = unsafe fn(Matrix<f32>, &[f32], &[f32], f32, MatrixMut<f32>);

/// Divides rows by the root of their mean square. Callers promise that the machine has the instructions and that all shapes agree.
pub(super) type RmsNormFunction = unsafe fn(Matrix<f32>, &[f32], f32, MatrixMut<f32>);

/// Scales rows to unit length. Callers promise that the machine has the instructions.
pub(super) type NormalizeFunction = unsafe fn(MatrixMut<f32>);

/// [`LayerNormFunction`] for an instruction set.
///
/// # Safety
/// See [`LayerNormFunction`].
pub(super) unsafe fn layer_norm<V: Vector>(
    input: Matrix<f32>,
    weight: &[f32],
    bias: &[f32],
    epsilon: f32,
    output: MatrixMut<f32>,
) {
    // SAFETY: the caller's promise.
    unsafe { V::run(LayerNormKernel { input, weight, bias, epsilon, output }) }
}

struct LayerNormKernel<'a> {
    input: Matrix<'a, f32>,
    weight: &'a [f32],
    bias: &'a [f32],
    epsilon: f32,
    output: MatrixMut<'a, f32>,
}

/// The sum of `count` differences from `center`, or of their squares.
///
/// # Safety
/// The machine has the instructions, and `count` floats can be read.
#[inline(always)]
unsafe fn sum<V: Vector, const SQUARES: bool>(values: *const f32, count: usize, center: f32) -> f32 {
    // SAFETY: the caller's promise; `index` stays below `count`.
    unsafe {
        let center = V::splat(center);
        let mut sums = [V::splat(0.0); 4];
        let mut index = 0;
        while index + 4 * V::LANES <= count {
            for (part, sum) in sums.iter_mut().enumerate() {
                let value = V::load(values.add(index + part * V::LANES)) - center;
                *sum = if SQUARES { value.mul_add(value, *sum) } else { *sum + value };
            }
            index += 4 * V::LANES;
        }
        while index < count {
            // Lanes beyond the row hold the center, so they add nothing.
            let value = V::load_up_to(values.add(index), count - index, center) - center;
            sums[0] = if SQUARES { value.mul_add(value, sums[0]) } else { sums[0] + value };
            index += V::LANES;
        }
        ((sums[0] + sums[1]) + (sums[2] + sums[3])).sum()
    }
}

impl Kernel for LayerNormKernel<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(mut self) {
        let width = self.input.columns();
        let (weight, bias) = (self.weight.as_ptr(), self.bias.as_ptr());
        for row in 0..self.input.rows() {
            let (from, to) = (self.input.row(row).as_ptr(), self.output.row_mut(row).as_mut_ptr());
            // SAFETY: rows, weight and bias have `width` floats, and `column` stays below that.
            unsafe {
                let mean = sum::<V, false>(from, width, 0.0) / width as f32;
                let variance = sum::<V, true>(from, width, mean) / width as f32;
                let (mean, scale) = (V::splat(mean), V::splat(1.0 / (variance + self.epsilon).sqrt()));
                for column in (0..width).step_by(V::LANES) {
                    let left = width - column;
                    let value = (V::load_up_to(from.add(column), left, mean) - mean) * scale;
                    let weight = V::load_up_to(weight.add(column), left, mean);
                    let bias = V::load_up_to(bias.add(column), left, mean);
                    value.mul_add(weight, bias).store_up_to(to.add(column), left);
                }
            }
        }
    }
}

/// [`RmsNormFunction`] for an instruction set.
///
/// # Safety
/// See [`RmsNormFunction`].
pub(super) unsafe fn rms_norm<V: Vector>(
    input: Matrix<f32>,
    weight: &[f32],
    epsilon: f32,
    output: MatrixMut<f32>,
) {
    // SAFETY: the caller's promise.
    unsafe { V::run(RmsNormKernel { input, weight, epsilon, output }) }
}

struct RmsNormKernel<'a> {
    input: Matrix<'a, f32>,
    weight: &'a [f32],
    epsilon: f32,
    output: MatrixMut<'a, f32>,
}

impl Kernel for RmsNormKernel<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(mut self) {
        let width = self.input.columns();
        let weight = self.weight.as_ptr();
        for row in 0..self.input.rows() {
            let (from, to) = (self.input.row(row).as_ptr(), self.output.row_mut(row).as_mut_ptr());
            // SAFETY: rows and weight have `width` floats, and `column` stays below that.
            unsafe {
                let square = sum::<V, true>(from, width, 0.0) / width as f32;
                let scale = V::splat(1.0 / (square + self.epsilon).sqrt());
                for column in (0..width).step_by(V::LANES) {
                    let left = width - column;
                    let value = V::load_up_to(from.add(column), left, scale) * scale;
                    let weight = V::load_up_to(weight.add(column), left, scale);
                    (value * weight).store_up_to(to.add(column), left);
                }
            }
        }
    }
}

/// [`NormalizeFunction`] for an instruction set.
///
/// # Safety
/// See [`NormalizeFunction`].
pub(super) unsafe fn normalize<V: Vector>(rows: MatrixMut<f32>) {
    // SAFETY: the caller's promise.
    unsafe { V::run(NormalizeKernel(rows)) }
}

struct NormalizeKernel<'a>(MatrixMut<'a, f32>);

impl Kernel for NormalizeKernel<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(mut self) {
        let width = self.0.columns();
        for row in 0..self.0.rows() {
            let values = self.0.row_mut(row).as_mut_ptr();
            // SAFETY: the row has `width` floats, and `column` stays below that.
            unsafe {
                let norm = sum::<V, true>(values, width, 0.0).sqrt();
                // Not `f32::max`, which would swallow a NaN.
                let norm = V::splat(if norm < 1e-12 { 1e-12 } else { norm });
                for column in (0..width).step_by(V::LANES) {
                    let value = V::load_up_to(values.add(column), width - column, norm) / norm;
                    value.store_up_to(values.add(column), width - column);
                }
            }
        }
    }
}

impl Kernels {
    /// Writes (x - mean) / √(variance + ε) · weight + bias of each row of `input` to the same row of `output`.
    /// Panics when shapes contradict each other: they are computed by us, never by users.
    pub fn layer_norm(
        &self,
        input: Matrix<f32>,
        weight: &[f32],
        bias: &[f32],
        epsilon: f32,
        output: MatrixMut<f32>,
    ) {
        assert!(
            (input.rows(), input.columns()) == (output.rows(), output.columns()),
            "output of another shape"
        );
        assert!(
            weight.len() == input.columns() && bias.len() == input.columns(),
            "weight or bias of another length"
        );
        // SAFETY: kernels of a class exist only where its instructions do, and the shapes agree.
        unsafe { (self.layer_norm)(input, weight, bias, epsilon, output) }
    }

    /// Writes x / √(mean of x² + ε) · weight of each row of `input` to the same row of `output`. Panics when shapes
    /// contradict each other: they are computed by us, never by users.
    pub fn rms_norm(&self, input: Matrix<f32>, weight: &[f32], epsilon: f32, output: MatrixMut<f32>) {
        assert!(
            (input.rows(), input.columns()) == (output.rows(), output.columns()),
            "output of another shape"
        );
        assert!(weight.len() == input.columns(), "weight of another length");
        // SAFETY: kernels of a class exist only where its instructions do, and the shapes agree.
        unsafe { (self.rms_norm)(input, weight, epsilon, output) }
    }

    /// Divides each row by its Euclidean norm, or by 10⁻¹² where that is greater.
    pub fn normalize(&self, rows: MatrixMut<f32>) {
        // SAFETY: kernels of a class exist only where its instructions do.
        unsafe { (self.normalize)(rows) }
    }
}
