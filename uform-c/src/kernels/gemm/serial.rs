//! Tiles for vectors of four in sixteen registers, which is what compilers make of plain Rust on most machines.

use crate::kernels::simd::Vector;

use super::tile::{epilogue, tile};
use super::{Gemm, TileFunction};

struct Tiles<V>(V);

impl<V: Vector> Tiles<V> {
    const ALL: &[&[TileFunction]] =
        &[&[tile::<V, 1, 4>, tile::<V, 1, 8>], &[tile::<V, 2, 4>], &[tile::<V, 3, 4>]];
}

/// Products over vectors of four lanes.
pub(in crate::kernels) const fn gemm<V: Vector>() -> Gemm {
    assert!(V::LANES == 4);
    Gemm { tiles: Tiles::<V>::ALL, weights_block: 4096, epilogue: epilogue::<V> }
}
