//! From the vectors of tokens to those of texts: pooling, then the modules behind it, then Matryoshka.

use crate::base::{Matrix, MatrixMut, Result};
use crate::executors::{Context, Loan};
use crate::kernels::activation::Activation;
use crate::ops::linear::Linear;
use crate::ops::norm::layer_norm;
use crate::ops::pool::{Pooling, normalize, pool};

use super::bert::scratch_bytes;
use super::modules::{LAYER_NORM_EPSILON, PoolingRule, Residual, Step};

/// What is done behind the transformer.
pub(super) struct Finish {
    pub(super) pooling: PoolingRule,
    pub(super) steps: Vec<Step>,
    hidden: usize,
}

/// Choices of one call.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    /// Elements that are kept of every vector.
    pub(super) dimensions: usize,
    /// Whether the vectors have length one at the end; without a word, as the model says.
    pub(super) normalize: Option<bool>,
    /// Tokens at the start of every text that do not take part in pooling.
    pub(super) skipped: usize,
}

impl Finish {
    pub(super) fn new(pooling: PoolingRule, steps: Vec<Step>, hidden: usize) -> Self {
        Self { pooling, steps, hidden }
    }

    /// Elements of a vector behind the pooling.
    fn pooled(&self) -> usize {
        self.hidden * self.pooling.modes.len()
    }

    /// The affine and linear maps, in order.
    fn maps(&self) -> impl Iterator<Item = &Linear> {
        let maps = self.steps.iter().flat_map(|step| match step {
            Step::Dense { linear, residual: Residual::Projected(projection), .. } => {
                [Some(&**linear), Some(&**projection)]
            }
            Step::Dense { linear, .. } => [Some(&**linear), None],
            Step::LayerNorm { .. } | Step::Normalize => [None, None],
        });
        maps.flatten()
    }

    /// Elements of a vector at the end.
    pub(super) fn dimensions(&self) -> usize {
        self.maps().last().map_or(self.pooled(), Linear::outputs)
    }

    /// Elements of the longest vector on the way.
    pub(super) fn widest(&self) -> usize {
        self.maps().map(Linear::outputs).fold(self.pooled(), usize::max)
    }

    /// Whether the model's vectors have length one.
    pub(super) fn normalizes(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Normalize))
    }

    /// Bytes of the weights.
    pub(super) fn bytes(&self) -> u64 {
        let norms = self.steps.iter().map(|step| match step {
            Step::LayerNorm { weight, bias } => size_of_val(&weight[..]) + size_of_val(&bias[..]),
            Step::Dense { .. } | Step::Normalize => 0,
        });
        (self.maps().map(Linear::bytes).sum::<usize>() + norms.sum::<usize>()) as u64
    }

    /// Bytes of scratch that [`run`](Self::run) takes on one thread for that many texts: an upper bound.
    pub(super) fn scratch(&self, rows: usize) -> u128 {
        3 * scratch_bytes(rows, self.widest()) + scratch_bytes(self.hidden, 1)
    }

    /// The vectors of the texts whose tokens are the rows of `tokens` between neighbours of `starts`: as many rows of
    /// as many elements as `choice` keeps, one every [`widest`](Self::widest) elements.
    pub(super) fn run<'s>(
        &self,
        context: &Context<'s>,
        tokens: Matrix<f32>,
        starts: &[usize],
        choice: Choice,
    ) -> Result<Loan<'s, f32>> {
        let (rows, stride) = (starts.len() - 1, self.widest());
        let scratch = &context.scratch[context.thread];
        let mut current = scratch.take::<f32>(rows * stride)?;
        let mut next = scratch.take::<f32>(rows * stride)?;
        let mut width = self.pooled();
        let mut pooled = MatrixMut::new(&mut current, rows, width, stride);
        for (row, bounds) in starts.windows(2).enumerate() {
            let text = tokens.block(bounds[0], 0, bounds[1] - bounds[0], self.hidden);
            self.pool(context, text, choice.skipped, pooled.row_mut(row))?;
        }
        let last = self.steps.len() - usize::from(choice.normalize == Some(false) && self.normalizes());
        for step in &self.steps[..last] {
            match step {
                Step::Normalize => normalize(context, MatrixMut::new(&mut current, rows, width, stride))?,
                Step::LayerNorm { weight, bias } => {
                    let output = MatrixMut::new(&mut next, rows, width, stride);
                    let input = Matrix::new(&current, rows, width, stride);
                    layer_norm(context, input, weight, bias, LAYER_NORM_EPSILON, output)?;
                    current.swap_with_slice(&mut next);
                }
                Step::Dense { linear, activation, residual } => {
                    let outputs = linear.outputs();
                    let output = MatrixMut::new(&mut next, rows, outputs, stride);
                    let input = Matrix::new(&current, rows, width, stride);
                    let mut projected;
                    let added = match residual {
                        Residual::None => None,
                        Residual::Input => Some(input),
                        Residual::Projected(linear) => {
                            projected = scratch.take::<f32>(rows * outputs)?;
                            let output = MatrixMut::dense(&mut projected, rows, outputs);
                            linear.forward(context, input, output, Activation::None, None)?;
                            Some(Matrix::dense(&projected, rows, outputs))
                        }
                    };
                    linear.forward(context, input, output, *activation, added)?;
                    width = outputs;
                    current.swap_with_slice(&mut next);
                }
            }
        }
        let cut = choice.dimensions < width;
        let wanted = choice.normalize.unwrap_or(self.normalizes());
        let done = self.normalizes() && !cut;
        if wanted && !done {
            normalize(context, MatrixMut::new(&mut current, rows, choice.dimensions, stride))?;
        }
        Ok(current)
    }

    /// The pooled vector of one text, without the first `skipped` of its tokens.
    fn pool(&self, context: &Context, text: Matrix<f32>, skipped: usize, output: &mut [f32]) -> Result<()> {
        let left = text.rows().saturating_sub(skipped);
        for (mode, part) in self.pooling.modes.iter().zip(output.chunks_exact_mut(self.hidden)) {
            match (mode, left) {
                // The reference takes the first token where no token takes part, and nothing in its other modes.
                (Pooling::Cls, 0) => pool(context, *mode, text, part)?,
                (Pooling::Max, 0) => part.fill(f32::NEG_INFINITY),
                (_, 0) => part.fill(0.0),
                _ => {
                    let kept = text.block(text.rows() - left, 0, left, self.hidden);
                    pool(context, *mode, kept, part)?;
                    if *mode == Pooling::WeightedMean && skipped > 0 {
                        self.shift_weights(context, kept, skipped, part)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The mean with weights `skipped` + 1, `skipped` + 2, … out of `mean`, the one with weights 1, 2, …: a token keeps
    /// the weight of its place in the whole text.
    fn shift_weights(
        &self,
        context: &Context,
        kept: Matrix<f32>,
        skipped: usize,
        mean: &mut [f32],
    ) -> Result<()> {
        let count = kept.rows() as f32;
        let (sum, shift) = (count * (count + 1.0) / 2.0, count * skipped as f32);
        let mut plain = context.scratch[context.thread].take::<f32>(mean.len())?;
        pool(context, Pooling::Mean, kept, &mut plain)?;
        for (weighted, plain) in mean.iter_mut().zip(plain.iter()) {
            *weighted = (sum * *weighted + shift * plain) / (sum + shift);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executors::on_calling_thread;

    fn run(modes: &[Pooling], steps: Vec<Step>, tokens: &[[f32; 2]], choice: Choice) -> Vec<f32> {
        let rule = PoolingRule { modes: modes.to_vec(), include_prompt: false };
        let finish = Finish::new(rule, steps, 2);
        on_calling_thread(None, |context| {
            let tokens = Matrix::dense(tokens.as_flattened(), tokens.len(), 2);
            let vectors = finish.run(context, tokens, &[0, tokens.rows()], choice)?;
            Ok(vectors[..choice.dimensions].to_vec())
        })
        .unwrap()
    }

    fn skipping(skipped: usize, dimensions: usize) -> Choice {
        Choice { dimensions, normalize: None, skipped }
    }

    const TOKENS: [[f32; 2]; 4] = [[1.0, -1.0], [2.0, 0.5], [4.0, 8.0], [0.0, 1.0]];

    #[test]
    fn prompts_are_left_out_and_weights_keep_their_places() {
        let all = [Pooling::Cls, Pooling::Max, Pooling::Mean, Pooling::MeanSqrtLength, Pooling::LastToken];
        let root = 2f32.sqrt();
        let found = run(&all, vec![], &TOKENS, skipping(2, 10));
        let expected = [4.0, 8.0, 4.0, 8.0, 2.0, 4.5, 4.0 / root, 9.0 / root, 0.0, 1.0];
        assert!(
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6),
            "{found:?}"
        );
        let weighted = run(&[Pooling::WeightedMean], vec![], &TOKENS, skipping(2, 2));
        let expected = [(3.0 * 4.0) / 7.0, (3.0 * 8.0 + 4.0) / 7.0];
        assert!(
            weighted.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6),
            "{weighted:?}"
        );
    }

    #[test]
    fn a_prompt_that_takes_everything_leaves_nothing() {
        let modes = [Pooling::Cls, Pooling::Mean, Pooling::WeightedMean, Pooling::LastToken];
        assert_eq!(run(&modes, vec![], &TOKENS, skipping(4, 8)), [1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(run(&[Pooling::Max], vec![], &TOKENS, skipping(9, 2)), [f32::NEG_INFINITY; 2]);
    }

    #[test]
    fn length_one_as_the_model_or_the_caller_says() {
        let mean = |normalizes: bool, dimensions: usize, normalize: Option<bool>| {
            let steps = if normalizes { vec![Step::Normalize] } else { vec![] };
            let choice = Choice { dimensions, normalize, skipped: 0 };
            let vector = run(&[Pooling::Mean], steps, &TOKENS, choice);
            vector.iter().map(|element| element * element).sum::<f32>().sqrt()
        };
        let plain = (1.75f32 * 1.75 + 2.125 * 2.125).sqrt();
        for (normalizes, dimensions, normalize, expected) in [
            (false, 2, None, plain),
            (false, 2, Some(true), 1.0),
            (true, 2, None, 1.0),
            (true, 2, Some(false), plain),
            (true, 1, None, 1.0),
            (true, 1, Some(false), 1.75),
            (false, 1, Some(true), 1.0),
        ] {
            let found = mean(normalizes, dimensions, normalize);
            assert!((found - expected).abs() < 1e-6, "{normalizes} {dimensions} {normalize:?}: {found}");
        }
    }
}
