//! Vectors in plain Rust, for machines of which nothing is known and as a model of wider ones.

use std::array::from_fn;
use std::ops::{Add, Div, Mul, Sub};

use super::{Kernel, Vector};

/// `N` lanes in an array. With `FUSED`, products are added with one rounding, exactly as FMA instructions do (slow where
/// the machine has none); without, with two.
#[derive(Clone, Copy)]
pub struct Portable<const N: usize, const FUSED: bool>([f32; N]);

macro_rules! operator {
    ($operator:ident $method:ident $assign:tt) => {
        impl<const N: usize, const FUSED: bool> $operator for Portable<N, FUSED> {
            type Output = Self;
            #[inline(always)]
            fn $method(mut self, other: Self) -> Self {
                for lane in 0..N {
                    self.0[lane] $assign other.0[lane];
                }
                self
            }
        }
    };
}
operator!(Add add +=);
operator!(Sub sub -=);
operator!(Mul mul *=);
operator!(Div div /=);

impl<const N: usize, const FUSED: bool> Vector for Portable<N, FUSED> {
    const LANES: usize = N;

    type Mask = [bool; N];

    unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: plain Rust needs no special instructions; the rest is the caller's promise.
        unsafe { kernel.run::<Self>() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; N])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; an array of floats read without assuming alignment.
        Self(unsafe { from.cast::<[f32; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize, mut rest: Self) -> Self {
        for (lane, value) in rest.0.iter_mut().enumerate().take(count) {
            // SAFETY: the caller's promise, `lane` being below `count`.
            *value = unsafe { from.add(lane).read_unaligned() };
        }
        rest
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise; an array of floats written without assuming alignment.
        unsafe { to.cast::<[f32; N]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        for (lane, value) in self.0.into_iter().enumerate().take(count) {
            // SAFETY: the caller's promise, `lane` being below `count`.
            unsafe { to.add(lane).write_unaligned(value) }
        }
    }

    #[inline(always)]
    fn mul_add(mut self, factor: Self, addend: Self) -> Self {
        for lane in 0..N {
            self.0[lane] = if FUSED {
                self.0[lane].mul_add(factor.0[lane], addend.0[lane])
            } else {
                self.0[lane] * factor.0[lane] + addend.0[lane]
            };
        }
        self
    }

    #[inline(always)]
    fn max(mut self, other: Self) -> Self {
        for lane in 0..N {
            self.0[lane] = if self.0[lane] > other.0[lane] { self.0[lane] } else { other.0[lane] };
        }
        self
    }

    #[inline(always)]
    fn min(mut self, other: Self) -> Self {
        for lane in 0..N {
            self.0[lane] = if self.0[lane] < other.0[lane] { self.0[lane] } else { other.0[lane] };
        }
        self
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.map(f32::abs))
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.map(f32::sqrt))
    }

    #[inline(always)]
    fn is_nan(self) -> [bool; N] {
        self.0.map(f32::is_nan)
    }

    #[inline(always)]
    fn select(mask: [bool; N], yes: Self, no: Self) -> Self {
        Self(from_fn(|lane| if mask[lane] { yes.0[lane] } else { no.0[lane] }))
    }

    #[inline(always)]
    fn power_of_two(self) -> Self {
        Self(self.0.map(|value| f32::from_bits(value.to_bits().wrapping_add(127) << 23)))
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let (mut lanes, mut width) = (self.0, N);
        while width > 1 {
            width /= 2;
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
        }
        lanes[0]
    }

    #[inline(always)]
    fn greatest(self) -> f32 {
        self.0.into_iter().fold(f32::NEG_INFINITY, |most, lane| if lane > most { lane } else { most })
    }
}
