//! Vectors of f32. Every kernel is written once over [`Vector`] and compiled once per instruction set: the generic code
//! is a [`Kernel`], and [`Vector::run`] is the one function of its instruction set that carries the target features.
//!
//! A vector can only be made by an `unsafe` constructor, so a value of one proves that the instructions exist; arithmetic
//! on values is safe. Everything here is `#[inline(always)]`, because a call between functions of different target
//! features would pass vectors through memory.

use std::ops::{Add, Div, Mul, Sub};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
mod portable;

#[cfg(target_arch = "x86_64")]
pub use avx2::F32x8;
#[cfg(target_arch = "x86_64")]
pub use avx512::F32x16;
pub use portable::Portable;

/// Code that is compiled for the instruction set of a vector. Implementations are `#[inline(always)]`.
pub trait Kernel {
    /// What it gives back.
    type Output;

    /// Runs it with vectors of type `V`.
    ///
    /// # Safety
    /// The machine has the instructions of `V`, and the kernel's pointers are as its own documentation asks.
    unsafe fn run<V: Vector>(self) -> Self::Output;
}

/// A few f32 side by side, 16 being a multiple of how many.
pub trait Vector:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + 'static
{
    /// How many.
    const LANES: usize;

    /// One truth value per lane.
    type Mask: Copy;

    /// Runs `kernel` in a function that is compiled for this instruction set.
    ///
    /// # Safety
    /// The machine has the instructions, and the kernel's pointers are as its own documentation asks.
    unsafe fn run<K: Kernel>(kernel: K) -> K::Output;

    /// The same value in each lane.
    ///
    /// # Safety
    /// The machine has the instructions of this vector.
    unsafe fn splat(value: f32) -> Self;

    /// `LANES` floats from memory of any alignment.
    ///
    /// # Safety
    /// The machine has the instructions, and that many floats can be read.
    unsafe fn load(from: *const f32) -> Self;

    /// The first `count` floats, fewer than `LANES`, and what `rest` holds in the other lanes.
    ///
    /// # Safety
    /// `count` floats can be read.
    unsafe fn load_first(from: *const f32, count: usize, rest: Self) -> Self;

    /// Writes `LANES` floats to memory of any alignment.
    ///
    /// # Safety
    /// That many floats can be written.
    unsafe fn store(self, to: *mut f32);

    /// Writes the first `count` lanes, fewer than `LANES`, and nothing behind them.
    ///
    /// # Safety
    /// `count` floats can be written.
    unsafe fn store_first(self, to: *mut f32, count: usize);

    /// `self * factor + addend`, rounded once where the instruction set can, else twice.
    fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// `self > other ? self : other` per lane: `other` where one of them is NaN.
    fn max(self, other: Self) -> Self;

    /// `self < other ? self : other` per lane: `other` where one of them is NaN.
    fn min(self, other: Self) -> Self;

    /// The magnitude.
    fn abs(self) -> Self;

    /// The square root.
    fn sqrt(self) -> Self;

    /// Which lanes are NaN.
    fn is_nan(self) -> Self::Mask;

    /// `yes` where the mask is set, `no` elsewhere.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// 2ⁿ of a lane that holds 1.5 · 2²³ + n, for whole n from -127 to 127; zero for n = -127.
    fn power_of_two(self) -> Self;

    /// The sum of all lanes, added in one fixed order.
    fn sum(self) -> f32;

    /// The greatest lane. Which one wins is not defined if some are NaN.
    fn greatest(self) -> f32;

    /// All of `LANES` floats, or where fewer are left the first `count` of them and then what `rest` holds.
    ///
    /// # Safety
    /// `count` or `LANES` floats, whichever is less, can be read.
    #[inline(always)]
    unsafe fn load_up_to(from: *const f32, count: usize, rest: Self) -> Self {
        // SAFETY: the caller's promise; the instructions exist since `rest` does.
        unsafe { if count >= Self::LANES { Self::load(from) } else { Self::load_first(from, count, rest) } }
    }

    /// Writes all lanes, or the first `count` of them where fewer are left.
    ///
    /// # Safety
    /// `count` or `LANES` floats, whichever is less, can be written.
    #[inline(always)]
    unsafe fn store_up_to(self, to: *mut f32, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { if count >= Self::LANES { self.store(to) } else { self.store_first(to, count) } }
    }
}

/// Operators of a vector type, each by one function or intrinsic.
#[cfg(target_arch = "x86_64")]
macro_rules! operators {
    ($vector:ident, $($operator:ident $method:ident $intrinsic:ident),+) => {
        $(impl std::ops::$operator for $vector {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: a value of this type exists only where its instructions do.
                Self(unsafe { $intrinsic(self.0, other.0) })
            }
        })+
    };
}
#[cfg(target_arch = "x86_64")]
use operators;
