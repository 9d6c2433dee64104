//! f16 products by TDPFP16PS, over the tiles of AMX.

use crate::kernels::simd::Vector;

use super::amx::Amx;
use super::amx_tile::{F16, tiles};
use super::kinds::{self, Gemms};
use super::sapphire::{self, WEIGHTS_BLOCK};

/// The products of a class that has those of `IntelSapphire` besides, and whose other ones are `before`.
pub(in crate::kernels) const fn gemms<V: Vector, A: Amx>(before: Gemms) -> Gemms {
    Gemms { f16: kinds::f16::<V>(tiles::<A, F16>(), WEIGHTS_BLOCK), ..sapphire::gemms::<V, A>(before) }
}
