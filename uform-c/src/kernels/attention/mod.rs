//! Scaled dot-product attention of one head over one text: softmax(scale · query · keyᵀ) · value.
//!
//! Contract: keys are taken in blocks of a fixed size from the first key on, and each query row goes through them with a
//! running softmax, so its bits depend on its text alone: not on which other queries are computed with it, nor on the
//! texts beside it. Products follow the contract of [`gemm`](super::gemm). Any head size is possible.
//! After Dao et al., "FlashAttention" (2022), without its split over keys.
//!
//! Numerical notes: all in f32; the scale is applied to the products, in the exponent, and not to the queries.
//!
//! Why not the plain road of one matrix of scores: it is as wide as the text and leaves the cache for long ones. Why keys
//! and values are packed: the tiles of `gemm` then serve as they are, and packing is one copy for a whole head.

use crate::base::{Dtype, Matrix, MatrixMut};

use super::Kernels;
use super::gemm::{PANEL, Tile, pack, packed_len};
use super::softmax::{Block, Divide};

/// Keys that are looked at together.
const KEY_BLOCK: usize = 128;

/// Queries that are computed together.
const QUERY_BLOCK: usize = 24;

/// Keys and values of one head of one text, packed.
pub struct PackedHead<'a> {
    keys: &'a [u32],
    values: &'a [u32],
    count: usize,
    size: usize,
}

/// Floats that the packed keys and values of `keys` keys of a head of `size` take.
pub const fn packed_head_len(keys: usize, size: usize) -> usize {
    packed_len(Dtype::F32, size, keys) + packed_len(Dtype::F32, keys, size)
}

/// Floats of scratch that attention of a head of `size` takes.
pub const fn attention_scratch_len(size: usize) -> usize {
    QUERY_BLOCK * (KEY_BLOCK + size.next_multiple_of(PANEL) + 2)
}

impl<'a> PackedHead<'a> {
    /// Packs keys and values, each keys × size, into `memory` of [`packed_head_len`] floats. Panics when shapes contradict
    /// each other.
    pub fn new(keys: Matrix<f32>, values: Matrix<f32>, memory: &'a mut [u32]) -> Self {
        let (count, size) = (keys.rows(), keys.columns());
        assert!((count, size) == (values.rows(), values.columns()), "values of another shape");
        let (packed_keys, packed_values) =
            memory[..packed_head_len(count, size)].split_at_mut(packed_len(Dtype::F32, size, count));
        // The last panel of keys may be partly empty; what is there is multiplied, but never looked at.
        packed_keys[count / PANEL * PANEL * size..].fill(0);
        pack(Dtype::F32, keys, 0, packed_keys);
        for (panel, to) in packed_values.chunks_exact_mut((count * PANEL).max(1)).enumerate() {
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
        Self { keys: packed_keys, values: packed_values, count, size }
    }
}

/// Memory for a block of queries.
struct Work {
    scores: *mut f32,
    mixed: *mut f32,
    greatest: *mut f32,
    sums: *mut f32,
}

impl Kernels {
    /// Attends from `queries` (rows × size) to all keys of `head` and writes rows × size. `scratch` has
    /// [`attention_scratch_len`] floats. Panics when shapes contradict each other.
    pub fn attention(
        &self,
        queries: Matrix<f32>,
        head: &PackedHead<'_>,
        scale: f32,
        scratch: &mut [f32],
        mut output: MatrixMut<f32>,
    ) {
        let (rows, size) = (queries.rows(), head.size);
        assert!(
            queries.columns() == size && (rows, size) == (output.rows(), output.columns()),
            "attention of another shape"
        );
        assert!(head.count > 0 || rows == 0, "attention without keys");
        let (scores, rest) = scratch[..attention_scratch_len(size)].split_at_mut(QUERY_BLOCK * KEY_BLOCK);
        let (greatest, rest) = rest.split_at_mut(QUERY_BLOCK);
        let (sums, mixed) = rest.split_at_mut(QUERY_BLOCK);
        let work = Work {
            scores: scores.as_mut_ptr(),
            mixed: mixed.as_mut_ptr(),
            greatest: greatest.as_mut_ptr(),
            sums: sums.as_mut_ptr(),
        };
        for row in (0..rows).step_by(QUERY_BLOCK) {
            let count = QUERY_BLOCK.min(rows - row);
            let output = output.block_mut(row, 0, count, size);
            // SAFETY: kernels of a class exist only where its instructions do; the scratch is as large as `work` needs.
            unsafe { self.attend(queries.block(row, 0, count, size), head, scale, &work, output) }
        }
    }

    /// Attends from at most `QUERY_BLOCK` queries.
    ///
    /// # Safety
    /// `work` points to room for `QUERY_BLOCK` rows of `KEY_BLOCK` scores, of whole panels of the head's size, and of one
    /// float twice.
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
        for key in (0..head.count).step_by(KEY_BLOCK) {
            let keys = KEY_BLOCK.min(head.count - key);
            // SAFETY: `key` is a multiple of whole panels below `count`; the rest is the caller's promise.
            unsafe {
                let products = Tile {
                    depth: size,
                    input: queries.as_ptr().cast(),
                    input_stride: queries.stride(),
                    panel: head.keys.as_ptr().add(key * size),
                    panel_stride: size * PANEL,
                    output: work.scores.cast(),
                    output_stride: KEY_BLOCK,
                    accumulate: false,
                };
                self.gemms.f32.block(rows, keys.div_ceil(PANEL), products);
                (self.softmax_block)(&Block {
                    rows,
                    columns: keys,
                    scores: work.scores,
                    stride: KEY_BLOCK,
                    scale: scale * std::f32::consts::LOG2_E,
                    first: key == 0,
                    greatest: work.greatest,
                    sums: work.sums,
                    mixed: work.mixed,
                    mixed_columns: size,
                    mixed_stride: panels * PANEL,
                });
                let mix = Tile {
                    depth: keys,
                    input: work.scores.cast(),
                    input_stride: KEY_BLOCK,
                    panel: head.values.as_ptr().add(key * PANEL),
                    panel_stride: head.count * PANEL,
                    output: work.mixed.cast(),
                    output_stride: panels * PANEL,
                    accumulate: key > 0,
                };
                self.gemms.f32.block(rows, panels, mix);
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
