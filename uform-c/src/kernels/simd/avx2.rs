//! Eight lanes with AVX2, FMA and the conversions of F16C.

use std::arch::x86_64::*;

use super::{Kernel, Vector, Words, operators};

/// Eight lanes in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F32x8(__m256);

lanes!([] F32x8, 8, Vector, f32, 0.0);
lanes!([] I32x8, 8, Words, u32, 0);

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
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn enter<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's promise.
    unsafe { kernel.run::<F32x8>() }
}

impl Vector for F32x8 {
    const LANES: usize = 8;

    type Mask = __m256;

    type Words = I32x8;

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
    fn to_words(self) -> I32x8 {
        // SAFETY: as above.
        I32x8(unsafe { _mm256_castps_si256(self.0) })
    }

    #[inline(always)]
    fn from_words(words: I32x8) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_castsi256_ps(words.0) })
    }

    #[inline(always)]
    fn round(self) -> I32x8 {
        // SAFETY: as above; every call computes in the default rounding mode, to nearest even.
        I32x8(unsafe { _mm256_cvtps_epi32(self.0) })
    }

    #[inline(always)]
    fn convert(words: I32x8) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_cvtepi32_ps(words.0) })
    }

    #[inline(always)]
    fn widen_f16(words: I32x8) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_cvtph_ps(low_halves(words.0)) })
    }

    #[inline(always)]
    fn to_f16(self) -> I32x8 {
        // SAFETY: as above.
        I32x8(unsafe { _mm256_cvtepu16_epi32(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) })
    }

    #[inline(always)]
    fn hadamard(self) -> Self {
        // SAFETY: as above; of a sum and a difference, the one for the upper lanes is chosen there.
        unsafe {
            let other = _mm256_permute_ps::<0b10_11_00_01>(self.0);
            let sum = _mm256_add_ps(self.0, other);
            let lanes = _mm256_blend_ps::<0b1010_1010>(sum, _mm256_sub_ps(other, self.0));
            let other = _mm256_permute_ps::<0b01_00_11_10>(lanes);
            let sum = _mm256_add_ps(lanes, other);
            let lanes = _mm256_blend_ps::<0b1100_1100>(sum, _mm256_sub_ps(other, lanes));
            let other = _mm256_permute2f128_ps::<1>(lanes, lanes);
            let sum = _mm256_add_ps(lanes, other);
            Self(_mm256_blend_ps::<0b1111_0000>(sum, _mm256_sub_ps(other, lanes)))
        }
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

/// The low halves of eight words, side by side.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn low_halves(words: __m256i) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
        let packed = _mm256_packus_epi32(low, low);
        _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b10_00>(packed))
    }
}

/// Eight words in one register.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct I32x8(__m256i);

impl I32x8 {
    /// The register itself.
    #[inline(always)]
    pub(in crate::kernels) fn register(self) -> __m256i {
        self.0
    }

    /// A register as words.
    ///
    /// # Safety
    /// The machine has the instructions of these words.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn of(register: __m256i) -> Self {
        Self(register)
    }
}

impl Words for I32x8 {
    #[inline(always)]
    unsafe fn splat(word: u32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm256_set1_epi32(word as i32) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = _mm256_and_si256(self.0, _mm256_set1_epi32(0xff));
            let halves = low_halves(bytes);
            _mm_storel_epi64(to.cast(), _mm_packus_epi16(halves, halves));
        }
    }

    #[inline(always)]
    unsafe fn store_halves(self, to: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.cast(), low_halves(self.0)) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: a value of this type exists only where its instructions do.
        Self(unsafe { _mm256_add_epi32(self.0, other.0) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_mullo_epi32(self.0, other.0) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_max_epi32(self.0, other.0) })
    }

    #[inline(always)]
    fn greatest(self) -> u32 {
        // SAFETY: as above.
        unsafe {
            let four = _mm_max_epi32(_mm256_castsi256_si128(self.0), _mm256_extracti128_si256::<1>(self.0));
            let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            let one = _mm_max_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
            _mm_cvtsi128_si32(one) as u32
        }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_and_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn low_half_up(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_slli_epi32::<16>(self.0) })
    }

    #[inline(always)]
    fn high_half_down(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_srli_epi32::<16>(self.0) })
    }

    #[inline(always)]
    fn even_bytes(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(self.0)) })
    }

    #[inline(always)]
    fn odd_bytes(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_srai_epi16::<8>(self.0) })
    }

    #[inline(always)]
    fn multiply_halves(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm256_madd_epi16(self.0, other.0) })
    }
}
