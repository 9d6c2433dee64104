//! Linear layers: weights packed once, products with a fused end.

use crate::base::{Dtype, Matrix, MatrixMut, Result, err};
use crate::executors::Context;
use crate::kernels::activation::Activation;
use crate::kernels::gemm::{
    MOST_INPUTS_I8, PANEL, Packed, Product, Quantized, pack, pack_i8, packed_len, prepared_len, rotate,
    rotation,
};
use crate::system::memory::Memory;
use crate::system::pages::Buffer;

use super::split;

/// Multiplications that are worth a thread's attention: some tens of microseconds.
const LEAST_WORK: usize = 1 << 20;

/// What looking up a column's weights costs, in rows.
const COLUMN_COST: usize = 3;

/// A linear layer as `torch.nn.Linear`, or several with the same inputs side by side. Immutable; any thread.
pub struct Linear {
    packing: Packing,
    panels: Memory,
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

impl Packing {
    /// Inputs that are rotated together, one where none are.
    pub fn rotation(self, inputs: usize) -> usize {
        if self.dtype == Dtype::I8 && self.rotated { rotation(inputs) } else { 1 }
    }
}

/// The weights of one layer of those that are put side by side, outputs × inputs.
#[derive(Clone, Copy)]
pub enum Weights<'a> {
    /// As they were learned.
    Floats(Matrix<'a, f32>),
    /// Whole numbers within ±127 and a scale per output, as [`quantize`] makes them.
    Numbers(Matrix<'a, f32>, &'a [f32]),
}

impl Weights<'_> {
    fn shape(&self) -> (usize, usize) {
        let (Self::Floats(matrix) | Self::Numbers(matrix, _)) = self;
        (matrix.rows(), matrix.columns())
    }
}

/// What belongs to weights in i8.
pub struct Scales {
    /// One per output: a weight is its number times this.
    pub weights: Vec<f32>,
    /// The sum of the numbers of each output.
    pub sums: Vec<i32>,
}

impl Scales {
    fn of(outputs: usize) -> Self {
        Self { weights: Vec::with_capacity(outputs), sums: Vec::with_capacity(outputs) }
    }

    fn add(&mut self, numbers: Matrix<f32>, scales: &[f32]) {
        let sum = |row| numbers.row(row).iter().map(|number| *number as i32).sum::<i32>();
        self.sums.extend((0..numbers.rows()).map(sum));
        self.weights.extend_from_slice(scales);
    }
}

/// The greatest number of a weight in i8.
const MOST: f32 = 127.0;

/// The whole number nearest to one within ±2²², ties to even: sums of this size have no bits for a fraction. Where a
/// processor of no class is known, rounding is a call of a function.
fn whole(number: f32) -> f32 {
    const ROUNDER: f32 = 12_582_912.0;
    number + ROUNDER - ROUNDER
}

/// The whole numbers within ±127 that stand for `weight` (outputs × inputs) in i8, in the same order, and the scale of each
/// output. A weight that is not finite makes its output's scale not finite.
pub fn quantize(packing: Packing, weight: Matrix<f32>) -> (Vec<f32>, Vec<f32>) {
    let block = packing.rotation(weight.columns());
    let mut numbers = Vec::with_capacity(weight.rows() * weight.columns());
    let mut scales = Vec::with_capacity(weight.rows());
    for row in 0..weight.rows() {
        let mut row = weight.row(row).to_vec();
        rotate(&mut row, block);
        let most =
            row.iter().fold(0.0f32, |most, weight| if weight.abs() > most { weight.abs() } else { most });
        let spoilt = row.iter().any(|weight| !weight.is_finite());
        let scale = if spoilt { f32::NAN } else { most / MOST };
        let inverse = if scale >= f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
        numbers.extend(row.iter().map(|weight| whole(weight * inverse).clamp(-MOST, MOST)));
        scales.push(scale);
    }
    (numbers, scales)
}

/// Bytes of the panels of weights of that type and shape, and of each panel of 16 outputs. Nothing where they are more than
/// can be counted.
pub fn panel_bytes(dtype: Dtype, inputs: usize, outputs: usize) -> Option<usize> {
    outputs.checked_next_multiple_of(PANEL)?.checked_mul(inputs.checked_mul(size_of::<u32>())?)?;
    packed_len(dtype, inputs, outputs).checked_mul(size_of::<u32>())
}

/// Layers that are being put side by side.
struct Stack {
    packing: Packing,
    panels: Buffer,
    bias: Option<Vec<f32>>,
    scales: Option<Scales>,
    inputs: usize,
}

impl Stack {
    /// Packs one layer as the outputs from `first` on.
    fn put(&mut self, first: usize, weight: Weights, own_bias: Option<&[f32]>) -> Result<()> {
        let panels = self.panels.as_mut_words();
        let (rows, columns) = weight.shape();
        if columns != self.inputs {
            return err!(InvalidArgument, "linear: expected {} inputs, found {columns}", self.inputs);
        }
        if let (Some(bias), Some(own)) = (&mut self.bias, own_bias) {
            if own.len() != rows {
                return err!(InvalidArgument, "linear: expected a bias of {rows}, found {}", own.len());
            }
            bias[first..first + rows].copy_from_slice(own);
        }
        match (&mut self.scales, weight) {
            (None, Weights::Floats(weight)) => pack(self.packing.dtype, weight, first, panels),
            (Some(scales), Weights::Floats(weight)) => {
                let (numbers, own) = quantize(self.packing, weight);
                let numbers = Matrix::dense(&numbers, rows, columns);
                scales.add(numbers, &own);
                pack_i8(numbers, first, panels);
            }
            (Some(scales), Weights::Numbers(numbers, own)) if own.len() == rows => {
                scales.add(numbers, own);
                pack_i8(numbers, first, panels);
            }
            (_, Weights::Numbers(_, own)) => {
                let (dtype, scales) = (self.packing.dtype, own.len());
                return err!(
                    InvalidArgument,
                    "linear: expected i8 and {rows} scales, found {dtype:?} and {scales}"
                );
            }
        }
        Ok(())
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
        let layers: Vec<_> = layers.iter().map(|(weight, bias)| (Weights::Floats(*weight), *bias)).collect();
        Self::stack_of(packing, &layers, domains)
    }

    /// As [`Linear::stack_in`], also of weights that are numbers already, for i8.
    pub fn stack_of(
        packing: impl Into<Packing>,
        layers: &[(Weights, Option<&[f32]>)],
        domains: &[i32],
    ) -> Result<Self> {
        let packing = packing.into();
        let dtype = packing.dtype;
        let inputs = layers.first().map_or(0, |(weight, _)| weight.shape().1);
        let outputs = layers.iter().map(|(weight, _)| weight.shape().0).sum();
        let bias = layers.iter().any(|(_, bias)| bias.is_some()).then(|| vec![0.0; outputs]);
        let scales = (dtype == Dtype::I8).then(|| Scales::of(outputs));
        if dtype == Dtype::I8 && inputs > MOST_INPUTS_I8 {
            return err!(InvalidArgument, "i8: expected at most {MOST_INPUTS_I8} inputs, found {inputs}");
        }
        let Some(bytes) = panel_bytes(dtype, inputs, outputs) else {
            return err!(OutOfMemory, "linear: {outputs} outputs of {inputs} weights could not be had");
        };
        let mut stack = Stack { packing, panels: Buffer::new(bytes, domains)?, bias, scales, inputs };
        let mut first = 0;
        for (weight, bias) in layers {
            stack.put(first, *weight, *bias)?;
            first += weight.shape().0;
        }
        let Stack { panels, bias, scales, .. } = stack;
        Ok(Self { packing, panels: panels.into(), bias, scales, inputs, outputs })
    }

    /// A layer whose weights are packed already: `panels` are those of another one of the same packing and shape.
    /// `InvalidArgument` when they, the bias or the scales have another length, or scales are there where they do not
    /// belong.
    pub fn of_panels(
        packing: Packing,
        panels: Memory,
        (inputs, outputs): (usize, usize),
        scales: Option<Scales>,
        bias: Option<Vec<f32>>,
    ) -> Result<Self> {
        let expected = panel_bytes(packing.dtype, inputs, outputs);
        if expected != Some(panels.bytes()) || (packing.dtype == Dtype::I8 && inputs > MOST_INPUTS_I8) {
            let found = panels.bytes();
            return err!(
                InvalidArgument,
                "linear: {found} bytes are no panels of {outputs} outputs of {inputs} weights"
            );
        }
        let other = |length: usize| length != outputs;
        if bias.as_ref().is_some_and(|bias| other(bias.len()))
            || scales.as_ref().is_some_and(|scales| other(scales.weights.len()) || other(scales.sums.len()))
            || scales.is_some() != (packing.dtype == Dtype::I8)
        {
            return err!(InvalidArgument, "linear: expected a bias and scales of {outputs}, found others");
        }
        Ok(Self { packing, panels, bias, scales, inputs, outputs })
    }

    /// The bytes of its weights as kernels read them, for [`Linear::of_panels`].
    pub fn panels(&self) -> &[u8] {
        self.panels.as_slice()
    }

    /// What belongs to its weights in i8.
    pub fn scales(&self) -> Option<&Scales> {
        self.scales.as_ref()
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
            rotated: self.packing.rotation(self.inputs),
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
