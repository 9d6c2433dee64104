//! Rotary position embeddings: pairs of elements of a head are turned by an angle that grows with the token's position.
//!
//! Reference: Su et al., "RoFormer", arXiv:2104.09864, in the form of Hugging Face's `rotate_half`: element i of a head is paired
//! with the one half of the rotated elements further on. What lies behind the rotated elements stays as it is.
//!
//! Numerical notes: two products and a sum or difference, each rounded once where the instruction set can; the bits of an element
//! depend on its pair and its angle alone.

use crate::base::{Matrix, MatrixMut};

use super::Kernels;
use super::simd::{Kernel, Vector};

/// Cosines and sines of the angles: tokens × pairs of a head.
#[derive(Clone, Copy)]
pub struct Angles<'a> {
    /// Their cosines.
    pub cosines: Matrix<'a, f32>,
    /// Their sines.
    pub sines: Matrix<'a, f32>,
}

/// Turns heads of the given size in place. Callers promise that the machine has the instructions and that all shapes agree.
pub(super) type RotateFunction = unsafe fn(Angles, usize, MatrixMut<f32>);

/// [`RotateFunction`] for an instruction set.
///
/// # Safety
/// See [`RotateFunction`].
pub(super) unsafe fn rotate<V: Vector>(angles: Angles, size: usize, rows: MatrixMut<f32>) {
    // SAFETY: the caller's promise.
    unsafe { V::run(RotateKernel { angles, size, rows }) }
}

struct RotateKernel<'a> {
    angles: Angles<'a>,
    size: usize,
    rows: MatrixMut<'a, f32>,
}

impl Kernel for RotateKernel<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(mut self) {
        let pairs = self.angles.cosines.columns();
        for row in 0..self.rows.rows() {
            let cosines = self.angles.cosines.row(row).as_ptr();
            let sines = self.angles.sines.row(row).as_ptr();
            for head in self.rows.row_mut(row).chunks_exact_mut(self.size) {
                let (low, high) = head.split_at_mut(pairs);
                let (low, high) = (low.as_mut_ptr(), high.as_mut_ptr());
                for pair in (0..pairs).step_by(V::LANES) {
                    let left = pairs - pair;
                    // SAFETY: the angles and both halves have `pairs` floats, and `pair` stays below that.
                    unsafe {
                        let zero = V::splat(0.0);
                        let cosine = V::load_up_to(cosines.add(pair), left, zero);
                        let sine = V::load_up_to(sines.add(pair), left, zero);
                        let first = V::load_up_to(low.add(pair), left, zero);
                        let second = V::load_up_to(high.add(pair), left, zero);
                        (zero - second).mul_add(sine, first * cosine).store_up_to(low.add(pair), left);
                        first.mul_add(sine, second * cosine).store_up_to(high.add(pair), left);
                    }
                }
            }
        }
    }
}

impl Kernels {
    /// Turns the heads of `size` elements that stand side by side in each row, a token each, by its row of angles. Panics when
    /// shapes contradict each other: they are computed by us, never by users.
    pub fn rotate(&self, angles: Angles, size: usize, rows: MatrixMut<f32>) {
        let (cosines, sines) = (angles.cosines, angles.sines);
        assert!(
            (cosines.rows(), cosines.columns()) == (sines.rows(), sines.columns())
                && cosines.rows() == rows.rows(),
            "angles of another shape"
        );
        assert!(
            size > 0 && 2 * cosines.columns() <= size && rows.columns().is_multiple_of(size),
            "heads of another size"
        );
        // SAFETY: kernels of a class exist only where its instructions do, and the shapes agree.
        unsafe { (self.rotate)(angles, size, rows) }
    }
}
