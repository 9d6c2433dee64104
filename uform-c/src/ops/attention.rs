//! Attention within each text of a ragged batch, all heads.

use std::ops::Range;

use crate::base::{Matrix, MatrixMut, Result};
use crate::executors::Context;
use crate::kernels::attention::{attention_scratch_len, packed_head_len};

use super::split;

/// Queries of a text that are worth packing its keys and values for once more.
const LEAST_QUERIES: usize = 96;

/// Parts per thread that are enough to keep threads busy to the end although texts differ in length.
const PARTS_PER_THREAD: usize = 8;

/// The queries of one text that one part computes.
struct Chunk {
    text: Range<usize>,
    queries: Range<usize>,
}

/// Chunk number `number` when each text is cut into equal chunks of at most `longest` queries, if there is one.
fn chunk(starts: &[usize], longest: usize, mut number: usize) -> Option<Chunk> {
    for text in starts.windows(2) {
        let length = text[1] - text[0];
        let chunks = length.div_ceil(longest);
        if number < chunks {
            let queries = split::range(length, chunks, number);
            return Some(Chunk {
                text: text[0]..text[1],
                queries: text[0] + queries.start..text[0] + queries.end,
            });
        }
        number -= chunks;
    }
    None
}

/// Writes softmax(scale · query · keyᵀ) · value for every head of every text to `output` (tokens × hidden, heads side by
/// side). `qkv`: tokens × 3·hidden, queries, then keys, then values, each with the heads side by side; `starts`: where each
/// text starts, and at last the number of tokens. Each token attends to all tokens of its own text. With `bf16`, factors are
/// rounded to that type where the class has instructions for it. `OutOfMemory` when
/// there is no room for scratch. Panics when shapes contradict each other: they are computed by us.
pub fn attention(
    context: &Context,
    qkv: Matrix<f32>,
    starts: &[usize],
    heads: usize,
    scale: f32,
    bf16: bool,
    output: MatrixMut<f32>,
) -> Result<()> {
    let (tokens, hidden) = (output.rows(), output.columns());
    assert!(
        qkv.rows() == tokens && qkv.columns() == 3 * hidden && hidden.is_multiple_of(heads),
        "attention of another shape"
    );
    assert!(
        starts.first() == Some(&0) && starts.last() == Some(&tokens) && starts.is_sorted(),
        "texts of other lengths"
    );
    let size = hidden / heads;
    let threads = context.team.threads();
    let wanted = if threads == 1 { 1 } else { threads * PARTS_PER_THREAD };
    let longest = tokens.div_ceil(wanted.div_ceil(heads)).max(LEAST_QUERIES);
    let chunks: usize = starts.windows(2).map(|text| (text[1] - text[0]).div_ceil(longest)).sum();
    let groups = heads.min(wanted.div_ceil(chunks.max(1)));
    split::run(context, chunks * groups, |scratch, part| {
        let Some(chunk) = chunk(starts, longest, part / groups) else { return Ok(()) };
        let (keys, queries) = (chunk.text.len(), chunk.queries.len());
        let mut packed = scratch.take::<u32>(packed_head_len(keys, size))?;
        let mut work = scratch.take::<u32>(attention_scratch_len(size))?;
        for head in split::range(heads, groups, part % groups) {
            let column = head * size;
            let key = qkv.block(chunk.text.start, hidden + column, keys, size);
            let value = qkv.block(chunk.text.start, 2 * hidden + column, keys, size);
            let query = qkv.block(chunk.queries.start, column, queries, size);
            // SAFETY: parts differ in their tokens or in their heads, so their blocks do not overlap.
            let output = unsafe { output.shared_block(chunk.queries.start, column, queries, size) };
            let head = context.kernels.pack_head(bf16, key, value, &mut packed, &mut work);
            context.kernels.attention(query, &head, scale, &mut work, output);
        }
        Ok(())
    })
}
