//! Functions of f32 that the kernels need, over any vector. The polynomials are minimax fits of ours (Lawson's
//! reweighting, in f64); the errors stated are of the f32 evaluation against f64.

use super::Vector;

/// Two neighbouring terms of a polynomial from number `first` on, or the one that is left.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
unsafe fn two<V: Vector, const N: usize>(x: V, coefficients: &[f32; N], first: usize) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        match first + 1 < N {
            true => V::splat(coefficients[first + 1]).mul_add(x, V::splat(coefficients[first])),
            false => V::splat(coefficients[first]),
        }
    }
}

/// Up to four neighbouring terms.
///
/// # Safety
/// As [`two`].
#[inline(always)]
unsafe fn four<V: Vector, const N: usize>(x: V, square: V, coefficients: &[f32; N], first: usize) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let low = two(x, coefficients, first);
        if first + 2 < N { two(x, coefficients, first + 2).mul_add(square, low) } else { low }
    }
}

/// Evaluates a polynomial of five to twelve coefficients, listed from the constant up, by joining neighbouring terms, then
/// pairs of them and so on (Estrin's scheme): a chain of few steps, which matters more than the operations that Horner's
/// scheme saves.
///
/// # Safety
/// As [`two`].
#[inline(always)]
unsafe fn polynomial<V: Vector, const N: usize>(x: V, coefficients: [f32; N]) -> V {
    const { assert!(N > 4 && N <= 12) }
    // SAFETY: the caller's promise.
    unsafe {
        let square = x * x;
        let fourth = square * square;
        let high = four(x, square, &coefficients, 4);
        let high = if N > 8 { four(x, square, &coefficients, 8).mul_add(fourth, high) } else { high };
        high.mul_add(fourth, four(x, square, &coefficients, 0))
    }
}

/// 2ˣ, within 2 units in the last place for x from -126 to 127. Zero below -126.5, 2¹²⁷·√2 at most; NaN stays NaN.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn exp2<V: Vector>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        // Adding this leaves no bits for a fraction, so the sum is rounded to a whole number, ties to even.
        let rounder = V::splat(12_582_912.0);
        let x = V::splat(-127.0).max(V::splat(127.49).min(x));
        let shifted = x + rounder;
        let fraction = x - (shifted - rounder);
        let coefficients =
            [1.0, 6.931_472e-1, 2.402_264_8e-1, 5.550_332_4e-2, 9.618_437e-3, 1.339_887_4e-3, 1.535_336_2e-4];
        polynomial(fraction, coefficients) * shifted.power_of_two()
    }
}

/// 2ˣ within 1.1e-4 of it, for x up to 127: for results that are rounded to bf16. Zero below -126.5; NaN stays NaN.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn exp2_coarse<V: Vector>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let rounder = V::splat(12_582_912.0);
        let x = V::splat(-127.0).max(x);
        let shifted = x + rounder;
        let fraction = x - (shifted - rounder);
        let cubic = V::splat(5.500_893e-2).mul_add(fraction, V::splat(2.422_109_6e-1));
        let cubic = cubic.mul_add(fraction, V::splat(6.932_829e-1));
        cubic.mul_add(fraction, V::splat(1.0)) * shifted.power_of_two()
    }
}

/// The logistic function 1 / (1 + e⁻ˣ), within 2e-7.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn sigmoid<V: Vector>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let one = V::splat(1.0);
        one / (one + exp2(x * V::splat(-std::f32::consts::LOG2_E)))
    }
}

/// The hyperbolic tangent, within 4e-7 of it relative to it: x times a rational function of x², for |x| up to 9.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn tanh<V: Vector>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let x = V::splat(-9.0).max(V::splat(9.0).min(x));
        let square = x * x;
        let above = polynomial(
            square,
            [
                1.0,
                1.308_401_1e-1,
                3.103_956_8e-3,
                1.115_431_5e-5,
                -2.022_525_6e-8,
                5.277_964e-11,
                -8.488_751_4e-14,
            ],
        );
        let below = four(square, square * square, &[1.0, 4.641_733_8e-1, 2.449_518e-2, 2.546_146_4e-4], 0);
        V::splat(-1.0).max(V::splat(1.0).min(x * above / below))
    }
}

/// x · Φ(x) with the normal distribution Φ, so x · (1 + erf(x / √2)) / 2, within 1e-7 for x below zero and within one unit
/// in the last place above. It is max(x, 0) - |x| · Φ(-|x|), and Φ(-t) is 2 to a polynomial of t, which loses nothing where
/// 1 + erf cancels.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn gelu<V: Vector>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let magnitude = x.abs();
        // Beyond, 2 to the polynomial is zero already.
        let bounded = V::splat(13.25).min(magnitude);
        let exponent = polynomial(
            bounded,
            [
                -1.0,
                -1.151_120_5,
                -4.590_926_8e-1,
                -5.281_175_3e-2,
                7.481_467e-3,
                -4.326_859_5e-4,
                -7.333_54e-5,
                1.802_578_1e-5,
                -1.437_382_7e-6,
                4.007_269_5e-8,
            ],
        );
        let positive = V::splat(0.0).max(x);
        positive - magnitude * exp2(exponent)
    }
}

/// GELU within 1e-4, in half the operations: for results that are rounded to bf16 or bytes next. Φ is 1/2 and an odd
/// polynomial that reaches 0 and 1 at ±4.25, where it ends.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn gelu_coarse<V: Vector>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let bounded = V::splat(-4.25).max(V::splat(4.25).min(x));
        let odd = polynomial(
            bounded * bounded,
            [
                3.984_200_4e-1,
                -6.545_349e-2,
                9.257_82e-3,
                -9.404_468e-4,
                6.552_699e-5,
                -2.938_795_4e-6,
                7.570_808e-8,
                -8.460_373e-10,
            ],
        );
        // A little less than the half, so that rounding leaves nothing of x where the function is zero.
        x * bounded.mul_add(odd, V::splat(0.499_999)).max(V::splat(0.0))
    }
}

/// GELU with its inner function approximated by tanh, x · sigmoid(√(8/π) · (x + 0.044715 x³)), within 4e-7.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn gelu_tanh<V: Vector>(x: V) -> V {
    // SAFETY: the caller's promise.
    unsafe {
        let inner = (x * x).mul_add(V::splat(0.044715), V::splat(1.0)) * x;
        x * sigmoid(inner * V::splat(1.595_769_2))
    }
}
