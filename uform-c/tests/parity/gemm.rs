//! Products with packed weights.

use std::ops::Range;

use half::{bf16, f16};
use uform_c::base::{Dtype, Matrix, MatrixMut};
use uform_c::kernels::Kernels;
use uform_c::kernels::activation::Activation;
use uform_c::kernels::gemm::{
    PANEL, Packed, Product, Quantized, pack, pack_i8, packed_len, prepared_len, rotate, rotation,
};
use uform_c::ops::linear::{Linear, Packing};

use crate::support::{Guarded, bits, classes, numbers, with_context};

/// The types that weights are packed in.
const TYPES: [Dtype; 4] = [Dtype::F32, Dtype::Bf16, Dtype::F16, Dtype::I8];

/// Weights as PyTorch stores them, as their type can hold them, and packed.
struct Weights {
    dtype: Dtype,
    /// For i8 the whole numbers.
    held: Vec<f32>,
    packed: Vec<u32>,
    scales: Vec<f32>,
    sums: Vec<i32>,
    rotated: usize,
    inputs: usize,
    outputs: usize,
}

impl Weights {
    fn new(dtype: Dtype, seed: u64, inputs: usize, outputs: usize) -> Self {
        let plain = numbers(seed, inputs * outputs);
        let mut packed = vec![0; packed_len(dtype, inputs, outputs)];
        let (mut scales, mut sums) = (vec![], vec![]);
        let held: Vec<f32> = match dtype {
            Dtype::I8 => plain.iter().map(|weight| (weight * 127.0).round().clamp(-127.0, 127.0)).collect(),
            _ => plain.iter().map(|weight| rounded(dtype, *weight)).collect(),
        };
        if dtype == Dtype::I8 {
            scales = numbers(seed + 1, outputs);
            let rows = (0..outputs).map(|row| &held[row * inputs..][..inputs]);
            sums = rows.map(|row| row.iter().map(|number| *number as i32).sum()).collect();
            pack_i8(Matrix::dense(&held, outputs, inputs), 0, &mut packed);
        } else {
            pack(dtype, Matrix::dense(&plain, outputs, inputs), 0, &mut packed);
        }
        // Every other layer rotates its inputs, as far as their number allows.
        let rotated = if dtype == Dtype::I8 && seed.is_multiple_of(2) { rotation(inputs) } else { 1 };
        Self { dtype, held, packed, scales, sums, rotated, inputs, outputs }
    }

    fn packed(&self) -> Packed<'_> {
        let quantized = (self.dtype == Dtype::I8).then_some(Quantized {
            scales: &self.scales,
            sums: &self.sums,
            rotated: self.rotated,
        });
        Packed::new(self.dtype, &self.packed, self.inputs, self.outputs, quantized)
    }

    fn row(&self, output: usize) -> &[f32] {
        &self.held[output * self.inputs..][..self.inputs]
    }

    fn multiply(&self, kernels: &Kernels, input: Matrix<f32>, output: MatrixMut<f32>) {
        let panels = 0..self.packed().panels();
        self.part(kernels, panels, None, Activation::None, input, output);
    }

    fn part(
        &self,
        kernels: &Kernels,
        panels: Range<usize>,
        bias: Option<&[f32]>,
        activation: Activation,
        input: Matrix<f32>,
        output: MatrixMut<f32>,
    ) {
        let mut scratch = vec![u32::MAX; kernels.gemm_scratch_len(self.dtype, input.rows(), self.inputs)];
        let (weights, residual, scratch) = (self.packed(), None, &mut scratch[..]);
        kernels.gemm(Product { input, weights, panels, bias, activation, residual, scratch, output });
    }
}

/// The nearest number of a floating point type.
fn rounded(dtype: Dtype, number: f32) -> f32 {
    match dtype {
        Dtype::Bf16 => bf16::from_f32(number).to_f32(),
        Dtype::F16 => f16::from_f32(number).to_f32(),
        _ => number,
    }
}

/// A row in bytes, as its scale and its numbers, after it was rotated in blocks of that size.
fn quantized(row: &[f32], block: usize) -> (f32, Vec<i32>) {
    let mut row = row.to_vec();
    rotate(&mut row, block);
    row.iter_mut().for_each(|value| *value *= block as f32);
    let greatest = row.iter().fold(0.0f32, |greatest, number| greatest.max(number.abs()));
    let scale = greatest / 127.0;
    let inverse = 1.0 / scale;
    let byte = |number: &f32| (number * inverse + 128.0).round_ties_even().clamp(1.0, 255.0) as i32 - 128;
    (scale, row.iter().map(byte).collect())
}

/// The sum and the sum of magnitudes of one element, in f64.
fn dot(row: &[f32], weights: &[f32]) -> (f64, f64) {
    row.iter().zip(weights).fold((0.0, 0.0), |(sum, magnitude), (&a, &b)| {
        let product = f64::from(a) * f64::from(b);
        (sum + product, magnitude + product.abs())
    })
}

const ROWS: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 33];
const COLUMNS: [usize; 14] = [1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100];
const DEPTHS: [usize; 11] = [1, 2, 3, 9, 16, 31, 64, 100, 384, 1000, 4099];

/// Calls `check` with weights of every shape, rows and their product.
fn shapes(dtype: Dtype, kernels: &Kernels, mut check: impl FnMut(&Weights, Matrix<f32>, Matrix<f32>)) {
    for (index, &inputs) in DEPTHS.iter().enumerate() {
        for (turn, &outputs) in COLUMNS.iter().enumerate() {
            let weights = Weights::new(dtype, (index * 31 + turn) as u64, inputs, outputs);
            // Each shape with a third of the heights, another third every time.
            for &rows in ROWS.iter().skip((index + turn) % 3).step_by(3) {
                let input = Guarded::filled(rows as u64, rows, inputs, turn % 4);
                let mut output = Guarded::new(rows, outputs, index % 5);
                weights.multiply(kernels, input.view(), output.view_mut());
                output.check("gemm");
                check(&weights, input.view(), output.view());
            }
        }
    }
}

#[test]
fn products_match_f64() {
    for class in classes() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let mut most = 0.0f64;
            shapes(dtype, class.kernels, |weights, input, output| {
                for row in 0..input.rows() {
                    let held: Vec<f32> = input.row(row).iter().map(|value| rounded(dtype, *value)).collect();
                    for (column, found) in output.row(row).iter().enumerate() {
                        let (sum, magnitude) = dot(&held, weights.row(column));
                        most = most.max((f64::from(*found) - sum).abs() / magnitude);
                    }
                }
            });
            println!("{} {}: {most:e}", class.name, dtype.name());
            assert!(most <= class.tolerance("gemm"), "{} {}: {most:e}", class.name, dtype.name());
        }
    }
}

#[test]
fn products_of_bytes_are_exact() {
    for class in classes() {
        shapes(Dtype::I8, class.kernels, |weights, input, output| {
            for row in 0..input.rows() {
                let (scale, bytes) = quantized(input.row(row), weights.rotated);
                for (column, found) in output.row(row).iter().enumerate() {
                    let numbers = weights.row(column).iter().map(|number| *number as i32);
                    let sum: i32 = bytes.iter().zip(numbers).map(|(byte, number)| byte * number).sum();
                    let expected = sum as f32 * weights.scales[column] * scale + 0.0;
                    assert!(
                        found.to_bits() == expected.to_bits(),
                        "{}: row {row}, column {column} of {} inputs: {found} for {expected}",
                        class.name,
                        weights.inputs
                    );
                }
            }
        });
    }
}

#[test]
fn rows_that_bytes_cannot_hold_are_zeros_or_not_finite() {
    let weights = Weights::new(Dtype::I8, 31, 40, 20);
    for class in classes() {
        let input = [[0.0f32; 40], [1e-44; 40], [f32::MAX; 40], [5.0; 40], [-5.0; 40]].concat();
        let mut output = Guarded::new(5, 20, 0);
        weights.multiply(class.kernels, Matrix::dense(&input, 5, 40), output.view_mut());
        for column in 0..20 {
            let sum = weights.sums[column] as f32 * weights.scales[column];
            for (row, factor) in [0.0, 0.0, f32::MAX, 5.0, -5.0].into_iter().enumerate() {
                let (found, expected) = (output.view().row(row)[column], sum * factor);
                let near = (found - expected).abs() <= expected.abs() * 1e-5 || found == expected;
                assert!(near, "{}: row {row}: {found} for {expected}", class.name);
            }
        }
    }
}

#[test]
fn one_channel_far_above_the_others_costs_a_rotated_layer_little() {
    let (rows, inputs, outputs) = (9, 384, 64);
    let plain = numbers(40, inputs * outputs);
    let mut input = Guarded::filled(41, rows, inputs, 0);
    (0..rows).for_each(|row| input.view_mut().row_mut(row)[99] = 100.0);
    for class in classes() {
        let error = |packing: Packing| {
            let product = |packing: Packing| {
                let layer =
                    Linear::new(packing, Matrix::dense(&plain, outputs, inputs), None).expect("a layer");
                let mut output = Guarded::new(rows, outputs, 0);
                with_context(class.kernels, 1, |context| {
                    layer.forward(context, input.view(), output.view_mut(), Activation::None, None)
                })
                .expect("a product");
                output
            };
            let (found, expected) = (product(packing), product(Dtype::F32.into()));
            let differences = (0..rows).flat_map(|row| {
                let pairs = found.view().row(row).to_vec().into_iter().zip(expected.view().row(row).to_vec());
                pairs.map(|(found, expected)| f64::from(found - expected).powi(2)).collect::<Vec<_>>()
            });
            differences.sum::<f64>().sqrt()
        };
        let rotated = error(Packing { dtype: Dtype::I8, rotated: true });
        let straight = error(Packing { dtype: Dtype::I8, rotated: false });
        assert!(rotated * 2.0 < straight, "{}: {rotated} against {straight}", class.name);
    }
}

#[test]
fn bias_activation_and_residual_come_in_that_order() {
    let (rows, inputs, outputs) = (11, 37, 43);
    let weights = Weights::new(Dtype::F32, 1, inputs, outputs);
    let bias = numbers(2, outputs);
    let input = Guarded::filled(3, rows, inputs, 1);
    let residual = Guarded::filled(4, rows, outputs, 3);
    for class in classes() {
        let layer = Linear::new(Dtype::F32, Matrix::dense(&weights.held, outputs, inputs), Some(&bias))
            .expect("a layer");
        let mut output = Guarded::new(rows, outputs, 2);
        with_context(class.kernels, 1, |context| {
            layer.forward(context, input.view(), output.view_mut(), Activation::Relu, Some(residual.view()))
        })
        .expect("a product");
        output.check("linear");
        for row in 0..rows {
            for (column, &bias) in bias.iter().enumerate() {
                let (sum, magnitude) = dot(input.view().row(row), weights.row(column));
                let expected = (sum + f64::from(bias)).max(0.0) + f64::from(residual.view().row(row)[column]);
                let found = f64::from(output.view().row(row)[column]);
                let limit = class.tolerance("gemm") * (magnitude + 4.0);
                assert!((found - expected).abs() <= limit, "{}: {found} for {expected}", class.name);
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    for class in classes() {
        let shapes = [(384, 100), (1536, 48), (700, 17), (5, 16)];
        for (dtype, (inputs, outputs)) in
            TYPES.into_iter().flat_map(|dtype| shapes.map(|shape| (dtype, shape)))
        {
            let weights = Weights::new(dtype, 7, inputs, outputs);
            let input = Guarded::filled(8, 210, inputs, 0);
            let mut alone = Guarded::new(210, outputs, 0);
            for row in 0..210 {
                let output = alone.view_mut();
                // SAFETY: the only view of that row.
                let output = unsafe { output.shared_block(row, 0, 1, outputs) };
                weights.multiply(class.kernels, input.view().block(row, 0, 1, inputs), output);
            }
            for rows in [1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 25, 64, 210] {
                let mut output = Guarded::new(rows, outputs, 1);
                weights.multiply(class.kernels, input.view().block(0, 0, rows, inputs), output.view_mut());
                let expected = bits(alone.view().block(0, 0, rows, outputs));
                assert!(
                    bits(output.view()) == expected,
                    "{}: {rows} rows of {inputs} × {outputs}",
                    class.name
                );
            }
        }
    }
}

#[test]
fn any_cut_of_the_panels_gives_the_same_bits() {
    let (rows, inputs, outputs) = (10, 50, 10 * PANEL - 5);
    let bias = numbers(10, outputs);
    let input = Guarded::filled(11, rows, inputs, 0);
    for (class, dtype) in classes().into_iter().flat_map(|class| TYPES.map(|dtype| (class, dtype))) {
        let weights = Weights::new(dtype, 9, inputs, outputs);
        let part = |panels: Range<usize>, output: MatrixMut<f32>| {
            weights.part(class.kernels, panels, Some(&bias), Activation::Gelu, input.view(), output);
        };
        let mut whole = Guarded::new(rows, outputs, 0);
        part(0..10, whole.view_mut());
        for cut in 0..=10 {
            let column = (cut * PANEL).min(outputs);
            let mut output = Guarded::new(rows, outputs, 0);
            part(0..cut, output.view_mut().block_mut(0, 0, rows, column));
            part(cut..10, output.view_mut().block_mut(0, column, rows, outputs - column));
            output.check("gemm");
            assert!(bits(output.view()) == bits(whole.view()), "{}: cut at {cut}", class.name);
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let (inputs, outputs) = (384, 391);
    let plain = numbers(12, inputs * outputs);
    for (class, dtype) in classes().into_iter().flat_map(|class| TYPES.map(|dtype| (class, dtype))) {
        let layer = Linear::new(dtype, Matrix::dense(&plain, outputs, inputs), None).expect("a layer");
        for rows in [1, 14, 170] {
            let input = Guarded::filled(13, rows, inputs, 0);
            let product = |threads| {
                let mut output = Guarded::new(rows, outputs, 0);
                with_context(class.kernels, threads, |context| {
                    layer.forward(context, input.view(), output.view_mut(), Activation::Tanh, None)
                })
                .expect("a product");
                output.check("linear");
                bits(output.view())
            };
            let expected = product(1);
            for threads in [2, 3, 7] {
                assert!(product(threads) == expected, "{}: {rows} rows, {threads} threads", class.name);
            }
        }
    }
}

#[test]
fn layers_in_narrow_types_are_near_those_in_f32() {
    let (rows, inputs, outputs) = (20, 400, 70);
    let plain = numbers(26, inputs * outputs);
    let input = Guarded::filled(27, rows, inputs, 0);
    for class in classes() {
        let product = |dtype| {
            let layer = Linear::new(dtype, Matrix::dense(&plain, outputs, inputs), None).expect("a layer");
            let mut output = Guarded::new(rows, outputs, 0);
            with_context(class.kernels, 1, |context| {
                layer.forward(context, input.view(), output.view_mut(), Activation::None, None)
            })
            .expect("a product");
            output
        };
        let expected = product(Dtype::F32);
        let all =
            |matrix: Matrix<f32>| (0..rows).flat_map(|row| matrix.row(row).to_vec()).collect::<Vec<_>>();
        let size = |values: &[f32]| values.iter().map(|value| value * value).sum::<f32>();
        // Bytes: steps of some 3.5σ / 127 leave 3.5σ / 127 / √12 of noise, in inputs and in weights.
        for (dtype, limit) in [(Dtype::Bf16, 0.0025), (Dtype::F16, 0.0003), (Dtype::I8, 0.0115)] {
            let (found, expected) = (all(product(dtype).view()), all(expected.view()));
            let differences: Vec<f32> = found.iter().zip(&expected).map(|(a, b)| a - b).collect();
            let error = (size(&differences) / size(&expected)).sqrt();
            println!("{} {}: {error}", class.name, dtype.name());
            assert!(error < limit && error > 0.0, "{} {}: {error}", class.name, dtype.name());
        }
    }
}

#[test]
fn stacked_layers_are_the_layers_side_by_side() {
    let inputs = 40;
    let (first, second) = (numbers(14, 30 * inputs), numbers(15, 21 * inputs));
    let bias = numbers(16, 21);
    let first = Matrix::dense(&first, 30, inputs);
    let second = Matrix::dense(&second, 21, inputs);
    let input = Guarded::filled(17, 9, inputs, 0);
    for class in classes() {
        with_context(class.kernels, 1, |context| {
            let run = |layer: Linear, output: MatrixMut<f32>| {
                layer.forward(context, input.view(), output, Activation::None, None).expect("a product");
            };
            let mut stacked = Guarded::new(9, 51, 0);
            run(
                Linear::stack(Dtype::F32, &[(first, None), (second, Some(&bias))]).expect("a layer"),
                stacked.view_mut(),
            );
            let mut single = Guarded::new(9, 51, 0);
            run(
                Linear::new(Dtype::F32, first, None).expect("a layer"),
                single.view_mut().block_mut(0, 0, 9, 30),
            );
            run(
                Linear::new(Dtype::F32, second, Some(&bias)).expect("a layer"),
                single.view_mut().block_mut(0, 30, 9, 21),
            );
            assert!(bits(stacked.view()) == bits(single.view()), "{}", class.name);
        });
    }
    let wrong = numbers(18, 5 * 41);
    assert!(Linear::stack(Dtype::F32, &[(first, None), (Matrix::dense(&wrong, 5, 41), None)]).is_err());
    assert!(Linear::new(Dtype::F32, second, Some(&bias[1..])).is_err());
}

#[test]
fn no_class_takes_more_scratch_than_is_planned_for() {
    for (class, dtype) in classes().into_iter().flat_map(|class| TYPES.map(|dtype| (class, dtype))) {
        for rows in (0..200).chain([1000, 4097]) {
            for inputs in [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 384, 1000, 1536, 4096, 9000] {
                let (takes, most) =
                    (class.kernels.gemm_scratch_len(dtype, rows, inputs), prepared_len(dtype, rows, inputs));
                assert!(
                    takes <= most,
                    "{} {}: {rows} × {inputs}: {takes} of {most}",
                    class.name,
                    dtype.name()
                );
            }
        }
    }
}

#[test]
fn empty_shapes_are_legal() {
    for (class, dtype) in classes().into_iter().flat_map(|class| TYPES.map(|dtype| (class, dtype))) {
        let weights = Weights::new(dtype, 19, 8, 20);
        let mut output = Guarded::new(0, 20, 0);
        weights.multiply(class.kernels, Guarded::filled(20, 0, 8, 0).view(), output.view_mut());
        output.check("gemm");
        // A sum of nothing is zero.
        let mut output = Guarded::new(3, 20, 0);
        let nothing = Weights::new(dtype, 21, 0, 20);
        nothing.multiply(class.kernels, Guarded::new(3, 0, 4).view(), output.view_mut());
        assert!(bits(output.view()).iter().all(|&bits| bits == 0), "{}", class.name);
        let mut output = Guarded::new(3, 0, 4);
        let none = Weights::new(dtype, 22, 8, 0);
        none.multiply(class.kernels, Guarded::filled(23, 3, 8, 0).view(), output.view_mut());
        output.check("gemm");
    }
}

#[test]
fn numbers_that_are_not_finite_spoil_their_row_alone() {
    let (rows, inputs, outputs) = (9, 33, 35);
    for (class, dtype) in classes().into_iter().flat_map(|class| TYPES.map(|dtype| (class, dtype))) {
        let weights = Weights::new(dtype, 24, inputs, outputs);
        for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut input = Guarded::filled(25, rows, inputs, 0);
            input.view_mut().row_mut(4)[32] = poison;
            let mut output = Guarded::new(rows, outputs, 0);
            weights.multiply(class.kernels, input.view(), output.view_mut());
            for row in 0..rows {
                let finite = output.view().row(row).iter().all(|value| value.is_finite());
                let none_finite = output.view().row(row).iter().all(|value| !value.is_finite());
                assert!(if row == 4 { none_finite } else { finite }, "{}: row {row}, {poison}", class.name);
            }
        }
    }
}
