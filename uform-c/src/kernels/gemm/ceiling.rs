//! What the instructions of a product can do at most: a loop of sums in registers that do not wait for each other.

use std::hint::black_box;
use std::marker::PhantomData;

use crate::kernels::simd::{Kernel, Lanes, Vector};

use super::dot::Dot;

/// Columns by values make sums enough to hide the latency of an instruction on every machine, and fit its registers, where a
/// product and its sum are one instruction.
pub(super) const COLUMNS: usize = 3;
const VALUES: usize = 4;

/// Runs that many steps. Callers promise that the machine has them.
pub(super) type CeilingFunction = unsafe fn(usize);

/// Words that a step multiplies.
pub(super) const fn words_per_step<D: Dot, const COLUMNS: usize>() -> usize {
    COLUMNS * VALUES * D::Sum::COUNT
}

/// [`CeilingFunction`] for an instruction set.
///
/// # Safety
/// See [`CeilingFunction`].
pub(super) unsafe fn ceiling<D: Dot, const COLUMNS: usize>(steps: usize) {
    // SAFETY: the caller's promise.
    unsafe { D::run(CeilingKernel::<D, COLUMNS>(steps, PhantomData)) }
}

struct CeilingKernel<D, const COLUMNS: usize>(usize, PhantomData<D>);

impl<D: Dot, const COLUMNS: usize> Kernel for CeilingKernel<D, COLUMNS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // SAFETY: the caller promises the instructions; the memory holds what is read and written.
        unsafe {
            let mut sums = [[D::Sum::zero(); VALUES]; COLUMNS];
            for _ in 0..self.0 {
                // Looked up anew in each step, or else the compiler would take products out of the loop.
                let words = black_box(&[0x3f80_3f80u32; 16]).as_ptr();
                for (column, sums) in sums.iter_mut().enumerate() {
                    let column = D::Operand::repeat(words.add(column));
                    for (value, sum) in sums.iter_mut().enumerate() {
                        *sum = D::dot(D::Operand::repeat(words.add(COLUMNS + value)), column, *sum);
                    }
                }
            }
            // Written to memory, or else nothing of it would be computed.
            let mut lanes = [[[0u32; 16]; VALUES]; COLUMNS];
            for (sum, lanes) in sums.into_iter().flatten().zip(lanes.as_flattened_mut()) {
                sum.write(lanes.as_mut_ptr());
            }
            black_box(lanes);
        }
    }
}
