//! Conversions between f32 and f16 by vectors that have no instruction for them, over every number that an f16 can be, and what
//! lies between.

use half::f16;
use uform_c::kernels::simd::{Portable, Vector, Words};

/// Calls `convert` with each four of `words` and compares what it gives.
fn check(
    words: impl Iterator<Item = u32>,
    convert: impl Fn([u32; 4]) -> [u32; 4],
    same: impl Fn(u32, u32) -> bool,
) {
    for word in words {
        for lane in 0..4 {
            let mut four = [0x3c00; 4];
            four[lane] = word;
            let found = convert(four)[lane];
            assert!(same(word, found), "{word:#x} became {found:#x}");
        }
    }
}

/// # Safety
/// The machine has the instructions of `V`, which has four lanes.
unsafe fn conversions<V: Vector>() {
    let widen = |words: [u32; 4]| {
        let mut found = [0; 4];
        // SAFETY: the caller's promise; both have four words.
        unsafe { V::widen_f16(V::Words::load(words.as_ptr())).to_words().store(found.as_mut_ptr()) };
        found
    };
    check(0..=0xffff, widen, |half, found| {
        let expected = f16::from_bits(half as u16).to_f32();
        f32::from_bits(found).to_bits() == expected.to_bits()
            || expected.is_nan() && f32::from_bits(found).is_nan()
    });
    let narrow = |words: [u32; 4]| {
        let mut found = [0; 4];
        // SAFETY: as above.
        unsafe { V::load(words.as_ptr().cast()).to_f16().store(found.as_mut_ptr()) };
        found
    };
    // Every f16, the floats beside it, and those around the middle between it and the next.
    let beside = |half: u16| {
        let bits = f16::from_bits(half).to_f32().to_bits();
        let next = f16::from_bits(half + 1).to_f32().to_bits();
        let middle = ((f32::from_bits(bits) + f32::from_bits(next)) / 2.0).to_bits();
        [bits.wrapping_sub(1), bits, bits + 1, middle - 1, middle, middle + 1]
    };
    let positive = (0..0x7bff).flat_map(beside);
    let others = [
        0x7f80_0000,
        0x7f80_0001,
        0x7fc0_0000,
        0x7fff_ffff,
        0x477f_efff,
        0x477f_f000,
        0x4780_0000,
        0x7f7f_ffff,
        1,
        0x3300_0000,
        0x3300_0001,
        0x387f_ffff,
    ];
    let all = positive.chain(others).flat_map(|bits| [bits, bits | 0x8000_0000]);
    check(all, narrow, |bits, found| {
        let expected = f16::from_f32(f32::from_bits(bits));
        found == u32::from(expected.to_bits())
            || expected.is_nan() && found <= 0xffff && f16::from_bits(found as u16).is_nan()
    });
}

#[test]
fn conversions_to_and_from_f16_are_those_of_the_crate_half() {
    // SAFETY: plain Rust needs no special instructions.
    unsafe { conversions::<Portable<4, false>>() };
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    // SAFETY: the whole build has these instructions.
    unsafe {
        conversions::<uform_c::kernels::simd::F32x4>();
    }
}
