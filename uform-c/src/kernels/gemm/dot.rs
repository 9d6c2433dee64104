//! Inner products by instruction set and element type: what one step of a tile does.
//!
//! Whatever the elements are, a step takes one word of 32 bits from each row of the input and one from each column of the
//! weights: one f32, two 16-bit floats or integers, four bytes. So tiles are written once, over [`Dot`].

use crate::kernels::simd::{Kernel, Lanes, Vector, Words};

/// How words of inputs and weights are multiplied and summed.
pub(in crate::kernels) trait Dot: 'static {
    /// Sums of a register of columns, f32 or i32.
    type Sum: Lanes;

    /// A word for each of as many columns.
    type Operand: Lanes;

    /// Runs `kernel` in a function that is compiled for these instructions.
    ///
    /// # Safety
    /// The machine has them, and the kernel's pointers are as its own documentation asks.
    unsafe fn run<K: Kernel>(kernel: K) -> K::Output;

    /// Adds the products of the elements of each two words to a sum.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn dot(value: Self::Operand, column: Self::Operand, sum: Self::Sum) -> Self::Sum;
}

/// A word is an f32.
pub(in crate::kernels) struct Floats<V>(V);

impl<V: Vector> Dot for Floats<V> {
    type Sum = V;
    type Operand = V;

    #[inline(always)]
    unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the caller's promise.
        unsafe { V::run(kernel) }
    }

    #[inline(always)]
    unsafe fn dot(value: V, column: V, sum: V) -> V {
        value.mul_add(column, sum)
    }
}

/// A word is two signed integers of 16 bits, and sums are exact.
pub(in crate::kernels) struct Halves<V>(V);

impl<V: Vector> Dot for Halves<V> {
    type Sum = V::Words;
    type Operand = V::Words;

    #[inline(always)]
    unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the caller's promise.
        unsafe { V::run(kernel) }
    }

    #[inline(always)]
    unsafe fn dot(value: V::Words, column: V::Words, sum: V::Words) -> V::Words {
        value.multiply_halves(column).add(sum)
    }
}

/// Implements [`Dot`] by one instruction over the words of a vector.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! instruction {
    ($name:ident, $vector:ident, $words:ident, $sum:ident, $features:literal, |$value:ident, $column:ident, $total:ident| $product:expr) => {
        impl $crate::kernels::gemm::dot::Dot for $name {
            type Sum = $sum;
            type Operand = $words;

            #[inline(always)]
            unsafe fn run<K: $crate::kernels::simd::Kernel>(kernel: K) -> K::Output {
                /// Compiles `kernel` with these instructions.
                ///
                /// # Safety
                /// As [`Dot::run`](super::dot::Dot::run).
                #[target_feature(enable = $features)]
                unsafe fn enter<K: $crate::kernels::simd::Kernel>(kernel: K) -> K::Output {
                    // SAFETY: the caller's promise.
                    unsafe { kernel.run::<$vector>() }
                }
                // SAFETY: the caller's promise.
                unsafe { enter(kernel) }
            }

            #[inline(always)]
            unsafe fn dot($value: $words, $column: $words, $total: $sum) -> $sum {
                // SAFETY: the caller's promise.
                unsafe { $product }
            }
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use instruction;
