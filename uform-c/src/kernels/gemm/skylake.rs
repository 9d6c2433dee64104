//! Tiles for vectors of sixteen in thirty-two registers: up to 8 × 48, twenty-four sums, three columns and one value.

use crate::kernels::simd::Vector;

use super::TileFunction;
use super::dot::{Dot, Floats, Halves};
use super::kinds::{self, Gemms, Tiles};
use super::tile::tile;

/// Words of weights that stay in the first-level cache.
pub(super) const WEIGHTS_BLOCK: usize = 6144;

/// Tiles by rows and panels.
struct ByRows<D>(D);

impl<D: Dot> ByRows<D> {
    const ALL: &[&[TileFunction]] = &[
        &[
            tile::<D, 1, 1>,
            tile::<D, 1, 2>,
            tile::<D, 1, 3>,
            tile::<D, 1, 4>,
            tile::<D, 1, 5>,
            tile::<D, 1, 6>,
        ],
        &[
            tile::<D, 2, 1>,
            tile::<D, 2, 2>,
            tile::<D, 2, 3>,
            tile::<D, 2, 4>,
            tile::<D, 2, 5>,
            tile::<D, 2, 6>,
        ],
        &[tile::<D, 3, 1>, tile::<D, 3, 2>, tile::<D, 3, 3>, tile::<D, 3, 4>],
        &[tile::<D, 4, 1>, tile::<D, 4, 2>, tile::<D, 4, 3>],
        &[tile::<D, 5, 1>, tile::<D, 5, 2>, tile::<D, 5, 3>],
        &[tile::<D, 6, 1>, tile::<D, 6, 2>, tile::<D, 6, 3>],
        &[tile::<D, 7, 1>, tile::<D, 7, 2>, tile::<D, 7, 3>],
        &[tile::<D, 8, 1>, tile::<D, 8, 2>, tile::<D, 8, 3>],
    ];
}

/// The tiles of one way to multiply words.
pub(super) const fn tiles<D: Dot>() -> Tiles {
    Tiles::of::<D>(ByRows::<D>::ALL)
}

/// Products over vectors of sixteen lanes, those of narrow types by widening.
pub(in crate::kernels) const fn gemms<V: Vector>() -> Gemms {
    assert!(V::LANES == 16);
    kinds::by_widening::<V>(tiles::<Floats<V>>(), tiles::<Halves<V>>(), WEIGHTS_BLOCK)
}
