//! Kernels that work on rows: activations, norms, softmax, pooling, and the embedding of tokens.

use uform_c::base::{Matrix, Status};
use uform_c::kernels::activation::Activation;
use uform_c::kernels::pool::Pooling;
use uform_c::ops::embed::embed;
use uform_c::ops::norm::layer_norm;
use uform_c::ops::pool::{normalize, pool};

use crate::support::{Guarded, bits, classes, numbers, with_context};

const WIDTHS: [usize; 22] =
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 384, 771];

/// The error function by its series near zero and by the continued fraction of its complement beyond, in f64.
fn erf(x: f64) -> f64 {
    let t = x.abs();
    let magnitude = if t < 3.0 {
        let (mut term, mut sum) = (t, t);
        for n in 1..100 {
            term *= -t * t / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let fraction = (1..200).rev().fold(t, |fraction, n| t + f64::from(n) / 2.0 / fraction);
        1.0 - (-t * t).exp() / std::f64::consts::PI.sqrt() / fraction
    };
    magnitude.copysign(x)
}

fn exact(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Gelu | Activation::GeluCoarse => x * 0.5 * (1.0 + erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
    }
}

const ACTIVATIONS: [(Activation, Option<&str>); 8] = [
    (Activation::None, None),
    (Activation::Gelu, Some("gelu")),
    (Activation::GeluCoarse, Some("gelu coarse")),
    (Activation::GeluTanh, Some("gelu tanh")),
    (Activation::Relu, None),
    (Activation::Tanh, Some("tanh")),
    (Activation::Silu, Some("sigmoid")),
    (Activation::Sigmoid, Some("sigmoid")),
];

#[test]
fn activations_match_f64() {
    for class in classes() {
        for (activation, family) in ACTIVATIONS {
            let inputs: Vec<f32> = (-40_000..=40_000).map(|step| step as f32 / 2_003.0).collect();
            let mut outputs = Guarded::new(1, inputs.len(), 0);
            outputs.view_mut().row_mut(0).copy_from_slice(&inputs);
            class.kernels.activate(activation, outputs.view_mut());
            outputs.check("activation");
            let limit = family.map_or(0.0, |family| class.tolerance(family));
            let mut most = 0.0f64;
            for (&x, &found) in inputs.iter().zip(outputs.view().row(0)) {
                let expected = exact(activation, f64::from(x));
                let error = (f64::from(found) - expected).abs() / expected.abs().max(1.0);
                assert!(error <= limit, "{}: {activation:?}({x}) is {expected}, found {found}", class.name);
                most = most.max(error);
            }
            println!("{}: {activation:?} {most:e}", class.name);
        }
    }
}

#[test]
fn activations_keep_what_is_not_finite() {
    for class in classes() {
        for (activation, _) in ACTIVATIONS {
            let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, 0.0, -0.0, 1e-40];
            let mut values = Guarded::new(1, special.len(), 0);
            values.view_mut().row_mut(0).copy_from_slice(&special);
            class.kernels.activate(activation, values.view_mut());
            let found = values.view().row(0);
            assert!(found[0].is_nan(), "{}: {activation:?} of NaN", class.name);
            for (&x, &found) in special[3..].iter().zip(&found[3..]) {
                let expected = exact(activation, f64::from(x));
                let error = (f64::from(found) - expected).abs();
                assert!(
                    error <= 1e-6 * expected.abs().max(1.0),
                    "{}: {activation:?}({x}) = {found}",
                    class.name
                );
            }
            let bounded = matches!(activation, Activation::Tanh | Activation::Sigmoid);
            assert!(found[1].is_finite() == bounded, "{}: {activation:?} of infinity", class.name);
        }
    }
}

#[test]
fn activations_depend_on_neither_lane_nor_tail() {
    let inputs = numbers(1, 100);
    for class in classes() {
        for (activation, _) in ACTIVATIONS {
            let run = |values: &[f32]| {
                let mut guarded = Guarded::new(1, values.len(), 0);
                guarded.view_mut().row_mut(0).copy_from_slice(values);
                class.kernels.activate(activation, guarded.view_mut());
                guarded.check("activation");
                bits(guarded.view())
            };
            let whole = run(&inputs);
            for width in WIDTHS.into_iter().filter(|&width| width <= 50) {
                for start in [0, 1, 7, 50] {
                    let part = run(&inputs[start..start + width]);
                    assert!(
                        part == whole[start..start + width],
                        "{}: {activation:?}, {width} at {start}",
                        class.name
                    );
                }
            }
        }
    }
}

#[test]
fn layer_norm_matches_f64() {
    for class in classes() {
        for width in WIDTHS {
            let (rows, epsilon) = (5, 1e-12f32);
            let mut input = Guarded::filled(width as u64, rows, width, 3);
            // A mean that is large against the variance, which a single pass would lose.
            input.view_mut().row_mut(2).iter_mut().for_each(|value| *value = *value / 16.0 + 100.0);
            let (weight, bias) = (numbers(2, width), numbers(3, width));
            let mut output = Guarded::new(rows, width, 1);
            class.kernels.layer_norm(input.view(), &weight, &bias, epsilon, output.view_mut());
            output.check("layer norm");
            for row in 0..rows {
                let values: Vec<f64> = input.view().row(row).iter().map(|&value| f64::from(value)).collect();
                let mean = values.iter().sum::<f64>() / width as f64;
                let variance =
                    values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / width as f64;
                if width == 1 {
                    continue; // The variance is zero, and what is left is the bias, which the next test looks at.
                }
                let deviation = (variance + f64::from(epsilon)).sqrt();
                // The input is only known to its own last place, and so is the mean in f32.
                let limit = class.tolerance("layer norm") * (1.0 + mean.abs() / deviation) * 4.0;
                for (column, &found) in output.view().row(row).iter().enumerate() {
                    let expected = (values[column] - mean) / deviation * f64::from(weight[column])
                        + f64::from(bias[column]);
                    let error = (f64::from(found) - expected).abs();
                    assert!(
                        error <= limit,
                        "{}: width {width}, row {row}: {found} for {expected}",
                        class.name
                    );
                }
            }
        }
    }
}

#[test]
fn rms_norm_matches_f64() {
    for class in classes() {
        for width in WIDTHS {
            let (rows, epsilon) = (4, 1e-5f32);
            let mut input = Guarded::filled(width as u64, rows, width, 3);
            input.view_mut().row_mut(1).fill(0.0);
            input.view_mut().row_mut(2)[width / 2] = f32::NAN;
            let weight = numbers(2, width);
            let mut output = Guarded::new(rows, width, 1);
            class.kernels.rms_norm(input.view(), &weight, epsilon, output.view_mut());
            output.check("rms norm");
            assert!(output.view().row(1).iter().all(|&value| value == 0.0), "{}: a row of zeros", class.name);
            assert!(
                output.view().row(2).iter().all(|value| value.is_nan()),
                "{}: a row with NaN",
                class.name
            );
            for row in [0, 3] {
                let values: Vec<f64> = input.view().row(row).iter().map(|&value| f64::from(value)).collect();
                let square = values.iter().map(|value| value * value).sum::<f64>() / width as f64;
                let root = (square + f64::from(epsilon)).sqrt();
                for (column, &found) in output.view().row(row).iter().enumerate() {
                    let expected = values[column] / root * f64::from(weight[column]);
                    let error = (f64::from(found) - expected).abs();
                    let limit = class.tolerance("rms norm") * expected.abs();
                    assert!(error <= limit, "{}: width {width}: {found} for {expected}", class.name);
                }
            }
        }
    }
}

#[test]
fn rows_that_are_constant_or_not_finite_stay_defined() {
    for class in classes() {
        let mut input = Guarded::filled(4, 3, 70, 0);
        input.view_mut().row_mut(0).fill(3.0);
        input.view_mut().row_mut(1)[69] = f32::INFINITY;
        let (weight, bias) = (numbers(5, 70), numbers(6, 70));
        let mut output = Guarded::new(3, 70, 0);
        class.kernels.layer_norm(input.view(), &weight, &bias, 1e-5, output.view_mut());
        assert!(output.view().row(0) == bias, "{}: a constant row", class.name);
        assert!(output.view().row(1).iter().all(|value| value.is_nan()), "{}: an infinite row", class.name);
        assert!(output.view().row(2).iter().all(|value| value.is_finite()), "{}: its neighbour", class.name);

        let mut rows = Guarded::filled(7, 3, 70, 1);
        rows.view_mut().row_mut(0).fill(0.0);
        rows.view_mut().row_mut(1)[3] = f32::NAN;
        class.kernels.normalize(rows.view_mut());
        rows.check("normalize");
        assert!(rows.view().row(0).iter().all(|&value| value == 0.0), "{}: a row of zeros", class.name);
        assert!(rows.view().row(1).iter().all(|value| value.is_nan()), "{}: a row with NaN", class.name);
        assert!(rows.view().row(2).iter().all(|value| value.is_finite()), "{}: its neighbour", class.name);
    }
}

#[test]
fn normalize_matches_f64() {
    for class in classes() {
        for width in WIDTHS {
            let input = Guarded::filled(width as u64, 4, width, 0);
            let mut output = Guarded::filled(width as u64, 4, width, 2);
            class.kernels.normalize(output.view_mut());
            output.check("normalize");
            for row in 0..4 {
                let values = input.view().row(row);
                let norm = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
                for (&value, &found) in values.iter().zip(output.view().row(row)) {
                    let error = (f64::from(found) - f64::from(value) / norm).abs();
                    assert!(error <= class.tolerance("normalize"), "{}: width {width}: {found}", class.name);
                }
            }
        }
    }
}

#[test]
fn softmax_matches_f64() {
    for class in classes() {
        for width in WIDTHS {
            let input = Guarded::filled(width as u64, 3, width, 0);
            let mut output = Guarded::filled(width as u64, 3, width, 2);
            class.kernels.softmax(output.view_mut(), 5.0);
            output.check("softmax");
            for row in 0..3 {
                let scores: Vec<f64> =
                    input.view().row(row).iter().map(|&score| 5.0 * f64::from(score)).collect();
                let most = scores.iter().fold(f64::NEG_INFINITY, |most, &score| most.max(score));
                let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
                for (score, &found) in scores.iter().zip(output.view().row(row)) {
                    let expected = (score - most).exp() / total;
                    let error = (f64::from(found) - expected).abs();
                    let limit = class.tolerance("softmax") * expected + 1e-9;
                    assert!(error <= limit, "{}: width {width}: {found} for {expected}", class.name);
                }
            }
        }
        let mut rows = Guarded::filled(8, 2, 20, 0);
        rows.view_mut().row_mut(0)[19] = f32::NAN;
        class.kernels.softmax(rows.view_mut(), 1.0);
        assert!(rows.view().row(0).iter().all(|value| value.is_nan()), "{}", class.name);
        assert!(rows.view().row(1).iter().all(|value| value.is_finite()), "{}", class.name);
    }
}

/// Pools in f64.
fn pooled(pooling: Pooling, tokens: Matrix<f32>, column: usize) -> f64 {
    let count = tokens.rows();
    let value = |row: usize| f64::from(tokens.row(row)[column]);
    let sum: f64 = (0..count).map(value).sum();
    match pooling {
        Pooling::Cls => value(0),
        Pooling::Max => (0..count).map(value).fold(f64::NEG_INFINITY, f64::max),
        Pooling::Mean => sum / count as f64,
        Pooling::MeanSqrtLength => sum / (count as f64).sqrt(),
        Pooling::WeightedMean => {
            let weights: f64 = (1..=count).map(|weight| weight as f64).sum();
            (0..count).map(|row| value(row) * (row + 1) as f64).sum::<f64>() / weights
        }
        Pooling::LastToken => value(count - 1),
    }
}

#[test]
fn pooling_matches_f64() {
    let poolings = [
        Pooling::Cls,
        Pooling::Max,
        Pooling::Mean,
        Pooling::MeanSqrtLength,
        Pooling::WeightedMean,
        Pooling::LastToken,
    ];
    for class in classes() {
        for pooling in poolings {
            for (turn, width) in WIDTHS.into_iter().enumerate() {
                let count = [1, 2, 3, 14, 100][turn % 5];
                let tokens = Guarded::filled(turn as u64, count, width, 1);
                let mut output = Guarded::new(1, width, 0);
                class.kernels.pool(pooling, tokens.view(), output.view_mut().row_mut(0));
                output.check("pool");
                for (column, &found) in output.view().row(0).iter().enumerate() {
                    let error = (f64::from(found) - pooled(pooling, tokens.view(), column)).abs();
                    assert!(
                        error <= class.tolerance("pool") * 2.0,
                        "{}: {pooling:?}, {count} × {width}",
                        class.name
                    );
                }
            }
            for row in [0, 1, 3] {
                let mut tokens = Guarded::filled(9, 4, 20, 0);
                tokens.view_mut().row_mut(row)[17] = f32::NAN;
                let mut output = Guarded::new(1, 20, 0);
                class.kernels.pool(pooling, tokens.view(), output.view_mut().row_mut(0));
                let looked_at = match pooling {
                    Pooling::Cls => row == 0,
                    Pooling::LastToken => row == 3,
                    _ => true,
                };
                assert!(output.view().row(0)[17].is_nan() == looked_at, "{}: {pooling:?}", class.name);
                assert!(output.view().row(0)[16].is_finite(), "{}: {pooling:?}", class.name);
            }
        }
        let error = with_context(class.kernels, 1, |context| {
            pool(context, Pooling::Mean, Matrix::dense(&[], 0, 4), &mut [0.0; 4]).expect_err("no tokens")
        });
        assert_eq!(error.status, Status::InvalidArgument);
    }
}

#[test]
fn rows_have_the_same_bits_on_any_number_of_threads() {
    let (rows, width) = (150, 384);
    let (weight, bias) = (numbers(10, width), numbers(11, width));
    let (words, places) = (Guarded::filled(12, 50, width, 0), Guarded::filled(13, rows, width, 7));
    let ids: Vec<u32> = (0..rows as u32).map(|row| row * 7 % 50).collect();
    let positions: Vec<u32> = (0..rows as u32).collect();
    for class in classes() {
        let run = |threads| {
            with_context(class.kernels, threads, |context| {
                let tables = [(words.view(), &ids[..]), (places.view(), &positions[..])];
                let mut embedded = Guarded::new(rows, width, 1);
                embed(context, &tables, embedded.view_mut()).expect("an embedding");
                embedded.check("embed");
                for row in [0, 77, 149] {
                    let expected: Vec<f32> =
                        std::iter::zip(words.view().row(row * 7 % 50), places.view().row(row))
                            .map(|(word, place)| word + place)
                            .collect();
                    assert!(embedded.view().row(row) == expected, "{}: row {row}", class.name);
                }
                let mut output = Guarded::new(rows, width, 0);
                layer_norm(context, embedded.view(), &weight, &bias, 1e-12, output.view_mut())
                    .expect("a norm");
                normalize(context, output.view_mut()).expect("unit rows");
                output.check("normalize");
                bits(output.view())
            })
        };
        let expected = run(1);
        assert!(run(2) == expected && run(5) == expected, "{}", class.name);
    }
}

#[test]
fn an_id_outside_its_table_is_an_error() {
    for class in classes() {
        let table = Guarded::filled(14, 10, 8, 0);
        let mut output = Guarded::new(2, 8, 0);
        let error = with_context(class.kernels, 1, |context| {
            embed(context, &[(table.view(), &[3, 10])], output.view_mut()).expect_err("no such row")
        });
        assert_eq!(error.status, Status::InvalidArgument);
        assert!(error.message.contains("10"), "{}", error.message);
    }
}
