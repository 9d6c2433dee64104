//! Products of matrices with packed weights: output = activation(input · weightsᵀ + bias) + residual.
//!
//! Contract: an element of the product is one sum over k in ascending order, from zero, in one accumulator, with one
//! rounding per step on classes that have FMA and two on Serial. Tiles of all shapes, blocks of k (whose partial sums are
//! stored in f32, which changes nothing) and any split of the rows and columns give the same bits, so a row of the output
//! depends on its row of the input alone. Nothing here ever splits a sum.
//!
//! The input is read in place, by rows; only weights are packed, once, when they are loaded. A block of the weights of
//! one or a few panels stays in the first-level cache while tiles run down the rows of the input.
//!
//! Precision: the error of a sum of n products is at most n · 2⁻²⁴ · Σ|aᵢbᵢ|, typically √n of that.
//!
//! Why not: packing the input costs a pass over it and wins nothing, as its rows are read in sequence and found in the
//! cache. Several accumulators per element would hide the latency of small tiles, but wider tiles hide it as well and keep
//! the order of the sum.

use std::ops::Range;
use std::ptr::null;

use crate::base::{Matrix, MatrixMut};

use super::Kernels;
use super::activation::Activation;

#[cfg(target_arch = "x86_64")]
pub(super) mod haswell;
mod pack;
pub(super) mod serial;
pub(super) mod skylake;
mod tile;

pub use pack::{Packed, pack, packed_len};
pub(super) use tile::{Epilogue, EpilogueFunction, Tile, TileFunction};

/// Columns of a panel of packed weights.
pub const PANEL: usize = 16;

/// The most rows that are computed with one set of weights before the next ones are looked at.
const ROW_BLOCK: usize = 72;

/// Floats of the input that such rows may take, so that they stay in a second-level cache.
const INPUT_BLOCK: usize = 1 << 16;

/// What a class brings for products.
#[derive(Clone, Copy)]
pub(super) struct Gemm {
    /// `tiles[r - 1][p - 1]` computes r rows of p panels. Every list has at least one panel.
    tiles: &'static [&'static [TileFunction]],
    /// Floats of weights that a block of k may take.
    weights_block: usize,
    epilogue: EpilogueFunction,
}

/// One product, or the part of it that a thread computes.
pub struct Product<'a> {
    /// Rows × `weights.inputs()`.
    pub input: Matrix<'a, f32>,
    /// All the weights.
    pub weights: Packed<'a>,
    /// Which panels of 16 outputs to compute.
    pub panels: Range<usize>,
    /// One float per output of the weights.
    pub bias: Option<&'a [f32]>,
    /// Applied after the bias.
    pub activation: Activation,
    /// Added at last; shaped as the output.
    pub residual: Option<Matrix<'a, f32>>,
    /// Rows × the outputs of those panels.
    pub output: MatrixMut<'a, f32>,
}

/// Rows cut into tiles of almost equal height, the tallest first.
fn tile_heights(rows: usize, tallest: usize) -> impl Iterator<Item = usize> {
    let count = rows.div_ceil(tallest);
    (0..count).map(move |index| rows / count + usize::from(index < rows % count))
}

impl Gemm {
    /// The most rows of a tile.
    pub(super) fn tallest(&self) -> usize {
        self.tiles.len()
    }

    /// How many panels at once suit that many rows, which are not zero.
    fn panels_at_once(&self, rows: usize) -> usize {
        tile_heights(rows, self.tallest()).map(|height| self.tiles[height - 1].len()).min().unwrap_or(1)
    }

    /// Runs tiles down `rows` rows of a strip of `panels` panels, as many as [`panels_at_once`](Gemm::panels_at_once) allows,
    /// and calls `then` for the rows of each tile when it is done.
    ///
    /// # Safety
    /// The machine has this class's instructions, and the tile's pointers are good for that many rows and panels.
    unsafe fn strip(&self, rows: usize, panels: usize, tile: Tile, then: impl Fn(Range<usize>)) {
        let mut row = 0;
        for height in tile_heights(rows, self.tallest()) {
            // SAFETY: the heights add up to `rows`, so the pointers stay inside what the caller promised.
            unsafe {
                let input = tile.input.add(row * tile.input_stride);
                let output = tile.output.add(row * tile.output_stride);
                self.tiles[height - 1][panels - 1](&Tile { input, output, ..tile });
            }
            then(row..row + height);
            row += height;
        }
    }

    /// Computes `rows` rows of `panels` panels in one block of k.
    ///
    /// # Safety
    /// The machine has this class's instructions, and the tile's pointers are good for that many rows and panels.
    pub(super) unsafe fn block(&self, rows: usize, panels: usize, tile: Tile) {
        if rows == 0 {
            return;
        }
        let width = self.panels_at_once(rows);
        for panel in (0..panels).step_by(width) {
            // SAFETY: `panel` and those behind it are among the panels that the caller promised.
            unsafe {
                let panel_start = tile.panel.add(panel * tile.panel_stride);
                let output = tile.output.add(panel * PANEL);
                self.strip(
                    rows,
                    width.min(panels - panel),
                    Tile { panel: panel_start, output, ..tile },
                    |_| (),
                );
            }
        }
    }
}

impl Product<'_> {
    /// Columns of the output.
    fn columns(&self) -> usize {
        (self.panels.end * PANEL).min(self.weights.outputs()).saturating_sub(self.panels.start * PANEL)
    }

    /// Panics when shapes contradict each other: they are computed by us, never by users.
    fn check(&self) {
        let shape = (self.output.rows(), self.output.columns());
        assert!(self.panels.end <= self.weights.panels(), "panels outside the weights");
        assert!(self.input.columns() == self.weights.inputs(), "inputs differ from those of the weights");
        assert!(shape == (self.input.rows(), self.columns()), "output of another shape");
        assert!(
            self.residual.is_none_or(|residual| shape == (residual.rows(), residual.columns())),
            "residual of another shape"
        );
        assert!(self.bias.is_none_or(|bias| bias.len() == self.weights.outputs()), "bias of another length");
    }

    /// Computes rows `rows` of a strip of panels, whose last column may be missing.
    ///
    /// # Safety
    /// The machine has the instructions of `gemm`, and the shapes were checked.
    unsafe fn strip(&mut self, gemm: &Gemm, rows: Range<usize>, panels: Range<usize>) {
        let first = (panels.start - self.panels.start) * PANEL;
        let columns = (panels.len() * PANEL).min(self.columns() - first);
        let inputs = self.weights.inputs();
        let blocks = inputs.div_ceil((gemm.weights_block / (panels.len() * PANEL)).max(1)).max(1);
        let step = inputs.div_ceil(blocks).max(1);
        // Tiles write whole panels; where the last is not whole, they write here.
        let mut spill = [0.0f32; ROW_BLOCK * PANEL];
        // SAFETY: the shapes were checked, and all offsets stay inside them.
        unsafe {
            let output_stride = self.output.stride();
            let output = self.output.as_mut_ptr().add(rows.start * output_stride + first);
            let whole = columns == panels.len() * PANEL;
            let (sums, sums_stride) =
                if whole { (output, output_stride) } else { (spill.as_mut_ptr(), PANEL) };
            let finish = |tile: Range<usize>| {
                let first_row = rows.start + tile.start;
                (gemm.epilogue)(&Epilogue {
                    rows: tile.len(),
                    columns,
                    sums: sums.add(tile.start * sums_stride),
                    sums_stride,
                    bias: self.bias.map_or(null(), |bias| bias[panels.start * PANEL..].as_ptr()),
                    activation: self.activation,
                    residual: self.residual.map_or(null(), |residual| {
                        residual.as_ptr().add(first_row * residual.stride() + first)
                    }),
                    residual_stride: self.residual.map_or(0, |residual| residual.stride()),
                    output: output.add(tile.start * output_stride),
                    output_stride,
                });
            };
            let plain = self.bias.is_none() && self.residual.is_none() && self.activation == Activation::None;
            for block in 0..blocks {
                let k = (block * step).min(inputs);
                let tile = Tile {
                    depth: step.min(inputs - k),
                    input: self.input.as_ptr().add(rows.start * self.input.stride() + k),
                    input_stride: self.input.stride(),
                    panel: self.weights.panel(panels.start).add(k * PANEL),
                    panel_stride: inputs * PANEL,
                    output: sums,
                    output_stride: sums_stride,
                    accumulate: block > 0,
                };
                // A tile is finished at once: by the end of the strip its rows may have left the cache.
                gemm.strip(rows.len(), panels.len(), tile, |tile| {
                    if block + 1 == blocks && !(whole && plain) {
                        finish(tile);
                    }
                });
            }
        }
    }
}

impl Kernels {
    /// Computes a product. Panics when its shapes contradict each other.
    pub fn gemm(&self, mut product: Product<'_>) {
        product.check();
        let rows = product.input.rows();
        let row_block = (INPUT_BLOCK / product.weights.inputs().max(1)).clamp(self.gemm.tallest(), ROW_BLOCK);
        let whole_panels = product.panels.start + product.columns() / PANEL;
        for row in (0..rows).step_by(row_block) {
            let rows = row..rows.min(row + row_block);
            let width = self.gemm.panels_at_once(rows.len());
            let mut panel = product.panels.start;
            while panel < product.panels.end {
                let whole = whole_panels.saturating_sub(panel);
                let next = panel + if whole == 0 { 1 } else { width.min(whole) };
                // SAFETY: kernels of a class exist only where its instructions do, and the shapes were checked.
                unsafe { product.strip(&self.gemm, rows.clone(), panel..next) };
                panel = next;
            }
        }
    }
}
