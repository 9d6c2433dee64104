//! Linear layers: weights packed once, products with a fused end.

use crate::base::{Dtype, Error, Matrix, MatrixMut, Result, Status, err};
use crate::executors::Context;
use crate::kernels::activation::Activation;
use crate::kernels::gemm::{
    MOST_INPUTS_I8, PANEL, Packed, Product, Quantized, pack, pack_i8, packed_len, prepared_len, rotate,
    rotation,
};
use crate::system::pages::Buffer;

use super::split;

/// Multiplications that are worth a thread's attention: some tens of microseconds.
const LEAST_WORK: usize = 1 << 20;

/// What looking up a column's weights costs, in rows.
const COLUMN_COST: usize = 3;

/// A linear layer as `torch.nn.Linear`, or several with the same inputs side by side. Immutable; any thread.
pub struct Linear {
    packing: Packing,
    panels: Buffer,
    bias: Option<Vec<f32>>,
    scales: Option<Scales>,
    inputs: usize,
    outputs: usize,
}

/// How the weights of a layer are kept, and so the type in which its products are computed.
#[derive(Clone, Copy)]
pub struct Packing {
    /// f32, bf16, f16 or i8.
    pub dtype: Dtype,
    /// Whether inputs are rotated before they are quantized to i8: this costs a pass over them, and keeps the precision of
    /// most channels where a few are much greater.
    pub rotated: bool,
}

impl From<Dtype> for Packing {
    /// Rotated where that makes a difference.
    fn from(dtype: Dtype) -> Self {
        Self { dtype, rotated: true }
    }
}

/// What belongs to weights in i8.
struct Scales {
    weights: Vec<f32>,
    sums: Vec<i32>,
    /// Inputs that are rotated together.
    rotated: usize,
}

/// The greatest number of a weight in i8.
const MOST: f32 = 127.0;

impl Scales {
    /// The whole numbers within ±127 that stand for the rows of `weight`, whose scales and sums are added to what is here.
    /// A weight that is not finite makes its row's scale not finite.
    fn quantize(&mut self, weight: Matrix<f32>) -> Vec<f32> {
        let mut numbers = Vec::with_capacity(weight.rows() * weight.columns());
        for row in 0..weight.rows() {
            let mut row = weight.row(row).to_vec();
            rotate(&mut row, self.rotated);
            let most =
                row.iter().fold(0.0f32, |most, weight| if weight.abs() > most { weight.abs() } else { most });
            let spoilt = row.iter().any(|weight| !weight.is_finite());
            let scale = if spoilt { f32::NAN } else { most / MOST };
            let inverse = if scale >= f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
            let start = numbers.len();
            numbers.extend(row.iter().map(|weight| (weight * inverse).round_ties_even().clamp(-MOST, MOST)));
            self.weights.push(scale);
            self.sums.push(numbers[start..].iter().map(|number| *number as i32).sum());
        }
        numbers
    }
}

impl Linear {
    /// A layer of `weight` (outputs × inputs) and `bias` (outputs), whose weights and inputs are multiplied as f32, bf16, f16
    /// or i8. `InvalidArgument` when their shapes contradict each other, `OutOfMemory` when there is no room for the packed
    /// weights.
    pub fn new(packing: impl Into<Packing>, weight: Matrix<f32>, bias: Option<&[f32]>) -> Result<Self> {
        Self::stack(packing, &[(weight, bias)])
    }

    /// Several layers with the same inputs as one, whose outputs are theirs one after the other. Errors as [`Linear::new`].
    pub fn stack(packing: impl Into<Packing>, layers: &[(Matrix<f32>, Option<&[f32]>)]) -> Result<Self> {
        Self::stack_in(packing, layers, &[])
    }

    /// As [`Linear::stack`], with the pages of the weights interleaved over those memory domains (none: where this thread
    /// runs).
    pub fn stack_in(
        packing: impl Into<Packing>,
        layers: &[(Matrix<f32>, Option<&[f32]>)],
        domains: &[i32],
    ) -> Result<Self> {
        let packing = packing.into();
        let dtype = packing.dtype;
        let inputs = layers.first().map_or(0, |(weight, _)| weight.columns());
        let outputs = layers.iter().map(|(weight, _)| weight.rows()).sum();
        let bias = layers.iter().any(|(_, bias)| bias.is_some()).then(|| vec![0.0; outputs]);
        let scales = (dtype == Dtype::I8).then(|| Scales {
            weights: Vec::with_capacity(outputs),
            sums: Vec::with_capacity(outputs),
            rotated: if packing.rotated { rotation(inputs) } else { 1 },
        });
        if dtype == Dtype::I8 && inputs > MOST_INPUTS_I8 {
            return err!(InvalidArgument, "i8: expected at most {MOST_INPUTS_I8} inputs, found {inputs}");
        }
        let words = packed_len(dtype, inputs, outputs);
        let bytes = words.checked_mul(size_of::<u32>()).ok_or_else(|| {
            Error::new(Status::OutOfMemory, format!("linear: {words} words of weights could not be had"))
        })?;
        let mut layer = Self { packing, panels: Buffer::new(bytes, domains)?, bias, scales, inputs, outputs };
        let mut first = 0;
        for (weight, bias) in layers {
            layer.put(first, *weight, *bias)?;
            first += weight.rows();
        }
        Ok(layer)
    }

    /// Packs one layer as the outputs from `first` on.
    fn put(&mut self, first: usize, weight: Matrix<f32>, own_bias: Option<&[f32]>) -> Result<()> {
        let (rows, inputs) = (weight.rows(), self.inputs);
        if weight.columns() != inputs {
            return err!(InvalidArgument, "linear: expected {inputs} inputs, found {}", weight.columns());
        }
        if let (Some(bias), Some(own)) = (&mut self.bias, own_bias) {
            if own.len() != rows {
                return err!(InvalidArgument, "linear: expected a bias of {rows}, found {}", own.len());
            }
            bias[first..first + rows].copy_from_slice(own);
        }
        match &mut self.scales {
            None => pack(self.packing.dtype, weight, first, self.panels.as_mut_words()),
            Some(scales) => {
                let numbers = scales.quantize(weight);
                pack_i8(Matrix::dense(&numbers, rows, inputs), first, self.panels.as_mut_words());
            }
        }
        Ok(())
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
        let scales = self.scales.as_ref().map_or(0, |scales| scales.weights.len() + scales.sums.len());
        self.panels.bytes() + (scales + self.bias.as_ref().map_or(0, Vec::len)) * size_of::<f32>()
    }

    /// Words of scratch that a thread takes for products of `rows` rows, on any class: an upper bound.
    pub fn scratch_len(&self, rows: usize) -> usize {
        if self.packing.dtype == Dtype::F32 { 0 } else { prepared_len(self.packing.dtype, rows, self.inputs) }
    }

    /// The weights as kernels take them.
    fn packed(&self) -> Packed<'_> {
        let quantized = self.scales.as_ref().map(|scales| Quantized {
            scales: &scales.weights,
            sums: &scales.sums,
            rotated: scales.rotated,
        });
        Packed::new(self.packing.dtype, self.panels.as_words(), self.inputs, self.outputs, quantized)
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
        let weights = self.packed();
        let rows = input.rows();
        let parts = split::parts(context, rows * self.inputs * self.outputs, LEAST_WORK);
        let (row_parts, column_parts) = split::grid(rows, weights.panels(), parts, COLUMN_COST);
        split::run(context, row_parts * column_parts, |scratch, part| {
            let rows = split::range(rows, row_parts, part / column_parts);
            let panels = split::range(weights.panels(), column_parts, part % column_parts);
            let columns = panels.start * PANEL..(panels.end * PANEL).min(self.outputs);
            let words = context.kernels.gemm_scratch_len(self.packing.dtype, rows.len(), self.inputs);
            let mut words = scratch.take::<u32>(words)?;
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
                scratch: &mut words,
                output,
            });
            Ok(())
        })
    }
}
