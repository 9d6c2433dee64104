//! Eight lanes with AVX2 and FMA.

use std::arch::x86_64::*;

use super::{Kernel, Vector, operators};

/// Eight lanes in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F32x8(__m256);

operators!(F32x8, Add add _mm256_add_ps, Sub sub _mm256_sub_ps, Mul mul _mm256_mul_ps, Div div _mm256_div_ps);

/// Eight set lanes and eight clear ones; a mask of the first n lanes starts 8 - n lanes into it.
static FIRST_LANES: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// A mask of the first `count` lanes.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn first_lanes(count: usize) -> __m256i {
    debug_assert!(count <= 8);
    // SAFETY: eight of the sixteen lanes, starting at most eight into them.
    unsafe { _mm256_loadu_si256(FIRST_LANES.as_ptr().add(8 - count).cast()) }
}

/// Compiles `kernel` with these instructions.
///
/// # Safety
/// As [`Vector::run`].
#[target_feature(enable = "avx2,fma")]
unsafe fn enter<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's promise.
    unsafe { kernel.run::<F32x8>() }
}

impl Vector for F32x8 {
    const LANES: usize = 8;

    type Mask = __m256;

    #[inline(always)]
    unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: the caller's promise.
        unsafe { enter(kernel) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm256_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize, rest: Self) -> Self {
        // SAFETY: the caller's promise; masked lanes are not read.
        Self(unsafe {
            let mask = first_lanes(count);
            _mm256_blendv_ps(rest.0, _mm256_maskload_ps(from, mask), _mm256_castsi256_ps(mask))
        })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        // SAFETY: the caller's promise; masked lanes are not written.
        unsafe { _mm256_maskstore_ps(to, first_lanes(count), self.0) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: a value of this type exists only where its instructions do.
        Self(unsafe { _mm256_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0) })
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn is_nan(self) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0) }
    }

    #[inline(always)]
    fn select(mask: __m256, yes: Self, no: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_blendv_ps(no.0, yes.0, mask) })
    }

    #[inline(always)]
    fn power_of_two(self) -> Self {
        // SAFETY: as above.
        Self(unsafe {
            let biased = _mm256_add_epi32(_mm256_castps_si256(self.0), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        })
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: as above.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    fn greatest(self) -> f32 {
        // SAFETY: as above.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}
