//! Tiles for vectors of eight in sixteen registers: up to 6 × 16, twelve sums, two columns and one value.

use crate::kernels::simd::Vector;

use super::tile::{epilogue, tile};
use super::{Gemm, TileFunction};

struct Tiles<V>(V);

impl<V: Vector> Tiles<V> {
    const ALL: &[&[TileFunction]] = &[
        &[tile::<V, 1, 2>, tile::<V, 1, 4>, tile::<V, 1, 6>, tile::<V, 1, 8>],
        &[tile::<V, 2, 2>, tile::<V, 2, 4>, tile::<V, 2, 6>],
        &[tile::<V, 3, 2>, tile::<V, 3, 4>],
        &[tile::<V, 4, 2>],
        &[tile::<V, 5, 2>],
        &[tile::<V, 6, 2>],
    ];
}

/// Products over vectors of eight lanes.
pub(in crate::kernels) const fn gemm<V: Vector>() -> Gemm {
    assert!(V::LANES == 8);
    Gemm { tiles: Tiles::<V>::ALL, weights_block: 6144, epilogue: epilogue::<V> }
}
