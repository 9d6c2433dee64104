//! Linear layers from the tensors of a file, in each of the forms in which files have them: floats, which are packed here;
//! numbers with scales; or panels as kernels read them.

use crate::base::{Dtype, Matrix, Result, err};
use crate::kernels::gemm::{PANEL, per_word};
use crate::ops::linear::{Linear, Packing, Scales, Weights};

use super::packed::{Format, Layout};
use super::tensors::Tensors;

/// A linear layer of a model: one of its file or several with the same inputs, side by side.
pub(super) struct Map {
    /// Names in the file, without what is behind the last dot.
    pub(super) names: Vec<String>,
    pub(super) packing: Packing,
    /// Outputs of each.
    pub(super) outputs: usize,
    pub(super) inputs: usize,
}

/// The tensor with the scales of another one, of numbers or panels.
pub(super) fn scales_of(tensor: &str) -> String {
    format!("{tensor}_scale")
}

/// The tensor with the sums of the outputs of panels.
pub(super) fn sums_of(tensor: &str) -> String {
    format!("{tensor}_sum")
}

impl Map {
    /// The tensors with the weights, outputs × inputs, of each layer.
    pub(super) fn weights(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|name| format!("{name}.weight"))
    }

    /// The tensors with the biases, and their shape.
    pub(super) fn biases(&self) -> impl Iterator<Item = (String, Vec<usize>)> {
        self.names.iter().map(|name| (format!("{name}.bias"), vec![self.outputs]))
    }

    /// The tensor with the panels of all layers together.
    pub(super) fn panels(&self) -> String {
        format!("{}.panels", self.names.join("+"))
    }

    /// Outputs of all layers together.
    pub(super) fn all_outputs(&self) -> usize {
        self.outputs * self.names.len()
    }

    /// The shape of that tensor: panels, steps along the inputs, words.
    pub(super) fn panels_shape(&self) -> [usize; 3] {
        [self.all_outputs().div_ceil(PANEL), self.inputs.div_ceil(per_word(self.packing.dtype)), PANEL]
    }

    /// Reads the weights, packed and spread over `domains` unless they are packed in a mapped file.
    pub(super) fn read(&self, tensors: &Tensors, domains: &[i32]) -> Result<Linear> {
        match tensors.format() {
            Some(format) if format.layout == Layout::X86 => self.read_panels(tensors, domains),
            Some(format) if format.dtype == Dtype::I8 => self.read_numbers(tensors, domains),
            _ => self.read_floats(tensors, domains),
        }
    }

    fn read_biases(&self, tensors: &Tensors) -> Result<Vec<f32>> {
        let mut all = Vec::with_capacity(self.all_outputs());
        for (name, _) in self.biases() {
            all.append(&mut tensors.vector(&name, self.outputs)?);
        }
        Ok(all)
    }

    /// Puts layers side by side, whose weights are at hand.
    fn stack(
        &self,
        packing: Packing,
        weights: &[Weights],
        biases: &[f32],
        domains: &[i32],
    ) -> Result<Linear> {
        let biases = biases.chunks_exact(self.outputs).map(Some);
        let layers: Vec<_> = weights.iter().copied().zip(biases).collect();
        Linear::stack_of(packing, &layers, domains)
    }

    fn read_floats(&self, tensors: &Tensors, domains: &[i32]) -> Result<Linear> {
        let read = |name: String| tensors.matrix(&name, self.outputs, self.inputs);
        let weights = self.weights().map(read).collect::<Result<Vec<_>>>()?;
        let floats: Vec<_> = weights
            .iter()
            .map(|weight| Weights::Floats(Matrix::dense(weight, self.outputs, self.inputs)))
            .collect();
        self.stack(self.packing, &floats, &self.read_biases(tensors)?, domains)
    }

    /// The packing that its weights have when they are read.
    pub(super) fn packing_in(&self, tensors: &Tensors) -> Result<Packing> {
        match tensors.format() {
            Some(format) if format.layout == Layout::X86 => {
                self.packing_of(format, std::iter::once(self.panels()))
            }
            Some(format) if format.dtype == Dtype::I8 => self.packing_of(format, self.weights()),
            _ => Ok(self.packing),
        }
    }

    /// The packing that the file says, which is the same for all layers.
    fn packing_of(&self, format: &Format, tensors: impl Iterator<Item = String>) -> Result<Packing> {
        let rotation = Packing { rotated: true, ..self.packing }.rotation(self.inputs);
        let rotated = tensors.map(|name| format.is_rotated(&name, rotation)).collect::<Result<Vec<_>>>()?;
        match rotated.iter().all(|each| *each == rotated[0]) {
            true => Ok(Packing { rotated: rotated[0], ..self.packing }),
            false => err!(CorruptData, "{}: expected all of them rotated or none", self.names.join(", ")),
        }
    }

    fn read_numbers(&self, tensors: &Tensors, domains: &[i32]) -> Result<Linear> {
        let packing = self.packing_in(tensors)?;
        let read = |name: String| {
            let numbers = tensors.numbers(&name, self.outputs, self.inputs)?;
            Ok((numbers, tensors.scales(&scales_of(&name), self.outputs)?))
        };
        let weights = self.weights().map(read).collect::<Result<Vec<_>>>()?;
        let numbers: Vec<_> = weights
            .iter()
            .map(|(numbers, scales)| {
                Weights::Numbers(Matrix::dense(numbers, self.outputs, self.inputs), scales)
            })
            .collect();
        self.stack(packing, &numbers, &self.read_biases(tensors)?, domains)
    }

    fn read_panels(&self, tensors: &Tensors, domains: &[i32]) -> Result<Linear> {
        let name = self.panels();
        let packing = self.packing_in(tensors)?;
        let outputs = self.all_outputs();
        let scales = match packing.dtype {
            Dtype::I8 => Some(Scales {
                weights: tensors.scales(&scales_of(&name), outputs)?,
                sums: tensors.sums(&sums_of(&name), outputs)?,
            }),
            _ => None,
        };
        let panels = tensors.words(&name, &self.panels_shape(), self.inputs * outputs, domains)?;
        Linear::of_panels(packing, panels, (self.inputs, outputs), scales, Some(self.read_biases(tensors)?))
    }
}
