//! Sixteen lanes with the AVX-512 of Skylake servers: F, CD, BW, DQ and VL.

use std::arch::x86_64::*;

use super::{Kernel, Vector, Words, operators};

/// Sixteen lanes in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F32x16(__m512);

lanes!([] F32x16, 16, Vector, f32, 0.0);
lanes!([] I32x16, 16, Words, u32, 0);

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
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512cd,avx512bw,avx512dq,avx512vl")]
unsafe fn enter<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's promise.
    unsafe { kernel.run::<F32x16>() }
}

impl F32x16 {
    /// The register itself.
    #[inline(always)]
    pub(in crate::kernels) fn register(self) -> __m512 {
        self.0
    }

    /// A register as a vector.
    ///
    /// # Safety
    /// The machine has the instructions of this vector.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn of(register: __m512) -> Self {
        Self(register)
    }
}

impl Vector for F32x16 {
    const LANES: usize = 16;

    type Mask = __mmask16;

    type Words = I32x16;

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
    fn to_words(self) -> I32x16 {
        // SAFETY: as above.
        I32x16(unsafe { _mm512_castps_si512(self.0) })
    }

    #[inline(always)]
    fn from_words(words: I32x16) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_castsi512_ps(words.0) })
    }

    #[inline(always)]
    fn round(self) -> I32x16 {
        // SAFETY: as above; every call computes in the default rounding mode, to nearest even.
        I32x16(unsafe { _mm512_cvtps_epi32(self.0) })
    }

    #[inline(always)]
    fn convert(words: I32x16) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_cvtepi32_ps(words.0) })
    }

    #[inline(always)]
    fn widen_f16(words: I32x16) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words.0)) })
    }

    #[inline(always)]
    fn to_f16(self) -> I32x16 {
        // SAFETY: as above.
        I32x16(unsafe { _mm512_cvtepu16_epi32(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) })
    }

    #[inline(always)]
    fn hadamard(self) -> Self {
        /// Adds to `other`, which holds the lanes at a distance, or subtracts where `high` is set.
        #[inline(always)]
        unsafe fn step(lanes: __m512, other: __m512, high: __mmask16) -> __m512 {
            // SAFETY: the caller has the instructions. A product by one is exact, so that this is a sum or a difference.
            unsafe {
                let one = _mm512_set1_ps(1.0);
                let signs = _mm512_mask_blend_ps(high, one, _mm512_set1_ps(-1.0));
                _mm512_fmadd_ps(lanes, signs, other)
            }
        }
        // SAFETY: as above.
        unsafe {
            let lanes = step(self.0, _mm512_permute_ps::<0b10_11_00_01>(self.0), 0xaaaa);
            let lanes = step(lanes, _mm512_permute_ps::<0b01_00_11_10>(lanes), 0xcccc);
            let lanes = step(lanes, _mm512_shuffle_f32x4::<0b10_11_00_01>(lanes, lanes), 0xf0f0);
            Self(step(lanes, _mm512_shuffle_f32x4::<0b01_00_11_10>(lanes, lanes), 0xff00))
        }
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

/// Sixteen words in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct I32x16(__m512i);

impl I32x16 {
    /// The register itself.
    #[inline(always)]
    pub(in crate::kernels) fn register(self) -> __m512i {
        self.0
    }

    /// A register as words.
    ///
    /// # Safety
    /// The machine has the instructions of these words.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn of(register: __m512i) -> Self {
        Self(register)
    }
}

impl Words for I32x16 {
    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm512_set1_epi32(word as i32) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(self.0)) }
    }

    #[inline(always)]
    unsafe fn store_halves(self, to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(self.0)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: a value of this type exists only where its instructions do.
        Self(unsafe { _mm512_add_epi32(self.0, other.0) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_mullo_epi32(self.0, other.0) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_max_epi32(self.0, other.0) })
    }

    #[inline(always)]
    fn greatest(self) -> u32 {
        // SAFETY: as above.
        unsafe {
            let lanes = _mm512_max_epi32(self.0, _mm512_shuffle_i32x4::<0b01_00_11_10>(self.0, self.0));
            let lanes = _mm512_max_epi32(lanes, _mm512_shuffle_i32x4::<0b10_11_00_01>(lanes, lanes));
            let four = _mm512_castsi512_si128(lanes);
            let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            let one = _mm_max_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
            _mm_cvtsi128_si32(one) as u32
        }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_and_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn low_half_up(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_slli_epi32::<16>(self.0) })
    }

    #[inline(always)]
    fn high_half_down(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_srli_epi32::<16>(self.0) })
    }

    #[inline(always)]
    fn even_bytes(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(self.0)) })
    }

    #[inline(always)]
    fn odd_bytes(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_srai_epi16::<8>(self.0) })
    }

    #[inline(always)]
    fn multiply_halves(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_madd_epi16(self.0, other.0) })
    }
}
