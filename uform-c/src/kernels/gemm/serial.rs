//! Tiles for vectors of four in sixteen registers, which is what compilers make of plain Rust on most machines.

use crate::kernels::simd::Vector;

use super::TileFunction;
use super::dot::{Dot, Floats, Halves};
use super::kinds::{self, Gemms, Tiles};
use super::tile::tile;

/// Words of weights that stay in the first-level cache.
pub(super) const WEIGHTS_BLOCK: usize = 4096;

/// Tiles by rows and panels.
struct ByRows<D>(D);

impl<D: Dot> ByRows<D> {
    const ALL: &[&[TileFunction]] =
        &[&[tile::<D, 1, 4>, tile::<D, 1, 8>], &[tile::<D, 2, 4>], &[tile::<D, 3, 4>]];
}

/// The tiles of one way to multiply words.
pub(super) const fn tiles<D: Dot>() -> Tiles {
    Tiles::of::<D>(ByRows::<D>::ALL)
}

/// Products over vectors of four lanes, those of narrow types by widening.
pub(in crate::kernels) const fn gemms<V: Vector>() -> Gemms {
    assert!(V::LANES == 4);
    kinds::by_widening::<V>(tiles::<Floats<V>>(), tiles::<Halves<V>>(), WEIGHTS_BLOCK)
}
