//! bf16 and i8 products by TDPBF16PS and TDPBUSD, over the tiles of AMX.
//!
//! f16 is widened as on all classes before: AVX-512 FP16 adds in f16, so that even a single product has an error of up to
//! 2⁻¹¹ of its size, where sums in f32 stay within 10⁻⁶ of theirs.

use crate::kernels::simd::Vector;

use super::amx::Amx;
use super::amx_tile::{Bf16, Bytes, tiles};
use super::kinds::{self, Gemms};

/// Words of weights of two panels that stay in the first-level cache while tiles run down the rows of an input.
pub(super) const WEIGHTS_BLOCK: usize = 8192;

/// The products of a class whose other ones are `before`. Attention stays as it was.
pub(in crate::kernels) const fn gemms<V: Vector, A: Amx>(before: Gemms) -> Gemms {
    assert!(V::LANES == 16);
    Gemms {
        bf16: kinds::bf16::<V>(tiles::<A, Bf16>(), WEIGHTS_BLOCK),
        i8: kinds::i8::<V>(tiles::<A, Bytes>(), WEIGHTS_BLOCK),
        ..before
    }
}
