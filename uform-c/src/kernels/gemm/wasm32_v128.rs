//! Tiles for the vectors of WebAssembly, of four lanes, in fifteen registers, which is what V8 has for them on x86.
//!
//! A product and its sum are two instructions with a register between them. So eight sums, two columns and one value are as
//! many as stay in registers, and tiles of three and four rows compute a panel in two halves: 3 × 16 at once is slower.
//! Bytes are widened to halves, of which one instruction multiplies eight and adds neighbours, exactly.

use crate::kernels::simd::F32x4;

use super::ceiling::{ceiling, words_per_step};
use super::dot::{Dot, Floats, Halves};
use super::kinds::{self, Gemms, Tiles};
use super::tile::{Tile, tile};
use super::{PANEL, TileFunction};

/// Words of weights that stay in the first-level cache.
const WEIGHTS_BLOCK: usize = 4096;

/// Vectors of half a panel.
const HALF: usize = 2;

/// [`TileFunction`] of `ROWS` rows and one panel, one half after the other.
///
/// # Safety
/// See [`TileFunction`].
unsafe fn halves<D: Dot, const ROWS: usize>(whole: &Tile) {
    // SAFETY: the caller's promise; both halves are inside the panel.
    unsafe {
        tile::<D, ROWS, HALF>(whole);
        let (panel, output) = (whole.panel.add(PANEL / 2), whole.output.add(PANEL / 2));
        tile::<D, ROWS, HALF>(&Tile { panel, output, ..*whole });
    }
}

/// Tiles by rows and panels.
struct ByRows<D>(D);

impl<D: Dot> ByRows<D> {
    const ALL: &[&[TileFunction]] =
        &[&[tile::<D, 1, 4>, tile::<D, 1, 8>], &[tile::<D, 2, 4>], &[halves::<D, 3>], &[halves::<D, 4>]];
}

/// The tiles of one way to multiply words. The ceiling has as many sums as they have.
const fn tiles<D: Dot>() -> Tiles {
    Tiles {
        ceiling: ceiling::<D, 2>,
        ceiling_words: words_per_step::<D, 2>(),
        ..Tiles::of::<D>(ByRows::<D>::ALL)
    }
}

/// Products over vectors of four lanes, those of narrow types by widening.
pub(in crate::kernels) const fn gemms() -> Gemms {
    kinds::by_widening::<F32x4>(tiles::<Floats<F32x4>>(), tiles::<Halves<F32x4>>(), WEIGHTS_BLOCK)
}
