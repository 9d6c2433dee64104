//! Linear layers: weights packed once, products with a fused end.

use crate::base::{Error, Matrix, MatrixMut, Result, Status, err};
use crate::executors::Context;
use crate::kernels::activation::Activation;
use crate::kernels::gemm::{PANEL, Packed, Product, pack, packed_len};
use crate::system::pages::Buffer;

use super::split;

/// Multiplications that are worth a thread's attention: some tens of microseconds.
const LEAST_WORK: usize = 1 << 20;

/// What looking up a column's weights costs, in rows.
const COLUMN_COST: usize = 3;

/// A linear layer as `torch.nn.Linear`, or several with the same inputs side by side. Immutable; any thread.
pub struct Linear {
    panels: Buffer,
    bias: Option<Vec<f32>>,
    inputs: usize,
    outputs: usize,
}

impl Linear {
    /// A layer of `weight` (outputs × inputs) and `bias` (outputs). `InvalidArgument` when their shapes contradict each
    /// other, `OutOfMemory` when there is no room for the packed weights.
    pub fn new(weight: Matrix<f32>, bias: Option<&[f32]>) -> Result<Self> {
        Self::stack(&[(weight, bias)])
    }

    /// Several layers with the same inputs as one, whose outputs are theirs one after the other. Errors as [`Linear::new`].
    pub fn stack(layers: &[(Matrix<f32>, Option<&[f32]>)]) -> Result<Self> {
        Self::stack_in(layers, &[])
    }

    /// As [`Linear::stack`], with the pages of the weights interleaved over those memory domains (none: where this thread
    /// runs).
    pub fn stack_in(layers: &[(Matrix<f32>, Option<&[f32]>)], domains: &[i32]) -> Result<Self> {
        let inputs = layers.first().map_or(0, |(weight, _)| weight.columns());
        let outputs = layers.iter().map(|(weight, _)| weight.rows()).sum();
        let mut bias = layers.iter().any(|(_, bias)| bias.is_some()).then(|| vec![0.0; outputs]);
        let floats = packed_len(inputs, outputs);
        let bytes = floats.checked_mul(size_of::<f32>()).ok_or_else(|| {
            Error::new(Status::OutOfMemory, format!("linear: {floats} weights could not be had"))
        })?;
        let mut panels = Buffer::new(bytes, domains)?;
        let mut first = 0;
        for (weight, own_bias) in layers {
            let rows = weight.rows();
            if weight.columns() != inputs {
                return err!(InvalidArgument, "linear: expected {inputs} inputs, found {}", weight.columns());
            }
            if let (Some(bias), Some(own)) = (&mut bias, own_bias) {
                if own.len() != rows {
                    return err!(InvalidArgument, "linear: expected a bias of {rows}, found {}", own.len());
                }
                bias[first..first + rows].copy_from_slice(own);
            }
            pack(*weight, first, panels.as_mut_floats());
            first += rows;
        }
        Ok(Self { panels, bias, inputs, outputs })
    }

    /// Columns of its inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Columns of its outputs.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Numbers that were learned: weights and biases.
    pub fn parameters(&self) -> u64 {
        (self.inputs * self.outputs + self.bias.as_ref().map_or(0, Vec::len)) as u64
    }

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        self.panels.bytes() + self.bias.as_ref().map_or(0, Vec::len) * size_of::<f32>()
    }

    /// Writes activation(input · weightᵀ + bias) + residual to `output`. Input: rows × inputs; residual and output: rows ×
    /// outputs. Fails only when the team does. Panics when shapes contradict each other: they are computed by us.
    pub fn forward(
        &self,
        context: &Context,
        input: Matrix<f32>,
        output: MatrixMut<f32>,
        activation: Activation,
        residual: Option<Matrix<f32>>,
    ) -> Result<()> {
        let weights = Packed::new(self.panels.as_floats(), self.inputs, self.outputs);
        let rows = input.rows();
        let parts = split::parts(context, rows * self.inputs * self.outputs, LEAST_WORK);
        let (row_parts, column_parts) = split::grid(rows, weights.panels(), parts, COLUMN_COST);
        split::run(context, row_parts * column_parts, |_, part| {
            let rows = split::range(rows, row_parts, part / column_parts);
            let panels = split::range(weights.panels(), column_parts, part % column_parts);
            let columns = panels.start * PANEL..(panels.end * PANEL).min(self.outputs);
            // SAFETY: the blocks of different parts do not overlap.
            let output = unsafe { output.shared_block(rows.start, columns.start, rows.len(), columns.len()) };
            context.kernels.gemm(Product {
                input: input.block(rows.start, 0, rows.len(), self.inputs),
                weights,
                panels,
                bias: self.bias.as_deref(),
                activation,
                residual: residual
                    .map(|residual| residual.block(rows.start, columns.start, rows.len(), columns.len())),
                output,
            });
            Ok(())
        })
    }
}
