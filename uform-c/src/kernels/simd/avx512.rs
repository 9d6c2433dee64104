//! Sixteen lanes with AVX-512, its foundation alone.

use std::arch::x86_64::*;

use super::{Kernel, Vector, operators};

/// Sixteen lanes in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F32x16(__m512);

operators!(F32x16, Add add _mm512_add_ps, Sub sub _mm512_sub_ps, Mul mul _mm512_mul_ps, Div div _mm512_div_ps);

/// A mask of the first `count` lanes.
#[inline(always)]
fn first_lanes(count: usize) -> __mmask16 {
    debug_assert!(count <= 16);
    ((1u32 << count) - 1) as __mmask16
}

/// Compiles `kernel` with these instructions.
///
/// # Safety
/// As [`Vector::run`].
#[target_feature(enable = "avx2,fma,avx512f")]
unsafe fn enter<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's promise.
    unsafe { kernel.run::<F32x16>() }
}

impl Vector for F32x16 {
    const LANES: usize = 16;

    type Mask = __mmask16;

    #[inline(always)]
    unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the caller's promise.
        unsafe { enter(kernel) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize, rest: Self) -> Self {
        // SAFETY: the caller's promise; masked lanes are not read.
        Self(unsafe { _mm512_mask_loadu_ps(rest.0, first_lanes(count), from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        // SAFETY: the caller's promise; masked lanes are not written.
        unsafe { _mm512_mask_storeu_ps(to, first_lanes(count), self.0) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: a value of this type exists only where its instructions do.
        Self(unsafe { _mm512_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_abs_ps(self.0) })
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn is_nan(self) -> __mmask16 {
        // SAFETY: as above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0) }
    }

    #[inline(always)]
    fn select(mask: __mmask16, yes: Self, no: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_mask_blend_ps(mask, no.0, yes.0) })
    }

    #[inline(always)]
    fn power_of_two(self) -> Self {
        // SAFETY: as above.
        Self(unsafe {
            let biased = _mm512_add_epi32(_mm512_castps_si512(self.0), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        })
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: as above.
        unsafe {
            let lanes = _mm512_add_ps(self.0, _mm512_shuffle_f32x4::<0b01_00_11_10>(self.0, self.0));
            let lanes = _mm512_add_ps(lanes, _mm512_shuffle_f32x4::<0b10_11_00_01>(lanes, lanes));
            let four = _mm512_castps512_ps128(lanes);
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    fn greatest(self) -> f32 {
        // SAFETY: as above.
        unsafe {
            let lanes = _mm512_max_ps(self.0, _mm512_shuffle_f32x4::<0b01_00_11_10>(self.0, self.0));
            let lanes = _mm512_max_ps(lanes, _mm512_shuffle_f32x4::<0b10_11_00_01>(lanes, lanes));
            let four = _mm512_castps512_ps128(lanes);
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}
