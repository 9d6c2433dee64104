//! Four lanes with the fixed-width vectors of WebAssembly, which a module has throughout or not at all. No instruction here
//! may round otherwise than IEEE 754 says, so that every engine gives the same bits, those of NaN aside.

use std::arch::wasm32::*;

use super::{Kernel, Vector, Words, operators};

/// Four lanes in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F32x4(v128);

lanes!([] F32x4, 4, Vector, f32, 0.0);
lanes!([] I32x4, 4, Words, u32, 0);

operators!(F32x4, Add add f32x4_add, Sub sub f32x4_sub, Mul mul f32x4_mul, Div div f32x4_div);

/// The bit of the sign.
const SIGN: u32 = 0x8000_0000;

impl Vector for F32x4 {
    const LANES: usize = 4;

    type Mask = v128;

    type Words = I32x4;

    #[inline(always)]
    unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the caller's promise; the whole module has these instructions.
        unsafe { kernel.run::<Self>() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self(f32x4_splat(value))
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; loads of any alignment are legal.
        Self(unsafe { v128_load(from.cast()) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize, rest: Self) -> Self {
        debug_assert!(count < 4);
        let mut lanes = rest.0;
        // SAFETY: the caller's promise; a lane is read where `count` is above its number.
        unsafe {
            if count > 0 {
                lanes = f32x4_replace_lane::<0>(lanes, from.read_unaligned());
            }
            if count > 1 {
                lanes = f32x4_replace_lane::<1>(lanes, from.add(1).read_unaligned());
            }
            if count > 2 {
                lanes = f32x4_replace_lane::<2>(lanes, from.add(2).read_unaligned());
            }
        }
        Self(lanes)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise; stores of any alignment are legal.
        unsafe { v128_store(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        debug_assert!(count < 4);
        // SAFETY: the caller's promise; a lane is written where `count` is above its number.
        unsafe {
            if count > 0 {
                to.write_unaligned(f32x4_extract_lane::<0>(self.0));
            }
            if count > 1 {
                to.add(1).write_unaligned(f32x4_extract_lane::<1>(self.0));
            }
            if count > 2 {
                to.add(2).write_unaligned(f32x4_extract_lane::<2>(self.0));
            }
        }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self * factor + addend
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // The second where it is the greater one, else the first, whatever that is.
        Self(f32x4_pmax(other.0, self.0))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(f32x4_pmin(other.0, self.0))
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(f32x4_abs(self.0))
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(f32x4_sqrt(self.0))
    }

    #[inline(always)]
    fn is_nan(self) -> v128 {
        f32x4_ne(self.0, self.0)
    }

    #[inline(always)]
    fn select(mask: v128, yes: Self, no: Self) -> Self {
        Self(v128_bitselect(yes.0, no.0, mask))
    }

    #[inline(always)]
    fn power_of_two(self) -> Self {
        Self(i32x4_shl(i32x4_add(self.0, i32x4_splat(127)), 23))
    }

    #[inline(always)]
    fn to_words(self) -> I32x4 {
        I32x4(self.0)
    }

    #[inline(always)]
    fn from_words(words: I32x4) -> Self {
        Self(words.0)
    }

    #[inline(always)]
    fn round(self) -> I32x4 {
        I32x4(i32x4_trunc_sat_f32x4(f32x4_nearest(self.0)))
    }

    #[inline(always)]
    fn convert(words: I32x4) -> Self {
        Self(f32x4_convert_i32x4(words.0))
    }

    #[inline(always)]
    fn widen_f16(words: I32x4) -> Self {
        // With the exponent's bias of an f16 it is a float 2¹¹² times too small, which is exact for subnormal ones too.
        let magnitude = i32x4_shl(v128_and(words.0, u32x4_splat(0x7fff)), 13);
        let value = f32x4_mul(magnitude, f32x4_splat(f32::from_bits((127 + 112) << 23)));
        // Exponents of all ones stay such.
        let special = i32x4_ge(magnitude, u32x4_splat(0x7c00 << 13));
        let value = v128_or(value, v128_and(special, u32x4_splat(0x7f80_0000)));
        let sign = v128_and(i32x4_shl(words.0, 16), u32x4_splat(SIGN));
        Self(v128_or(value, sign))
    }

    #[inline(always)]
    fn to_f16(self) -> I32x4 {
        let magnitude = v128_and(self.0, u32x4_splat(!SIGN));
        // Half of the last bit that stays, less one where that is even, rounds ties to even; carries reach the exponent.
        let odd = v128_and(u32x4_shr(magnitude, 13), u32x4_splat(1));
        let bias = u32x4_splat(0xfff_u32.wrapping_sub(112 << 23));
        let normal = u32x4_shr(i32x4_add(i32x4_add(magnitude, bias), odd), 13);
        // The sum with a float whose last bit is that of a subnormal f16 is rounded as such.
        let last = f32x4_splat(0.5);
        let subnormal = i32x4_sub(f32x4_add(magnitude, last), last);
        let small = i32x4_lt(magnitude, u32x4_splat((127 - 14) << 23));
        let value = v128_bitselect(subnormal, normal, small);
        // From 65,520 on it is infinite.
        let value = v128_bitselect(u32x4_splat(0x7c00), value, i32x4_ge(magnitude, u32x4_splat(0x477f_f000)));
        let nan = v128_or(v128_and(u32x4_shr(magnitude, 13), u32x4_splat(0x7fff)), u32x4_splat(0x7e00));
        let value = v128_bitselect(nan, value, self.is_nan());
        I32x4(v128_or(value, v128_and(u32x4_shr(self.0, 16), u32x4_splat(0x8000))))
    }

    #[inline(always)]
    fn hadamard(self) -> Self {
        let minus = v128_xor(i32x4_shuffle::<1, 1, 3, 3>(self.0, self.0), u32x4(0, SIGN, 0, SIGN));
        let pairs = f32x4_add(i32x4_shuffle::<0, 0, 2, 2>(self.0, self.0), minus);
        let minus = v128_xor(i32x4_shuffle::<2, 3, 2, 3>(pairs, pairs), u32x4(0, 0, SIGN, SIGN));
        Self(f32x4_add(i32x4_shuffle::<0, 1, 0, 1>(pairs, pairs), minus))
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let pairs = f32x4_add(self.0, i32x4_shuffle::<2, 3, 0, 1>(self.0, self.0));
        f32x4_extract_lane::<0>(pairs) + f32x4_extract_lane::<1>(pairs)
    }

    #[inline(always)]
    fn greatest(self) -> f32 {
        let pairs = f32x4_pmax(self.0, i32x4_shuffle::<2, 3, 0, 1>(self.0, self.0));
        f32x4_extract_lane::<0>(f32x4_pmax(pairs, i32x4_shuffle::<1, 0, 3, 2>(pairs, pairs)))
    }
}

/// Four words in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct I32x4(v128);

impl Words for I32x4 {
    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        Self(u32x4_splat(word))
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller's promise; loads of any alignment are legal.
        Self(unsafe { v128_load(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's promise; stores of any alignment are legal.
        unsafe { v128_store(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8) {
        let bytes = i8x16_shuffle::<0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12>(self.0, self.0);
        // SAFETY: the caller's promise; four bytes of any alignment.
        unsafe { v128_store32_lane::<0>(bytes, to.cast()) }
    }

    #[inline(always)]
    unsafe fn store_halves(self, to: *mut u16) {
        let halves = i16x8_shuffle::<0, 2, 4, 6, 0, 2, 4, 6>(self.0, self.0);
        // SAFETY: the caller's promise; eight bytes of any alignment.
        unsafe { v128_store64_lane::<0>(halves, to.cast()) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self(i32x4_add(self.0, other.0))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self(i32x4_mul(self.0, other.0))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(i32x4_max(self.0, other.0))
    }

    #[inline(always)]
    fn greatest(self) -> u32 {
        let pairs = i32x4_max(self.0, i32x4_shuffle::<2, 3, 0, 1>(self.0, self.0));
        u32x4_extract_lane::<0>(i32x4_max(pairs, i32x4_shuffle::<1, 0, 3, 2>(pairs, pairs)))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self(v128_and(self.0, other.0))
    }

    #[inline(always)]
    fn low_half_up(self) -> Self {
        Self(i32x4_shl(self.0, 16))
    }

    #[inline(always)]
    fn high_half_down(self) -> Self {
        Self(u32x4_shr(self.0, 16))
    }

    #[inline(always)]
    fn even_bytes(self) -> Self {
        Self(i16x8_shr(i16x8_shl(self.0, 8), 8))
    }

    #[inline(always)]
    fn odd_bytes(self) -> Self {
        Self(i16x8_shr(self.0, 8))
    }

    #[inline(always)]
    fn multiply_halves(self, other: Self) -> Self {
        Self(i32x4_dot_i16x8(self.0, other.0))
    }
}
