//! Pooling: one row out of the rows of a text.
//!
//! Contract: as sentence-transformers 5 defines its modes for a text without padding, in f32, over the rows in ascending
//! order. The row depends on the text alone. A NaN in a column makes that column NaN, in the maximum too.
//!
//! Numerical notes: sums over n rows are sequential, one accumulator per column; their error is at most n · 2⁻²⁴ relative
//! to the sum of magnitudes.
//!
//! Why not a sum by halves: texts have hundreds of tokens, not millions.

use crate::base::Matrix;

use super::Kernels;
use super::simd::{Kernel, Vector};

/// How the rows of a text become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Pooling {
    /// The first row.
    Cls,
    /// The greatest of each column.
    Max,
    /// The mean.
    Mean,
    /// The sum over the square root of the number of rows.
    MeanSqrtLength,
    /// The mean with weights 1, 2, 3, …
    WeightedMean,
    /// The last row.
    LastToken,
}

/// Pools rows, of which there is at least one. Callers promise that the machine has the instructions and that the output
/// is as long as a row.
pub(super) type PoolFunction = unsafe fn(Pooling, Matrix<f32>, &mut [f32]);

/// [`PoolFunction`] for an instruction set.
///
/// # Safety
/// See [`PoolFunction`].
pub(super) unsafe fn pool<V: Vector>(pooling: Pooling, tokens: Matrix<f32>, output: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe { V::run(PoolKernel { pooling, tokens, output }) }
}

struct PoolKernel<'a> {
    pooling: Pooling,
    tokens: Matrix<'a, f32>,
    output: &'a mut [f32],
}

/// The greater of each lane, or NaN where either is.
#[inline(always)]
fn greater<V: Vector>(value: V, most: V) -> V {
    V::select(value.is_nan(), value, most.max(V::select(most.is_nan(), most, value)))
}

impl PoolKernel<'_> {
    /// Gathers one column of vectors: the weight of row i is 1, or i + 1.
    ///
    /// # Safety
    /// The machine has the instructions, and `left` columns are left behind `column`.
    #[inline(always)]
    unsafe fn gather<V: Vector>(&self, column: usize, left: usize) -> V {
        // SAFETY: the caller's promise; `row` stays below the number of rows.
        unsafe {
            let zero = V::splat(0.0);
            let mut gathered = V::load_up_to(self.tokens.row(0).as_ptr().add(column), left, zero);
            for row in 1..self.tokens.rows() {
                let value = V::load_up_to(self.tokens.row(row).as_ptr().add(column), left, zero);
                gathered = match self.pooling {
                    Pooling::Max => greater(value, gathered),
                    Pooling::WeightedMean => value.mul_add(V::splat((row + 1) as f32), gathered),
                    _ => gathered + value,
                };
            }
            gathered
        }
    }
}

impl Kernel for PoolKernel<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let rows = self.tokens.rows();
        let count = rows as f32;
        let divisor = match self.pooling {
            Pooling::Cls => return self.output.copy_from_slice(self.tokens.row(0)),
            Pooling::LastToken => return self.output.copy_from_slice(self.tokens.row(rows - 1)),
            Pooling::Max => 1.0,
            Pooling::Mean => count,
            Pooling::MeanSqrtLength => count.sqrt(),
            Pooling::WeightedMean => count * (count + 1.0) / 2.0,
        };
        let width = self.output.len();
        for column in (0..width).step_by(V::LANES) {
            // SAFETY: rows and output have `width` columns.
            unsafe {
                let value = self.gather::<V>(column, width - column) / V::splat(divisor);
                value.store_up_to(self.output.as_mut_ptr().add(column), width - column);
            }
        }
    }
}

impl Kernels {
    /// Writes the pooled row of a text of at least one token. Panics when shapes contradict each other: they are computed
    /// by us, never by users.
    pub fn pool(&self, pooling: Pooling, tokens: Matrix<f32>, output: &mut [f32]) {
        assert!(tokens.rows() > 0 && tokens.columns() == output.len(), "pooling of another shape");
        // SAFETY: kernels of a class exist only where its instructions do, and the shapes agree.
        unsafe { (self.pool)(pooling, tokens, output) }
    }
}
