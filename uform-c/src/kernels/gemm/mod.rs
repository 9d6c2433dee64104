//! Products of matrices with packed weights: output = activation(input · weightsᵀ + bias) + residual.
//!
//! Contract: an element of the product is one sum over k in ascending order, from zero, in one accumulator, with one
//! rounding per step on classes that have FMA and two on Serial; where an instruction adds several products at once, in its
//! own order, over as many words of k from the first one on. Tiles of all shapes, blocks of k (whose partial sums are
//! stored in f32, which changes nothing) and any split of the rows and columns give the same bits, so a row of the output
//! depends on its row of the input alone. Nothing here ever splits a sum.
//!
//! Only weights are packed, once, when they are loaded. Rows of f32 are read in place; for weights in bf16, f16 or i8 the rows
//! of a block are first brought into the same type. A block of the weights of one or a few panels stays in the
//! first-level cache while tiles run down the rows of the input. A class without instructions for a type widens such
//! a block of weights, once for all rows of the block: bf16 and f16 to f32, bytes to 16 bits.
//!
//! Precision: the error of a sum of n products in f32 is at most n · 2⁻²⁴ · Σ|aᵢbᵢ|, typically √n of that. Sums of bytes are
//! exact: inputs are unsigned, weights signed, so 2³¹ / (255 · 127), some 66,000 inputs, cannot overflow. Bits of a row depend
//! on the class, bytes of it do not.
//!
//! Why not: packing the input costs a pass over it and wins nothing, as its rows are read in sequence and found in the
//! cache. Several accumulators per element would hide the latency of small tiles, but wider tiles hide it as well and keep
//! the order of the sum.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::null;

use crate::base::{Dtype, Matrix, MatrixMut};

use super::Kernels;
use super::activation::Activation;

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod amx_tile;
mod ceiling;
mod dot;
mod epilogue;
#[cfg(target_arch = "aarch64")]
pub(super) mod g2;
#[cfg(target_arch = "x86_64")]
pub(super) mod genoa;
#[cfg(target_arch = "x86_64")]
pub(super) mod granite;
#[cfg(target_arch = "x86_64")]
pub(super) mod haswell;
#[cfg(target_arch = "x86_64")]
pub(super) mod icelake;
mod kinds;
#[cfg(target_arch = "aarch64")]
pub(super) mod m2;
mod pack;
mod prepare;
#[cfg(target_arch = "x86_64")]
pub(super) mod sapphire;
pub(super) mod serial;
#[cfg(target_arch = "x86_64")]
pub(super) mod sierra;
pub(super) mod skylake;
#[cfg(target_arch = "aarch64")]
pub(super) mod sme;
#[cfg(target_arch = "aarch64")]
mod square;
mod tile;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(super) mod wasm32_v128;
mod widen;

#[cfg(target_arch = "x86_64")]
pub use amx::{Amx, Configuration};
use epilogue::Epilogue;
use kinds::Registers;
pub(super) use kinds::{Gemm, Gemms};
pub use pack::{Packed, Quantized, pack, pack_i8, packed_len, per_word, rotate, rotation};
use prepare::Prepare;
pub(super) use prepare::{PrepareFunction, prepare_rows, prepared_stride};
pub(super) use tile::{Tile, TileFunction};
use widen::Widen;

/// Columns of a panel of packed weights.
pub const PANEL: usize = 16;

/// The most rows that are computed with one set of weights before the next ones are looked at.
const ROW_BLOCK: usize = 72;

/// Words of the input that such rows may take, so that they stay in a second-level cache.
const INPUT_BLOCK: usize = 1 << 16;

/// The most words of weights that any class widens for a block of k.
const WIDEST_BLOCK: usize = 6144;

/// The most inputs that sums of bytes cannot overflow for.
pub const MOST_INPUTS_I8: usize = i32::MAX as usize / (255 * 127);

/// The most rows that prepared inputs are padded to, and words that each of them is.
const WIDEST_UNIT: usize = 16;

/// Words that a class takes at most to bring `rows` rows into the type of the weights.
pub fn prepared_len(dtype: Dtype, rows: usize, inputs: usize) -> usize {
    let rows = rows.min(ROW_BLOCK);
    let padded = prepared_stride(inputs, per_word(dtype)).next_multiple_of(WIDEST_UNIT);
    (rows * prepared_stride(inputs, 1)).max(rows.next_multiple_of(WIDEST_UNIT) * padded)
        + rotated_len(dtype, inputs)
}

/// Words of a row that is rotated before it is quantized.
fn rotated_len(dtype: Dtype, inputs: usize) -> usize {
    if dtype == Dtype::I8 { inputs } else { 0 }
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
    /// [`Kernels::gemm_scratch_len`] words.
    pub scratch: &'a mut [u32],
    /// Rows × the outputs of those panels.
    pub output: MatrixMut<'a, f32>,
}

/// Rows cut into tiles of almost equal height, the tallest first. All but the last have multiples of `unit` rows, as `tallest`
/// is one.
fn tile_heights(rows: usize, tallest: usize, unit: usize) -> impl Iterator<Item = usize> {
    let count = rows.div_ceil(tallest);
    let units = rows.div_ceil(unit);
    let start = move |index: usize| (units / count * index + index.min(units % count)) * unit;
    (0..count).map(move |index| rows.min(start(index + 1)) - start(index))
}

/// Registers that are set up for a product, until this is dropped.
struct SetUp(Option<Registers>);

impl Drop for SetUp {
    fn drop(&mut self) {
        if let Some(registers) = self.0 {
            // SAFETY: they were set up, so the machine has them.
            unsafe { (registers.release)() }
        }
    }
}

impl Gemm {
    /// The most rows of a tile.
    pub(super) fn tallest(&self) -> usize {
        self.tiles.by_rows.len()
    }

    /// What brings inputs into the form that tiles read, where they do not read f32.
    pub(super) fn prepare_function(&self) -> Option<PrepareFunction> {
        self.prepare
    }

    /// Words that tiles read for one packed word.
    fn widening(&self) -> usize {
        if self.widen.is_some() { 2 } else { 1 }
    }

    /// Words of a row of `inputs` elements in the form that tiles read.
    fn input_stride(&self, dtype: Dtype, inputs: usize) -> usize {
        prepared_stride(inputs, per_word(dtype) / self.widening()).next_multiple_of(self.tiles.unit.steps)
    }

    /// Rows of such inputs that are computed with one set of weights.
    fn row_block(&self, stride: usize) -> usize {
        let unit = self.tiles.unit.rows;
        (INPUT_BLOCK / stride.max(1)).clamp(self.tallest(), ROW_BLOCK) / unit * unit
    }

    /// The heights of the tiles of that many rows.
    fn heights(&self, rows: usize) -> impl Iterator<Item = usize> {
        tile_heights(rows, self.tallest(), self.tiles.unit.rows)
    }

    /// Sets up the registers of this thread for a product of that many rows.
    ///
    /// # Safety
    /// The machine has this class's instructions.
    unsafe fn set_up(&self, rows: usize) -> SetUp {
        let registers = self.tiles.registers.filter(|_| rows > 0);
        if let Some(registers) = registers {
            // SAFETY: the caller's promise.
            unsafe { (registers.configure)(rows) }
        }
        SetUp(registers)
    }

    /// How many panels at once suit that many rows, which are not zero.
    fn panels_at_once(&self, rows: usize) -> usize {
        self.heights(rows).map(|height| self.tiles.by_rows[height - 1].len()).min().unwrap_or(1)
    }

    /// Runs tiles down the rows of a strip of `panels` panels, as many as [`panels_at_once`](Gemm::panels_at_once) allows,
    /// and calls `then` for the rows of each tile when it is done.
    ///
    /// # Safety
    /// The machine has this class's instructions, and the tile's pointers are good for its rows and that many panels.
    unsafe fn strip(&self, panels: usize, tile: Tile, then: impl Fn(Range<usize>)) {
        let mut row = 0;
        for height in self.heights(tile.rows) {
            // SAFETY: the heights add up to all rows, so the pointers stay inside what the caller promised.
            unsafe {
                let input = tile.input.add(row * tile.input_stride);
                let output = tile.output.add(row * tile.output_stride);
                self.tiles.by_rows[height - 1][panels - 1](&Tile { rows: height, input, output, ..tile });
            }
            then(row..row + height);
            row += height;
        }
    }

    /// Computes `panels` panels in one block of k.
    ///
    /// # Safety
    /// The machine has this class's instructions, and the tile's pointers are good for its rows and that many panels.
    pub(super) unsafe fn block(&self, panels: usize, tile: Tile) {
        if tile.rows == 0 {
            return;
        }
        let width = self.panels_at_once(tile.rows);
        for panel in (0..panels).step_by(width) {
            // SAFETY: `panel` and those behind it are among the panels that the caller promised.
            unsafe {
                let panel_start = tile.panel.add(panel * tile.panel_stride);
                let output = tile.output.add(panel * PANEL);
                let tile = Tile { panel: panel_start, output, ..tile };
                self.strip(width.min(panels - panel), tile, |_| ());
            }
        }
    }
}

/// A block of rows in the form that tiles read.
struct Rows<'a> {
    rows: Range<usize>,
    input: *const u32,
    stride: usize,
    scales: &'a [f32],
}

impl Product<'_> {
    /// Columns of the output.
    fn columns(&self) -> usize {
        (self.panels.end * PANEL).min(self.weights.outputs()).saturating_sub(self.panels.start * PANEL)
    }

    /// Panics when shapes contradict each other: they are computed by us, never by users.
    fn check(&self, kernels: &Kernels) {
        let shape = (self.output.rows(), self.output.columns());
        assert!(self.panels.end <= self.weights.panels(), "panels outside the weights");
        assert!(self.input.columns() == self.weights.inputs(), "inputs differ from those of the weights");
        assert!(shape == (self.input.rows(), self.columns()), "output of another shape");
        assert!(
            self.residual.is_none_or(|residual| shape == (residual.rows(), residual.columns())),
            "residual of another shape"
        );
        assert!(self.bias.is_none_or(|bias| bias.len() == self.weights.outputs()), "bias of another length");
        let scratch = kernels.gemm_scratch_len(self.weights.dtype(), shape.0, self.weights.inputs());
        assert!(self.scratch.len() >= scratch, "too little scratch");
    }

    /// The rows in the form that tiles read, with one scale per row where they are quantized.
    ///
    /// # Safety
    /// The machine has the instructions of `gemm`, and the shapes were checked.
    unsafe fn prepare<'s>(
        &mut self,
        gemm: &Gemm,
        rows: Range<usize>,
        scales: &'s mut [f32; ROW_BLOCK],
    ) -> Rows<'s> {
        let input = self.input.block(rows.start, 0, rows.len(), self.weights.inputs());
        let Some(prepare) = gemm.prepare else {
            return Rows { rows, input: input.as_ptr().cast(), stride: input.stride(), scales };
        };
        let stride = gemm.input_stride(self.weights.dtype(), self.weights.inputs());
        let (output, row) =
            self.scratch.split_at_mut(stride * rows.len().next_multiple_of(gemm.tiles.unit.rows));
        let (output, row) = (output.as_mut_ptr(), row.as_mut_ptr().cast());
        let (rotated, scales_out) = (self.weights.rotated(), scales.as_mut_ptr());
        // SAFETY: the caller's promise; the scratch was found to hold a block of rows and one more, and `scales` a block.
        unsafe { prepare(&Prepare { input, output, stride, rotated, row, scales: scales_out }) }
        Rows { rows, input: output, stride, scales }
    }

    /// Computes a block of rows of a strip of panels, whose last column may be missing.
    ///
    /// # Safety
    /// The machine has the instructions of `gemm`, and the shapes were checked.
    unsafe fn strip(&mut self, gemm: &Gemm, block: &Rows, panels: Range<usize>) {
        let columns = (panels.len() * PANEL).min(self.columns() - (panels.start - self.panels.start) * PANEL);
        let (steps, widening) = (self.weights.steps(), gemm.widening());
        let blocks = steps.div_ceil((gemm.weights_block / (panels.len() * PANEL * widening)).max(1)).max(1);
        let step = steps.div_ceil(blocks).max(1).next_multiple_of(gemm.tiles.unit.steps);
        let blocks = steps.div_ceil(step).max(1);
        // Tiles write whole panels; where the last is not whole, they write here.
        let mut spill = [const { MaybeUninit::<u32>::uninit() }; ROW_BLOCK * PANEL];
        let mut widened = [const { MaybeUninit::<u32>::uninit() }; WIDEST_BLOCK];
        let whole = columns == panels.len() * PANEL;
        let first = (panels.start - self.panels.start) * PANEL;
        let end = self.end(block, panels.start, columns);
        let plain = self.bias.is_none()
            && self.residual.is_none()
            && self.activation == Activation::None
            && self.weights.quantized().is_none();
        // SAFETY: the shapes were checked, and all offsets stay inside them.
        unsafe {
            let output_stride = self.output.stride();
            let output = self.output.as_mut_ptr().add(block.rows.start * output_stride + first);
            let (sums, sums_stride) = if whole {
                (output.cast(), output_stride)
            } else {
                (spill.as_mut_ptr().cast::<u32>(), PANEL)
            };
            let finish = |tile: Range<usize>| {
                (gemm.epilogue)(&Epilogue {
                    rows: tile.len(),
                    sums: sums.add(tile.start * sums_stride),
                    sums_stride,
                    row_scales: end.row_scales.wrapping_add(tile.start),
                    residual: end.residual.wrapping_add(tile.start * end.residual_stride),
                    output: output.add(tile.start * output_stride),
                    output_stride,
                    ..end
                });
            };
            for number in 0..blocks {
                let k = (number * step).min(steps);
                let depth = step.min(steps - k);
                let weights = self.weights.panel(panels.start).add(k * PANEL);
                let (panel, panel_stride) = match gemm.widen {
                    None => (weights, steps * PANEL),
                    Some(widen) => {
                        let to = widened.as_mut_ptr().cast::<u32>();
                        for panel in 0..panels.len() {
                            let from = weights.add(panel * steps * PANEL);
                            widen(&Widen { from, lines: depth, to: to.add(panel * 2 * depth * PANEL) });
                        }
                        (to.cast_const(), 2 * depth * PANEL)
                    }
                };
                let tile = Tile {
                    rows: block.rows.len(),
                    depth: depth * widening,
                    input: block.input.add(k * widening),
                    input_stride: block.stride,
                    panel,
                    panel_stride,
                    output: sums,
                    output_stride: sums_stride,
                    accumulate: number > 0,
                };
                // A tile is finished at once: by the end of the strip its rows may have left the cache.
                gemm.strip(panels.len(), tile, |tile| {
                    if number + 1 == blocks && !(whole && plain) {
                        finish(tile);
                    }
                });
            }
        }
    }

    /// What the ends of all tiles of a strip have in common: what belongs to its columns, and where a block's rows begin.
    fn end(&self, block: &Rows, first_panel: usize, columns: usize) -> Epilogue {
        let column = first_panel * PANEL;
        let first = column - self.panels.start * PANEL;
        let quantized = self.weights.quantized();
        Epilogue {
            rows: 0,
            columns,
            sums: null(),
            sums_stride: 0,
            row_scales: block.scales.as_ptr(),
            column_scales: quantized.map_or(null(), |quantized| quantized.scales[column..].as_ptr()),
            column_sums: quantized.map_or(null(), |quantized| quantized.sums[column..].as_ptr()),
            bias: self.bias.map_or(null(), |bias| bias[column..].as_ptr()),
            activation: self.activation,
            residual: self.residual.map_or(null(), |residual| {
                residual.block(block.rows.start, first, block.rows.len(), columns).as_ptr()
            }),
            residual_stride: self.residual.map_or(0, |residual| residual.stride()),
            output: std::ptr::null_mut(),
            output_stride: 0,
        }
    }
}

impl Kernels {
    /// The products with weights of that type. Panics for types that weights are never packed in.
    pub(super) fn gemm_of(&self, dtype: Dtype) -> &Gemm {
        match dtype {
            Dtype::F32 => &self.gemms.f32,
            Dtype::Bf16 => &self.gemms.bf16,
            Dtype::F16 => &self.gemms.f16,
            Dtype::I8 => &self.gemms.i8,
            Dtype::U8 | Dtype::B1 => panic!("weights are never packed in this type"),
        }
    }

    /// Whether this class has instructions for products of that type, or widens them.
    pub fn is_native(&self, dtype: Dtype) -> bool {
        self.gemm_of(dtype).widen.is_none()
    }

    /// Whether attention multiplies bf16 where that is asked for, or f32 all the same.
    pub fn attends_in_bf16(&self) -> bool {
        self.gemms.attention.is_some()
    }

    /// Runs `steps` steps of a loop that does nothing but multiply and add registers of that type, or of the one that it is
    /// widened to, and gives the number of operations, of which a product and its addition are two.
    pub fn multiply_registers(&self, dtype: Dtype, steps: usize) -> u64 {
        let gemm = self.gemm_of(dtype);
        // SAFETY: kernels of a class exist only where its instructions do.
        unsafe { (gemm.tiles.ceiling)(steps) }
        2 * (steps * gemm.tiles.ceiling_words * per_word(dtype) / gemm.widening()) as u64
    }

    /// Words of scratch that a product of `rows` rows with such weights takes.
    pub fn gemm_scratch_len(&self, dtype: Dtype, rows: usize, inputs: usize) -> usize {
        let gemm = self.gemm_of(dtype);
        match gemm.prepare {
            None => 0,
            Some(_) => {
                let stride = gemm.input_stride(dtype, inputs);
                let rows = gemm.row_block(stride).min(rows).next_multiple_of(gemm.tiles.unit.rows);
                stride * rows + rotated_len(dtype, inputs)
            }
        }
    }

    /// Computes a product. Panics when its shapes contradict each other.
    pub fn gemm(&self, mut product: Product<'_>) {
        product.check(self);
        let gemm = self.gemm_of(product.weights.dtype());
        let rows = product.input.rows();
        let stride = gemm.input_stride(product.weights.dtype(), product.weights.inputs());
        let row_block = gemm.row_block(stride);
        let whole_panels = product.panels.start + product.columns() / PANEL;
        let mut scales = [0.0; ROW_BLOCK];
        // SAFETY: kernels of a class exist only where its instructions do.
        let _set_up = unsafe { gemm.set_up(rows) };
        for row in (0..rows).step_by(row_block) {
            let rows = row..rows.min(row + row_block);
            let width = gemm.panels_at_once(rows.len());
            // SAFETY: kernels of a class exist only where its instructions do, and the shapes were checked.
            let block = unsafe { product.prepare(gemm, rows, &mut scales) };
            let mut panel = product.panels.start;
            while panel < product.panels.end {
                let whole = whole_panels.saturating_sub(panel);
                let next = panel + if whole == 0 { 1 } else { width.min(whole) };
                // SAFETY: as above.
                unsafe { product.strip(gemm, &block, panel..next) };
                panel = next;
            }
        }
    }
}
