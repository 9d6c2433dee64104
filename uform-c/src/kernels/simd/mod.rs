//! Vectors of f32. Every kernel is written once over [`Vector`] and compiled once per instruction set: the generic code
//! is a [`Kernel`], and [`Vector::run`] is the one function of its instruction set that carries the target features.
//!
//! A vector can only be made by an `unsafe` constructor, so a value of one proves that the instructions exist; arithmetic
//! on values is safe. Everything here is `#[inline(always)]`, because a call between functions of different target
//! features would pass vectors through memory.

use std::ops::{Add, Div, Mul, Sub};

/// Implements [`Lanes`] for a type that is `Vector` over f32 or `Words` over u32.
macro_rules! lanes {
    ([$($parameters:tt)*] $register:ty, $count:expr, $trait:ident, $element:ty, $zero:expr) => {
        impl<$($parameters)*> super::Lanes for $register {
            const COUNT: usize = $count;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller's promise.
                unsafe { <Self as super::$trait>::splat($zero) }
            }

            #[inline(always)]
            unsafe fn repeat(from: *const u32) -> Self {
                // SAFETY: the caller's promise.
                unsafe { <Self as super::$trait>::splat(from.cast::<$element>().read_unaligned()) }
            }

            #[inline(always)]
            unsafe fn read(from: *const u32) -> Self {
                // SAFETY: the caller's promise.
                unsafe { <Self as super::$trait>::load(from.cast()) }
            }

            #[inline(always)]
            unsafe fn write(self, to: *mut u32) {
                // SAFETY: the caller's promise.
                unsafe { <Self as super::$trait>::store(self, to.cast()) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod v128;

#[cfg(target_arch = "x86_64")]
pub use avx2::{F32x8, I32x8};
#[cfg(target_arch = "x86_64")]
pub use avx512::{F32x16, I32x16};
#[cfg(target_arch = "aarch64")]
pub use neon::{F32x4, I32x4};
pub use portable::{Portable, PortableWords};
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub use v128::{F32x4, I32x4};

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

/// A register seen as lanes of 32 bits, whatever they hold.
pub trait Lanes: Copy + 'static {
    /// How many lanes.
    const COUNT: usize;

    /// All bits zero.
    ///
    /// # Safety
    /// The machine has the instructions of this register.
    unsafe fn zero() -> Self;

    /// The word at `from`, of any alignment, in each lane.
    ///
    /// # Safety
    /// The machine has the instructions, and a word can be read.
    unsafe fn repeat(from: *const u32) -> Self;

    /// `COUNT` words from memory of any alignment.
    ///
    /// # Safety
    /// The machine has the instructions, and that many words can be read.
    unsafe fn read(from: *const u32) -> Self;

    /// Writes all lanes to memory of any alignment.
    ///
    /// # Safety
    /// `COUNT` words can be written.
    unsafe fn write(self, to: *mut u32);
}

/// As many words of 32 bits as a vector has lanes. Arithmetic wraps around.
pub trait Words: Lanes {
    /// The same word in each lane.
    ///
    /// # Safety
    /// The machine has the instructions of these words.
    unsafe fn splat(word: u32) -> Self;

    /// A whole register of words from memory of any alignment.
    ///
    /// # Safety
    /// The machine has the instructions, and that many words can be read.
    unsafe fn load(from: *const u32) -> Self;

    /// Writes all words to memory of any alignment.
    ///
    /// # Safety
    /// That many words can be written.
    unsafe fn store(self, to: *mut u32);

    /// Writes the low byte of each word, side by side.
    ///
    /// # Safety
    /// As many bytes as there are words can be written.
    unsafe fn store_bytes(self, to: *mut u8);

    /// Writes the low half of each word, side by side.
    ///
    /// # Safety
    /// As many halves as there are words can be written.
    unsafe fn store_halves(self, to: *mut u16);

    /// The sum of each two words.
    fn add(self, other: Self) -> Self;

    /// The low 32 bits of the product of each two words.
    fn mul(self, other: Self) -> Self;

    /// The greater of each two words as signed integers.
    fn max(self, other: Self) -> Self;

    /// The greatest word as a signed integer.
    fn greatest(self) -> u32;

    /// The bits that are set in both.
    fn and(self, other: Self) -> Self;

    /// Each word's low half in its high half, over zeros.
    fn low_half_up(self) -> Self;

    /// Each word's high half in its low half, under zeros.
    fn high_half_down(self) -> Self;

    /// The bytes 0 and 2 of each word, sign-extended to its two halves.
    fn even_bytes(self) -> Self;

    /// The bytes 1 and 3 of each word, sign-extended to its two halves.
    fn odd_bytes(self) -> Self;

    /// The sum of the products of the signed halves of each two words.
    fn multiply_halves(self, other: Self) -> Self;
}

/// A few f32 side by side, 16 being a multiple of how many.
pub trait Vector:
    Lanes + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// How many.
    const LANES: usize;

    /// One truth value per lane.
    type Mask: Copy;

    /// The same register as integers.
    type Words: Words;

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

    /// The bits of each lane.
    fn to_words(self) -> Self::Words;

    /// The lanes that have those bits.
    fn from_words(words: Self::Words) -> Self;

    /// The nearest signed integer of each lane, the even one of two that are equally near. Lanes are within ±2³¹.
    fn round(self) -> Self::Words;

    /// The float nearest to each signed integer.
    fn convert(words: Self::Words) -> Self;

    /// The f16 in the low half of each word.
    fn widen_f16(words: Self::Words) -> Self;

    /// The f16 nearest to each lane, ties to even, in the low half of a word under zeros.
    fn to_f16(self) -> Self::Words;

    /// The lanes times a Hadamard matrix of their number: sums and differences of lanes 1, 2, 4, … apart.
    fn hadamard(self) -> Self;

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

/// The bf16 nearest to each lane, ties to even, in the high half of a word over zeros. NaN stays NaN.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn bf16_up<V: Vector>(value: V) -> V::Words {
    // SAFETY: the caller's promise.
    unsafe {
        let words = value.to_words();
        let odd = words.high_half_down().and(V::Words::splat(1));
        let rounded = words.add(odd).add(V::Words::splat(0x7fff));
        let rounded = V::select(value.is_nan(), V::splat(f32::NAN), V::from_words(rounded)).to_words();
        rounded.and(V::Words::splat(0xffff_0000))
    }
}

/// The bf16 nearest to each lane, ties to even, in the low half of a word. Lanes are zero or positive numbers.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn positive_to_bf16<V: Vector>(value: V) -> V::Words {
    // SAFETY: the caller's promise.
    unsafe {
        let words = value.to_words();
        let odd = words.high_half_down().and(V::Words::splat(1));
        words.add(odd).add(V::Words::splat(0x7fff)).high_half_down()
    }
}

/// Operators of a vector type, each by one function or intrinsic.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128"))]
macro_rules! operators {
    ($vector:ident, $($operator:ident $method:ident $intrinsic:ident),+) => {
        $(impl std::ops::$operator for $vector {
            type Output = Self;
            #[inline(always)]
            #[allow(unused_unsafe, reason = "where all modules have the instructions they are safe")]
            fn $method(self, other: Self) -> Self {
                // SAFETY: a value of this type exists only where its instructions do.
                Self(unsafe { $intrinsic(self.0, other.0) })
            }
        })+
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128"))]
use operators;
