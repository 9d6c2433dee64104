//! Pooling of the tokens of a text, and scaling of rows to unit length.

use crate::base::{Matrix, MatrixMut, Result, err};
use crate::executors::Context;

use super::norm::LEAST_ELEMENTS;
use super::split;

pub use crate::kernels::pool::Pooling;

/// Writes the pooled row of one text. `tokens`: tokens × width; `output`: width. `InvalidArgument` for a text without
/// tokens. Runs on the calling thread: texts are what is split over threads. Panics when shapes contradict each other.
pub fn pool(context: &Context, pooling: Pooling, tokens: Matrix<f32>, output: &mut [f32]) -> Result<()> {
    if tokens.rows() == 0 {
        return err!(InvalidArgument, "pooling: expected at least one token, found none");
    }
    context.kernels.pool(pooling, tokens, output);
    Ok(())
}

/// Divides each row by its Euclidean norm, or by 10⁻¹² where that is greater, as `torch.nn.functional.normalize`. Fails
/// only when the team does.
pub fn normalize(context: &Context, rows: MatrixMut<f32>) -> Result<()> {
    let (count, width) = (rows.rows(), rows.columns());
    let parts = split::parts(context, count * width, LEAST_ELEMENTS);
    split::run(context, parts, |_, part| {
        let part = split::range(count, parts, part);
        // SAFETY: the blocks of different parts do not overlap.
        context.kernels.normalize(unsafe { rows.shared_block(part.start, 0, part.len(), width) });
        Ok(())
    })
}
