//! Layer normalization.

use crate::base::{Matrix, MatrixMut, Result};
use crate::executors::Context;

use super::split;

/// Elements that are worth a thread's attention: some microseconds.
pub(super) const LEAST_ELEMENTS: usize = 1 << 14;

/// Writes (x - mean) / √(variance + ε) · weight + bias of each row of `input` to `output`, as `torch.nn.LayerNorm`. Both:
/// rows × width; weight and bias: width. Fails only when the team does. Panics when shapes contradict each other.
pub fn layer_norm(
    context: &Context,
    input: Matrix<f32>,
    weight: &[f32],
    bias: &[f32],
    epsilon: f32,
    output: MatrixMut<f32>,
) -> Result<()> {
    let (rows, width) = (input.rows(), input.columns());
    let parts = split::parts(context, rows * width, LEAST_ELEMENTS);
    split::run(context, parts, |_, part| {
        let rows = split::range(rows, parts, part);
        // SAFETY: the blocks of different parts do not overlap.
        let output = unsafe { output.shared_block(rows.start, 0, rows.len(), width) };
        let input = input.block(rows.start, 0, rows.len(), width);
        context.kernels.layer_norm(input, weight, bias, epsilon, output);
        Ok(())
    })
}
