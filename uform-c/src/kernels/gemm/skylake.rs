//! Tiles for vectors of sixteen in thirty-two registers: up to 8 × 48, twenty-four sums, three columns and one value.

use crate::kernels::simd::Vector;

use super::tile::{epilogue, tile};
use super::{Gemm, TileFunction};

struct Tiles<V>(V);

impl<V: Vector> Tiles<V> {
    const ALL: &[&[TileFunction]] = &[
        &[
            tile::<V, 1, 1>,
            tile::<V, 1, 2>,
            tile::<V, 1, 3>,
            tile::<V, 1, 4>,
            tile::<V, 1, 5>,
            tile::<V, 1, 6>,
        ],
        &[
            tile::<V, 2, 1>,
            tile::<V, 2, 2>,
            tile::<V, 2, 3>,
            tile::<V, 2, 4>,
            tile::<V, 2, 5>,
            tile::<V, 2, 6>,
        ],
        &[tile::<V, 3, 1>, tile::<V, 3, 2>, tile::<V, 3, 3>, tile::<V, 3, 4>],
        &[tile::<V, 4, 1>, tile::<V, 4, 2>, tile::<V, 4, 3>],
        &[tile::<V, 5, 1>, tile::<V, 5, 2>, tile::<V, 5, 3>],
        &[tile::<V, 6, 1>, tile::<V, 6, 2>, tile::<V, 6, 3>],
        &[tile::<V, 7, 1>, tile::<V, 7, 2>, tile::<V, 7, 3>],
        &[tile::<V, 8, 1>, tile::<V, 8, 2>, tile::<V, 8, 3>],
    ];
}

/// Products over vectors of sixteen lanes.
pub(in crate::kernels) const fn gemm<V: Vector>() -> Gemm {
    assert!(V::LANES == 16);
    Gemm { tiles: Tiles::<V>::ALL, weights_block: 6144, epilogue: epilogue::<V> }
}
