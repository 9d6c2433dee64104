//! Four lanes with NEON, which every 64-bit Arm has.

use std::arch::aarch64::*;

use super::{Kernel, Vector, Words, operators};

/// Four lanes in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F32x4(float32x4_t);

lanes!([] F32x4, 4, Vector, f32, 0.0);
lanes!([] I32x4, 4, Words, u32, 0);

operators!(F32x4, Add add vaddq_f32, Sub sub vsubq_f32, Mul mul vmulq_f32, Div div vdivq_f32);

/// Compiles `kernel` with these instructions.
///
/// # Safety
/// As [`Vector::run`].
#[target_feature(enable = "neon")]
unsafe fn enter<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's promise.
    unsafe { kernel.run::<F32x4>() }
}

impl F32x4 {
    /// The register itself.
    #[inline(always)]
    pub(in crate::kernels) fn register(self) -> float32x4_t {
        self.0
    }

    /// A register as a vector.
    ///
    /// # Safety
    /// The machine has the instructions of this vector.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn of(register: float32x4_t) -> Self {
        Self(register)
    }
}

impl Vector for F32x4 {
    const LANES: usize = 4;

    type Mask = uint32x4_t;

    type Words = I32x4;

    #[inline(always)]
    unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the caller's promise.
        unsafe { enter(kernel) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { vdupq_n_f32(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { vld1q_f32(from) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize, rest: Self) -> Self {
        debug_assert!(count < 4);
        let mut lanes = rest.0;
        // SAFETY: the caller's promise; a lane is read where `count` is above its number.
        unsafe {
            if count > 0 {
                lanes = vsetq_lane_f32::<0>(from.read_unaligned(), lanes);
            }
            if count > 1 {
                lanes = vsetq_lane_f32::<1>(from.add(1).read_unaligned(), lanes);
            }
            if count > 2 {
                lanes = vsetq_lane_f32::<2>(from.add(2).read_unaligned(), lanes);
            }
        }
        Self(lanes)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { vst1q_f32(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        debug_assert!(count < 4);
        // SAFETY: the caller's promise; a lane is written where `count` is above its number.
        unsafe {
            if count > 0 {
                to.write_unaligned(vgetq_lane_f32::<0>(self.0));
            }
            if count > 1 {
                to.add(1).write_unaligned(vgetq_lane_f32::<1>(self.0));
            }
            if count > 2 {
                to.add(2).write_unaligned(vgetq_lane_f32::<2>(self.0));
            }
        }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: a value of this type exists only where its instructions do.
        Self(unsafe { vfmaq_f32(addend.0, self.0, factor.0) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: as above. FMAX would be NaN where either is.
        Self(unsafe { vbslq_f32(vcgtq_f32(self.0, other.0), self.0, other.0) })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vbslq_f32(vcltq_f32(self.0, other.0), self.0, other.0) })
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vabsq_f32(self.0) })
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vsqrtq_f32(self.0) })
    }

    #[inline(always)]
    fn is_nan(self) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vmvnq_u32(vceqq_f32(self.0, self.0)) }
    }

    #[inline(always)]
    fn select(mask: uint32x4_t, yes: Self, no: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vbslq_f32(mask, yes.0, no.0) })
    }

    #[inline(always)]
    fn power_of_two(self) -> Self {
        // SAFETY: as above.
        Self(unsafe {
            let biased = vaddq_u32(vreinterpretq_u32_f32(self.0), vdupq_n_u32(127));
            vreinterpretq_f32_u32(vshlq_n_u32::<23>(biased))
        })
    }

    #[inline(always)]
    fn to_words(self) -> I32x4 {
        // SAFETY: as above.
        I32x4(unsafe { vreinterpretq_u32_f32(self.0) })
    }

    #[inline(always)]
    fn from_words(words: I32x4) -> Self {
        // SAFETY: as above.
        Self(unsafe { vreinterpretq_f32_u32(words.0) })
    }

    #[inline(always)]
    fn round(self) -> I32x4 {
        // SAFETY: as above.
        I32x4(unsafe { vreinterpretq_u32_s32(vcvtnq_s32_f32(self.0)) })
    }

    #[inline(always)]
    fn convert(words: I32x4) -> Self {
        // SAFETY: as above.
        Self(unsafe { vcvtq_f32_s32(vreinterpretq_s32_u32(words.0)) })
    }

    #[inline(always)]
    fn widen_f16(words: I32x4) -> Self {
        // SAFETY: as above.
        Self(unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(words.0))) })
    }

    #[inline(always)]
    fn to_f16(self) -> I32x4 {
        // SAFETY: as above; every call computes in the default rounding mode, to nearest even.
        I32x4(unsafe { vmovl_u16(vreinterpret_u16_f16(vcvt_f16_f32(self.0))) })
    }

    #[inline(always)]
    fn hadamard(self) -> Self {
        // SAFETY: as above. A product by one is exact, so that these are sums and differences.
        unsafe {
            let signs = vld1q_f32([1.0, -1.0, 1.0, -1.0].as_ptr());
            let lanes = vfmaq_f32(vtrn1q_f32(self.0, self.0), vtrn2q_f32(self.0, self.0), signs);
            let signs = vld1q_f32([1.0, 1.0, -1.0, -1.0].as_ptr());
            let (low, high) = (vget_low_f32(lanes), vget_high_f32(lanes));
            Self(vfmaq_f32(vcombine_f32(low, low), vcombine_f32(high, high), signs))
        }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: as above.
        unsafe { vpadds_f32(vadd_f32(vget_low_f32(self.0), vget_high_f32(self.0))) }
    }

    #[inline(always)]
    fn greatest(self) -> f32 {
        // SAFETY: as above.
        unsafe { vmaxvq_f32(self.0) }
    }
}

/// Four words in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct I32x4(uint32x4_t);

impl I32x4 {
    /// The register itself.
    #[inline(always)]
    pub(in crate::kernels) fn register(self) -> uint32x4_t {
        self.0
    }

    /// A register as words.
    ///
    /// # Safety
    /// The machine has the instructions of these words.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn of(register: uint32x4_t) -> Self {
        Self(register)
    }

    /// The signed halves of the words.
    #[inline(always)]
    fn halves(self) -> int16x8_t {
        // SAFETY: a value of this type exists only where its instructions do.
        unsafe { vreinterpretq_s16_u32(self.0) }
    }
}

impl Words for I32x4 {
    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { vdupq_n_u32(word) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { vld1q_u32(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { vst1q_u32(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let halves = vmovn_u32(self.0);
            let bytes = vmovn_u16(vcombine_u16(halves, halves));
            to.cast::<u32>().write_unaligned(vget_lane_u32::<0>(vreinterpret_u32_u8(bytes)));
        }
    }

    #[inline(always)]
    unsafe fn store_halves(self, to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { vst1_u16(to, vmovn_u32(self.0)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: a value of this type exists only where its instructions do.
        Self(unsafe { vaddq_u32(self.0, other.0) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vmulq_u32(self.0, other.0) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            let most = vmaxq_s32(vreinterpretq_s32_u32(self.0), vreinterpretq_s32_u32(other.0));
            Self(vreinterpretq_u32_s32(most))
        }
    }

    #[inline(always)]
    fn greatest(self) -> u32 {
        // SAFETY: as above.
        unsafe { vmaxvq_s32(vreinterpretq_s32_u32(self.0)) as u32 }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vandq_u32(self.0, other.0) })
    }

    #[inline(always)]
    fn low_half_up(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vshlq_n_u32::<16>(self.0) })
    }

    #[inline(always)]
    fn high_half_down(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vshrq_n_u32::<16>(self.0) })
    }

    #[inline(always)]
    fn even_bytes(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vreinterpretq_u32_s16(vshrq_n_s16::<8>(vshlq_n_s16::<8>(self.halves()))) })
    }

    #[inline(always)]
    fn odd_bytes(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { vreinterpretq_u32_s16(vshrq_n_s16::<8>(self.halves())) })
    }

    #[inline(always)]
    fn multiply_halves(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            let (value, other) = (self.halves(), other.halves());
            let low = vmull_s16(vget_low_s16(value), vget_low_s16(other));
            Self(vreinterpretq_u32_s32(vpaddq_s32(low, vmull_high_s16(value, other))))
        }
    }
}
