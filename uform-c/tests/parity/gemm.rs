//! Products with packed weights.

use uform_c::base::{Matrix, MatrixMut};
use uform_c::kernels::Kernels;
use uform_c::kernels::activation::Activation;
use uform_c::kernels::gemm::{PANEL, Packed, Product, pack, packed_len};
use uform_c::ops::linear::Linear;

use crate::support::{Guarded, bits, classes, numbers, with_context};

/// Weights as PyTorch stores them, and packed.
struct Weights {
    plain: Vec<f32>,
    packed: Vec<f32>,
    inputs: usize,
    outputs: usize,
}

impl Weights {
    fn new(seed: u64, inputs: usize, outputs: usize) -> Self {
        let plain = numbers(seed, inputs * outputs);
        let mut packed = vec![0.0; packed_len(inputs, outputs)];
        pack(Matrix::dense(&plain, outputs, inputs), 0, &mut packed);
        Self { plain, packed, inputs, outputs }
    }

    fn multiply(&self, kernels: &Kernels, input: Matrix<f32>, output: MatrixMut<f32>) {
        let weights = Packed::new(&self.packed, self.inputs, self.outputs);
        let panels = 0..weights.panels();
        let (bias, activation, residual) = (None, Activation::None, None);
        kernels.gemm(Product { input, weights, panels, bias, activation, residual, output });
    }
}

/// The sum and the sum of magnitudes of one element, in f64.
fn dot(row: &[f32], weights: &[f32]) -> (f64, f64) {
    row.iter().zip(weights).fold((0.0, 0.0), |(sum, magnitude), (&a, &b)| {
        let product = f64::from(a) * f64::from(b);
        (sum + product, magnitude + product.abs())
    })
}

#[test]
fn products_match_f64() {
    let rows = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 33];
    let columns = [1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100];
    let depths = [1, 2, 3, 9, 16, 31, 64, 100, 384, 1000];
    let mut worst = vec![];
    for class in classes() {
        let mut most = 0.0f64;
        for (index, &inputs) in depths.iter().enumerate() {
            for (turn, &outputs) in columns.iter().enumerate() {
                let weights = Weights::new((index * 31 + turn) as u64, inputs, outputs);
                // Each shape with a third of the heights, another third every time.
                for &rows in rows.iter().skip((index + turn) % 3).step_by(3) {
                    let input = Guarded::filled(rows as u64, rows, inputs, turn % 4);
                    let mut output = Guarded::new(rows, outputs, index % 5);
                    weights.multiply(class.kernels, input.view(), output.view_mut());
                    output.check("gemm");
                    for row in 0..rows {
                        for column in 0..outputs {
                            let (sum, magnitude) =
                                dot(input.view().row(row), &weights.plain[column * inputs..][..inputs]);
                            let found = f64::from(output.view().row(row)[column]);
                            most = most.max((found - sum).abs() / magnitude);
                        }
                    }
                }
            }
        }
        assert!(most <= class.tolerance("gemm"), "{}: {most:e}", class.name);
        worst.push((class.name, most));
    }
    println!("{worst:?}");
}

#[test]
fn bias_activation_and_residual_come_in_that_order() {
    let (rows, inputs, outputs) = (11, 37, 43);
    let weights = Weights::new(1, inputs, outputs);
    let bias = numbers(2, outputs);
    let input = Guarded::filled(3, rows, inputs, 1);
    let residual = Guarded::filled(4, rows, outputs, 3);
    for class in classes() {
        let layer =
            Linear::new(Matrix::dense(&weights.plain, outputs, inputs), Some(&bias)).expect("a layer");
        let mut output = Guarded::new(rows, outputs, 2);
        with_context(class.kernels, 1, |context| {
            layer.forward(context, input.view(), output.view_mut(), Activation::Relu, Some(residual.view()))
        })
        .expect("a product");
        output.check("linear");
        for row in 0..rows {
            for (column, &bias) in bias.iter().enumerate() {
                let (sum, magnitude) =
                    dot(input.view().row(row), &weights.plain[column * inputs..][..inputs]);
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
        for (inputs, outputs) in [(384, 100), (1536, 48), (700, 17), (5, 16)] {
            let weights = Weights::new(7, inputs, outputs);
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
    let weights = Weights::new(9, inputs, outputs);
    let bias = numbers(10, outputs);
    let input = Guarded::filled(11, rows, inputs, 0);
    for class in classes() {
        let part = |panels: std::ops::Range<usize>, output: MatrixMut<f32>| {
            let weights = Packed::new(&weights.packed, inputs, outputs);
            let (bias, activation, residual) = (Some(&bias[..]), Activation::Gelu, None);
            class.kernels.gemm(Product {
                input: input.view(),
                weights,
                panels,
                bias,
                activation,
                residual,
                output,
            });
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
    let layer = Linear::new(Matrix::dense(&plain, outputs, inputs), None).expect("a layer");
    for class in classes() {
        for rows in [1, 14, 70] {
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
            run(Linear::stack(&[(first, None), (second, Some(&bias))]).expect("a layer"), stacked.view_mut());
            let mut single = Guarded::new(9, 51, 0);
            run(Linear::new(first, None).expect("a layer"), single.view_mut().block_mut(0, 0, 9, 30));
            run(
                Linear::new(second, Some(&bias)).expect("a layer"),
                single.view_mut().block_mut(0, 30, 9, 21),
            );
            assert!(bits(stacked.view()) == bits(single.view()), "{}", class.name);
        });
    }
    let wrong = numbers(18, 5 * 41);
    assert!(Linear::stack(&[(first, None), (Matrix::dense(&wrong, 5, 41), None)]).is_err());
    assert!(Linear::new(second, Some(&bias[1..])).is_err());
}

#[test]
fn empty_shapes_are_legal() {
    for class in classes() {
        let weights = Weights::new(19, 8, 20);
        let mut output = Guarded::new(0, 20, 0);
        weights.multiply(class.kernels, Guarded::filled(20, 0, 8, 0).view(), output.view_mut());
        output.check("gemm");
        // A sum of nothing is zero.
        let mut output = Guarded::new(3, 20, 0);
        Weights::new(21, 0, 20).multiply(class.kernels, Guarded::new(3, 0, 4).view(), output.view_mut());
        assert!(bits(output.view()).iter().all(|&bits| bits == 0), "{}", class.name);
        let mut output = Guarded::new(3, 0, 4);
        Weights::new(22, 8, 0).multiply(
            class.kernels,
            Guarded::filled(23, 3, 8, 0).view(),
            output.view_mut(),
        );
        output.check("gemm");
    }
}

#[test]
fn numbers_that_are_not_finite_spoil_their_row_alone() {
    let (rows, inputs, outputs) = (9, 33, 35);
    let weights = Weights::new(24, inputs, outputs);
    for class in classes() {
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
