//! Scaled dot-product attention of one head over one text: softmax(scale · query · keyᵀ) · value.
//!
//! Contract: keys are taken in blocks of a fixed size from the first key on, and each query row goes through them with a
//! running softmax, so its bits depend on its text alone: not on which other queries are computed with it, nor on the
//! texts beside it. Products follow the contract of [`gemm`](super::gemm). Any head size is possible.
//! After Dao et al., "FlashAttention" (2022), without its split over keys.
//!
//! Numerical notes: sums, scores and softmax are in f32; the factors of the products are f32, or queries, keys, weights and
//! values rounded to bf16. The scale is applied to the products, in the exponent, and not to the queries.
//!
//! Why not the plain road of one matrix of scores: it is as wide as the text and leaves the cache for long ones. Why keys
//! and values are packed: the tiles of `gemm` then serve as they are, and packing is one copy for a whole head.

use std::ptr::null_mut;

use crate::base::{Dtype, Matrix, MatrixMut};

use super::Kernels;
use super::gemm::{
    Gemm, PANEL, PrepareFunction, Tile, pack, packed_len, per_word, prepare_rows, prepared_stride,
};
use super::simd::{Kernel, Vector, Words, bf16_up};
use super::softmax::{Block, Divide};

/// Keys that are looked at together. An even number, as pairs of them share a word in bf16.
const KEY_BLOCK: usize = 128;

/// Queries that are computed together.
const QUERY_BLOCK: usize = 24;

/// Keys and values of one head of one text, packed.
pub struct PackedHead<'a> {
    dtype: Dtype,
    keys: &'a [u32],
    values: &'a [u32],
    count: usize,
    size: usize,
}

/// Words that the packed keys and values of `keys` keys of a head of `size` take in either type.
pub const fn packed_head_len(keys: usize, size: usize) -> usize {
    packed_len(Dtype::F32, size, keys) + packed_len(Dtype::F32, keys, size)
}

/// Words of scratch that packing and attention of a head of `size` take in either type.
pub const fn attention_scratch_len(size: usize) -> usize {
    QUERY_BLOCK * (KEY_BLOCK + size.next_multiple_of(PANEL) + 2 + KEY_BLOCK / 2 + prepared_stride(size, 2))
}

/// Writes values of a head as pairs of bf16 in panels. Callers promise that the machine has the instructions and that the
/// memory is long enough.
pub(super) type PackPairsFunction = unsafe fn(Matrix<f32>, &mut [u32]);

/// [`PackPairsFunction`] for an instruction set.
///
/// # Safety
/// See [`PackPairsFunction`].
pub(super) unsafe fn pack_pairs<V: Vector>(values: Matrix<f32>, panels: &mut [u32]) {
    // SAFETY: the caller's promise.
    unsafe { V::run(PackPairsKernel { values, panels }) }
}

struct PackPairsKernel<'a> {
    values: Matrix<'a, f32>,
    panels: &'a mut [u32],
}

impl Kernel for PackPairsKernel<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (count, size) = (self.values.rows(), self.values.columns());
        let pairs = count.div_ceil(2);
        for pair in 0..pairs {
            let first = self.values.row(2 * pair);
            // Behind the last of an odd number stand zeros, which no weight meets but zero.
            let second = if 2 * pair + 1 < count { self.values.row(2 * pair + 1) } else { &[] };
            for column in (0..size.next_multiple_of(PANEL)).step_by(V::LANES) {
                let (panel, lane) = (column / PANEL, column % PANEL);
                let to = &mut self.panels[(panel * pairs + pair) * PANEL + lane..][..V::LANES];
                // SAFETY: as many floats are read as are left behind `column`, and a register is written to its place.
                unsafe {
                    let zero = V::splat(0.0);
                    let at = |row: &[f32]| match row.get(column..) {
                        Some(rest) => V::load_up_to(rest.as_ptr(), rest.len(), zero),
                        None => zero,
                    };
                    let (low, high) = (bf16_up(at(first)).high_half_down(), bf16_up(at(second)));
                    low.add(high).store(to.as_mut_ptr());
                }
            }
        }
    }
}

/// Packs keys, each keys × size, as panels of 16 keys in f32 and values as panels of 16 columns.
fn pack_floats(keys: Matrix<f32>, values: Matrix<f32>, packed_keys: &mut [u32], packed_values: &mut [u32]) {
    pack(Dtype::F32, keys, 0, packed_keys);
    for (panel, to) in packed_values.chunks_exact_mut((keys.rows() * PANEL).max(1)).enumerate() {
        for (key, to) in to.chunks_exact_mut(PANEL).enumerate() {
            let from = &values.row(key)[panel * PANEL..];
            match from.first_chunk::<PANEL>() {
                Some(whole) => to.copy_from_slice(&whole.map(f32::to_bits)),
                None => {
                    to.fill(0);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_bits());
                }
            }
        }
    }
}

/// Packs keys as panels of 16 keys in pairs of bf16.
///
/// # Safety
/// The machine has the instructions of `prepare`. `rows` holds 16 prepared rows.
unsafe fn pack_keys(prepare: PrepareFunction, keys: Matrix<f32>, packed: &mut [u32], rows: &mut [u32]) {
    let (steps, stride) = (keys.columns().div_ceil(2), prepared_stride(keys.columns(), 2));
    for (panel, to) in packed.chunks_exact_mut((steps * PANEL).max(1)).enumerate() {
        let first = panel * PANEL;
        let count = PANEL.min(keys.rows() - first);
        // SAFETY: the caller's promise.
        unsafe { prepare_rows(prepare, keys.block(first, 0, count, keys.columns()), rows) };
        for (step, to) in to.chunks_exact_mut(PANEL).enumerate() {
            to[..count].iter_mut().enumerate().for_each(|(key, to)| *to = rows[key * stride + step]);
        }
    }
}

/// Memory for a block of queries.
struct Work {
    scores: *mut f32,
    mixed: *mut f32,
    greatest: *mut f32,
    sums: *mut f32,
    /// Queries in bf16.
    queries: *mut u32,
    /// Weights in bf16.
    weights: *mut u32,
}

impl Work {
    fn new(scratch: &mut [u32], size: usize) -> Self {
        let (scores, rest) = scratch[..attention_scratch_len(size)].split_at_mut(QUERY_BLOCK * KEY_BLOCK);
        let (greatest, rest) = rest.split_at_mut(QUERY_BLOCK);
        let (sums, rest) = rest.split_at_mut(QUERY_BLOCK);
        let (mixed, rest) = rest.split_at_mut(QUERY_BLOCK * size.next_multiple_of(PANEL));
        let (queries, weights) = rest.split_at_mut(QUERY_BLOCK * prepared_stride(size, 2));
        Self {
            scores: scores.as_mut_ptr().cast(),
            mixed: mixed.as_mut_ptr().cast(),
            greatest: greatest.as_mut_ptr().cast(),
            sums: sums.as_mut_ptr().cast(),
            queries: queries.as_mut_ptr(),
            weights: weights.as_mut_ptr(),
        }
    }
}

/// Rows of factors as tiles read them.
struct Factors {
    words: *const u32,
    stride: usize,
}

impl Kernels {
    /// Packs keys and values, each keys × size, into `memory` of [`packed_head_len`] words. With `bf16` they are rounded to
    /// that type, where the class has instructions for it. `scratch` has [`attention_scratch_len`] words. Panics when shapes
    /// contradict each other.
    pub fn pack_head<'a>(
        &self,
        bf16: bool,
        keys: Matrix<f32>,
        values: Matrix<f32>,
        memory: &'a mut [u32],
        scratch: &mut [u32],
    ) -> PackedHead<'a> {
        let (count, size) = (keys.rows(), keys.columns());
        assert!((count, size) == (values.rows(), values.columns()), "values of another shape");
        let bf16 = self.gemms.attention.filter(|_| bf16);
        let dtype = if bf16.is_some() { Dtype::Bf16 } else { Dtype::F32 };
        let (keys_len, values_len) = (packed_len(dtype, size, count), packed_len(dtype, count, size));
        let (packed_keys, rest) = memory[..packed_head_len(count, size)].split_at_mut(keys_len);
        let packed_values = &mut rest[..values_len];
        // The last panel of keys may be partly empty; what is there is multiplied, but never looked at.
        packed_keys[count / PANEL * (keys_len / count.div_ceil(PANEL).max(1))..].fill(0);
        match bf16.and_then(|gemm| gemm.prepare_function()) {
            // SAFETY: kernels of a class exist only where its instructions do; the lengths are those of the types.
            Some(prepare) => unsafe {
                pack_keys(prepare, keys, packed_keys, &mut scratch[..attention_scratch_len(size)]);
                (self.pack_pairs)(values, packed_values);
            },
            None => pack_floats(keys, values, packed_keys, packed_values),
        }
        PackedHead { dtype, keys: packed_keys, values: packed_values, count, size }
    }

    /// Attends from `queries` (rows × size) to all keys of `head` and writes rows × size. `scratch` has
    /// [`attention_scratch_len`] words. Panics when shapes contradict each other.
    pub fn attention(
        &self,
        queries: Matrix<f32>,
        head: &PackedHead<'_>,
        scale: f32,
        scratch: &mut [u32],
        mut output: MatrixMut<f32>,
    ) {
        let (rows, size) = (queries.rows(), head.size);
        assert!(
            queries.columns() == size && (rows, size) == (output.rows(), output.columns()),
            "attention of another shape"
        );
        assert!(head.count > 0 || rows == 0, "attention without keys");
        let work = Work::new(scratch, size);
        for row in (0..rows).step_by(QUERY_BLOCK) {
            let count = QUERY_BLOCK.min(rows - row);
            let output = output.block_mut(row, 0, count, size);
            // SAFETY: kernels of a class exist only where its instructions do; the scratch is as large as `work` needs.
            unsafe { self.attend(queries.block(row, 0, count, size), head, scale, &work, output) }
        }
    }

    /// The products of the type of `head`.
    fn attention_gemm(&self, head: &PackedHead<'_>) -> &Gemm {
        self.gemms.attention.as_ref().filter(|_| head.dtype == Dtype::Bf16).unwrap_or(&self.gemms.f32)
    }

    /// Rows as factors of the type of `head`, in `memory` where they have to be rounded.
    ///
    /// # Safety
    /// `memory` has room for so many prepared rows.
    unsafe fn factors(&self, head: &PackedHead<'_>, rows: Matrix<f32>, memory: *mut u32) -> Factors {
        match self.attention_gemm(head).prepare_function() {
            None => Factors { words: rows.as_ptr().cast(), stride: rows.stride() },
            Some(prepare) => {
                let stride = prepared_stride(rows.columns(), 2);
                // SAFETY: the caller's promise; kernels of a class exist only where its instructions do.
                unsafe {
                    let memory = std::slice::from_raw_parts_mut(memory, rows.rows() * stride);
                    prepare_rows(prepare, rows, memory);
                }
                Factors { words: memory, stride }
            }
        }
    }

    /// Attends from at most `QUERY_BLOCK` queries.
    ///
    /// # Safety
    /// `work` points to room for `QUERY_BLOCK` rows of `KEY_BLOCK` scores, of whole panels of the head's size, of one
    /// float twice, and of queries and weights in bf16.
    unsafe fn attend(
        &self,
        queries: Matrix<f32>,
        head: &PackedHead<'_>,
        scale: f32,
        work: &Work,
        mut output: MatrixMut<f32>,
    ) {
        let (rows, size) = (queries.rows(), head.size);
        let panels = size.div_ceil(PANEL);
        let gemm = self.attention_gemm(head);
        let per_word = per_word(head.dtype);
        let (key_steps, value_steps) = (size.div_ceil(per_word), head.count.div_ceil(per_word));
        // SAFETY: the caller's promise.
        let factors = unsafe { self.factors(head, queries, work.queries) };
        for key in (0..head.count).step_by(KEY_BLOCK) {
            let keys = KEY_BLOCK.min(head.count - key);
            // SAFETY: `key` is a multiple of whole panels and words below `count`; the rest is the caller's promise.
            unsafe {
                let products = Tile {
                    rows,
                    depth: key_steps,
                    input: factors.words,
                    input_stride: factors.stride,
                    panel: head.keys.as_ptr().add(key * key_steps),
                    panel_stride: key_steps * PANEL,
                    output: work.scores.cast(),
                    output_stride: KEY_BLOCK,
                    accumulate: false,
                };
                gemm.block(keys.div_ceil(PANEL), products);
                (self.softmax_block)(&Block {
                    rows,
                    columns: keys,
                    scores: work.scores,
                    stride: KEY_BLOCK,
                    rounded: if head.dtype == Dtype::Bf16 { work.weights.cast() } else { null_mut() },
                    rounded_stride: KEY_BLOCK,
                    scale: scale * std::f32::consts::LOG2_E,
                    first: key == 0,
                    greatest: work.greatest,
                    sums: work.sums,
                    mixed: work.mixed,
                    mixed_columns: size,
                    mixed_stride: panels * PANEL,
                });
                let weights = match head.dtype {
                    Dtype::Bf16 => Factors { words: work.weights, stride: KEY_BLOCK / 2 },
                    _ => Factors { words: work.scores.cast(), stride: KEY_BLOCK },
                };
                let mix = Tile {
                    rows,
                    depth: keys.div_ceil(per_word),
                    input: weights.words,
                    input_stride: weights.stride,
                    panel: head.values.as_ptr().add(key / per_word * PANEL),
                    panel_stride: value_steps * PANEL,
                    output: work.mixed.cast(),
                    output_stride: panels * PANEL,
                    accumulate: key > 0,
                };
                gemm.block(panels, mix);
            }
        }
        // SAFETY: the caller's promise; the output has the shape of the queries.
        unsafe {
            (self.divide)(&Divide {
                rows,
                columns: size,
                from: work.mixed,
                from_stride: panels * PANEL,
                by: work.sums,
                to: output.as_mut_ptr(),
                to_stride: output.stride(),
            });
        }
    }
}
