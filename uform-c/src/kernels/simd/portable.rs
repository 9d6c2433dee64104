//! Vectors in plain Rust, for machines of which nothing is known and as a model of wider ones.

use std::array::from_fn;
use std::ops::{Add, Div, Mul, Sub};

use half::f16;

use super::{Kernel, Vector, Words};

/// `N` lanes in an array. With `FUSED`, products are added with one rounding, exactly as FMA instructions do (slow where
/// the machine has none); without, with two.
#[derive(Clone, Copy)]
pub struct Portable<const N: usize, const FUSED: bool>([f32; N]);

lanes!([const N: usize, const FUSED: bool] Portable<N, FUSED>, N, Vector, f32, 0.0);
lanes!([const N: usize] PortableWords<N>, N, Words, u32, 0);

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

    type Words = PortableWords<N>;

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
    fn to_words(self) -> PortableWords<N> {
        PortableWords(self.0.map(f32::to_bits))
    }

    #[inline(always)]
    fn from_words(words: PortableWords<N>) -> Self {
        Self(words.0.map(f32::from_bits))
    }

    #[inline(always)]
    fn round(self) -> PortableWords<N> {
        PortableWords(self.0.map(|value| value.round_ties_even() as i32 as u32))
    }

    #[inline(always)]
    fn convert(words: PortableWords<N>) -> Self {
        Self(words.0.map(|word| word as i32 as f32))
    }

    #[inline(always)]
    fn widen_f16(words: PortableWords<N>) -> Self {
        Self(words.0.map(|word| f16::from_bits(word as u16).to_f32_const()))
    }

    #[inline(always)]
    fn to_f16(self) -> PortableWords<N> {
        PortableWords(self.0.map(|value| u32::from(f16::from_f32_const(value).to_bits())))
    }

    #[inline(always)]
    fn hadamard(mut self) -> Self {
        let mut distance = 1;
        while distance < N {
            for lane in (0..N).filter(|lane| lane & distance == 0) {
                let (low, high) = (self.0[lane], self.0[lane + distance]);
                (self.0[lane], self.0[lane + distance]) = (low + high, low - high);
            }
            distance *= 2;
        }
        self
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

/// `N` words in an array.
#[derive(Clone, Copy)]
pub struct PortableWords<const N: usize>([u32; N]);

/// The signed halves of a word, the low one first.
#[inline(always)]
fn halves(word: u32) -> [i32; 2] {
    [i32::from(word as i16), i32::from((word >> 16) as i16)]
}

impl<const N: usize> Words for PortableWords<N> {
    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        Self([word; N])
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller's promise; an array of words read without assuming alignment.
        Self(unsafe { from.cast::<[u32; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's promise; an array of words written without assuming alignment.
        unsafe { to.cast::<[u32; N]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u8; N]>().write_unaligned(self.0.map(|word| word as u8)) }
    }

    #[inline(always)]
    unsafe fn store_halves(self, to: *mut u16) {
        // SAFETY: the caller's promise; written without assuming alignment.
        unsafe { to.cast::<[u16; N]>().write_unaligned(self.0.map(|word| word as u16)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(from_fn(|lane| self.0[lane].wrapping_add(other.0[lane])))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(from_fn(|lane| self.0[lane].wrapping_mul(other.0[lane])))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(from_fn(|lane| (self.0[lane] as i32).max(other.0[lane] as i32) as u32))
    }

    #[inline(always)]
    fn greatest(self) -> u32 {
        self.0.into_iter().fold(i32::MIN, |most, word| most.max(word as i32)) as u32
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self(from_fn(|lane| self.0[lane] & other.0[lane]))
    }

    #[inline(always)]
    fn low_half_up(self) -> Self {
        Self(self.0.map(|word| word << 16))
    }

    #[inline(always)]
    fn high_half_down(self) -> Self {
        Self(self.0.map(|word| word >> 16))
    }

    #[inline(always)]
    fn even_bytes(self) -> Self {
        let extend = |byte: u32| u32::from(i16::from(byte as i8) as u16);
        Self(self.0.map(|word| extend(word) | extend(word >> 16) << 16))
    }

    #[inline(always)]
    fn odd_bytes(self) -> Self {
        Self(self.0.map(|word| word >> 8)).even_bytes()
    }

    #[inline(always)]
    fn multiply_halves(self, other: Self) -> Self {
        Self(from_fn(|lane| {
            let ([a, b], [c, d]) = (halves(self.0[lane]), halves(other.0[lane]));
            (a * c).wrapping_add(b * d) as u32
        }))
    }
}
