//! The one layout of weights for each element type, which every class reads, Serial included.

use half::{bf16, f16};

use crate::base::{Dtype, Matrix};

use super::PANEL;

/// Weights in panels of 16 outputs. A panel holds, for step after step along the inputs, a word of each of its 16 outputs
/// side by side, and zeros for outputs beyond the last. A word is as many weights of consecutive inputs as 32 bits
/// hold, the first in the lowest bits, and zeros for inputs beyond the last.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    dtype: Dtype,
    words: &'a [u32],
    inputs: usize,
    outputs: usize,
    quantized: Option<Quantized<'a>>,
}

/// What belongs to weights in i8: weight = scale of its output · its number.
#[derive(Clone, Copy)]
pub struct Quantized<'a> {
    /// One per output.
    pub scales: &'a [f32],
    /// The sum of the numbers of each output.
    pub sums: &'a [i32],
    /// Inputs that are rotated together before they are quantized, as [`rotation`] says; one where none are.
    pub rotated: usize,
}

/// The most channels that are rotated together.
const WIDEST_ROTATION: usize = 128;

/// How many of so many channels are rotated together: the greatest power of two that divides their number, or one where
/// that is less than a register of any class holds.
pub const fn rotation(channels: usize) -> usize {
    let power = 1 << channels.trailing_zeros();
    match power {
        0..PANEL => 1,
        PANEL..WIDEST_ROTATION => power,
        _ => WIDEST_ROTATION,
    }
}

/// Rotates one row of weights in place as inputs are rotated, divided by the block's size, so that products stay what they
/// were: Hadamard matrices are symmetric, and their squares are the size times the identity.
pub fn rotate(row: &mut [f32], block: usize) {
    for values in row.chunks_exact_mut(block) {
        let mut distance = 1;
        while distance < block {
            for pair in values.chunks_exact_mut(2 * distance) {
                let (low, high) = pair.split_at_mut(distance);
                for (low, high) in low.iter_mut().zip(high) {
                    (*low, *high) = (*low + *high, *low - *high);
                }
            }
            distance *= 2;
        }
        values.iter_mut().for_each(|value| *value /= block as f32);
    }
}

/// Weights in a word. Panics for element types that weights are never packed in.
pub const fn per_word(dtype: Dtype) -> usize {
    match dtype {
        Dtype::F32 => 1,
        Dtype::Bf16 | Dtype::F16 => 2,
        Dtype::I8 => 4,
        Dtype::U8 | Dtype::B1 => panic!("weights are never packed in this type"),
    }
}

/// Words that packed weights take.
pub const fn packed_len(dtype: Dtype, inputs: usize, outputs: usize) -> usize {
    inputs.div_ceil(per_word(dtype)) * outputs.next_multiple_of(PANEL)
}

/// Writes rows of `weight` (outputs × inputs, as PyTorch stores them) into `panels`, the first row as output number
/// `first` of weights that have `weight.columns()` inputs, in a floating point type. Outputs that no row is given for are left
/// as they are. Panics when the panels are too short for that.
pub fn pack(dtype: Dtype, weight: Matrix<f32>, first: usize, panels: &mut [u32]) {
    match dtype {
        Dtype::F32 => pack_words(weight, first, panels, |[weight]: [f32; 1]| weight.to_bits()),
        Dtype::Bf16 => pack_words(weight, first, panels, |pair: [f32; 2]| {
            let [low, high] = pair.map(|weight| u32::from(bf16::from_f32(weight).to_bits()));
            low | high << 16
        }),
        Dtype::F16 => pack_words(weight, first, panels, |pair: [f32; 2]| {
            let [low, high] = pair.map(|weight| u32::from(f16::from_f32(weight).to_bits()));
            low | high << 16
        }),
        Dtype::I8 | Dtype::U8 | Dtype::B1 => panic!("no floating point type"),
    }
}

/// As [`pack`] in i8, from numbers within ±127 that are whole.
pub fn pack_i8(numbers: Matrix<f32>, first: usize, panels: &mut [u32]) {
    pack_words(numbers, first, panels, |quad: [f32; 4]| {
        u32::from_le_bytes(quad.map(|number| number as i8 as u8))
    });
}

/// Packs words of `N` weights each.
fn pack_words<const N: usize>(
    weight: Matrix<f32>,
    first: usize,
    panels: &mut [u32],
    word: impl Fn([f32; N]) -> u32,
) {
    let (rows, inputs) = (weight.rows(), weight.columns());
    let steps = inputs.div_ceil(N);
    if steps == 0 {
        return;
    }
    let mut row = 0;
    while row < rows {
        let (panel, column) = ((first + row) / PANEL, (first + row) % PANEL);
        let panel = &mut panels[panel * steps * PANEL..][..steps * PANEL];
        if column % BLOCK == 0 && rows - row >= BLOCK {
            let rows = [0, 1, 2, 3].map(|index| weight.row(row + index));
            pack_rows(rows, &mut panel[column..], &word);
            row += BLOCK;
        } else {
            pack_rows([weight.row(row)], &mut panel[column..], &word);
            row += 1;
        }
    }
}

/// Rows that are turned into columns together, so that each line of the panel is touched less often.
const BLOCK: usize = 4;

/// Packs rows as the first columns of `panel`, whose last step may be cut off behind them.
fn pack_rows<const ROWS: usize, const N: usize>(
    rows: [&[f32]; ROWS],
    panel: &mut [u32],
    word: &impl Fn([f32; N]) -> u32,
) {
    let chunks = rows.map(|row| row.as_chunks::<N>());
    let whole = chunks[0].0.len();
    for (step, to) in panel.chunks_mut(PANEL).take(whole).enumerate() {
        let words = chunks.map(|(chunks, _)| word(chunks[step]));
        to[..ROWS].copy_from_slice(&words);
    }
    if !chunks[0].1.is_empty() {
        let words = chunks.map(|(_, rest)| {
            let mut padded = [0.0; N];
            padded[..rest.len()].copy_from_slice(rest);
            word(padded)
        });
        panel[whole * PANEL..][..ROWS].copy_from_slice(&words);
    }
}

impl<'a> Packed<'a> {
    /// Views `words` as packed weights of that type and shape; `quantized` is there for i8 alone. Panics when something is
    /// too short: a shape is computed by us.
    pub fn new(
        dtype: Dtype,
        words: &'a [u32],
        inputs: usize,
        outputs: usize,
        quantized: Option<Quantized<'a>>,
    ) -> Self {
        assert!(words.len() >= packed_len(dtype, inputs, outputs), "packed weights outside their data");
        assert!((dtype == Dtype::I8) == quantized.is_some(), "scales belong to weights in i8");
        if let Some(quantized) = &quantized {
            let lengths = (quantized.scales.len(), quantized.sums.len());
            assert!(lengths == (outputs, outputs), "scales of another shape");
            assert!(quantized.rotated == 1 || quantized.rotated == rotation(inputs), "another rotation");
        }
        Self { dtype, words, inputs, outputs, quantized }
    }

    /// The type of the weights.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Columns of the matrices that these weights multiply.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Columns of the products.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Panels of 16 outputs, the last of which may be partly empty.
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Words of a panel's output.
    pub(super) fn steps(&self) -> usize {
        self.inputs.div_ceil(per_word(self.dtype))
    }

    /// The scales of weights in i8.
    pub(super) fn quantized(&self) -> Option<Quantized<'a>> {
        self.quantized
    }

    /// Inputs that are rotated together.
    pub(super) fn rotated(&self) -> usize {
        self.quantized.map_or(1, |quantized| quantized.rotated)
    }

    /// The first word of a panel, of which there must be that many.
    pub(super) fn panel(&self, panel: usize) -> *const u32 {
        self.words[panel * self.steps() * PANEL..].as_ptr()
    }
}
