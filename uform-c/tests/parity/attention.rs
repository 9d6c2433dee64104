//! Attention within the texts of a ragged batch.

use uform_c::base::Matrix;
use uform_c::kernels::Kernels;
use uform_c::ops::attention::attention;

use crate::support::{Class, Guarded, bits, classes, with_context};

fn starts(lengths: &[usize]) -> Vec<usize> {
    let mut starts = vec![0];
    for length in lengths {
        starts.push(starts[starts.len() - 1] + length);
    }
    starts
}

/// Every class, in f32 and in bf16.
fn both() -> impl Iterator<Item = (Class, bool)> {
    classes().into_iter().flat_map(|class| [(class, false), (class, true)])
}

fn attend(
    kernels: &'static Kernels,
    threads: usize,
    qkv: Matrix<f32>,
    lengths: &[usize],
    heads: usize,
    bf16: bool,
) -> Guarded {
    let hidden = qkv.columns() / 3;
    let mut output = Guarded::new(qkv.rows(), hidden, 3);
    let scale = 1.0 / ((hidden / heads) as f32).sqrt();
    with_context(kernels, threads, |context| {
        attention(context, qkv, &starts(lengths), heads, scale, bf16, output.view_mut())
    })
    .expect("attention");
    output.check("attention");
    output
}

/// One output row of one head, in f64.
fn expected(
    qkv: Matrix<f32>,
    text: std::ops::Range<usize>,
    query: usize,
    head: std::ops::Range<usize>,
) -> Vec<f64> {
    let hidden = qkv.columns() / 3;
    let part = |row: usize, which: usize| &qkv.row(row)[which * hidden..][head.clone()];
    let scale = 1.0 / (head.len() as f64).sqrt();
    let scores: Vec<f64> = text
        .clone()
        .map(|key| {
            let products =
                part(query, 0).iter().zip(part(key, 1)).map(|(&q, &k)| f64::from(q) * f64::from(k));
            products.sum::<f64>() * scale
        })
        .collect();
    let most = scores.iter().fold(f64::NEG_INFINITY, |most, &score| most.max(score));
    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let total: f64 = weights.iter().sum();
    (0..head.len())
        .map(|column| {
            let values =
                text.clone().zip(&weights).map(|(key, weight)| weight * f64::from(part(key, 2)[column]));
            values.sum::<f64>() / total
        })
        .collect()
}

#[test]
fn attention_matches_f64() {
    let cases: &[(&[usize], usize, usize)] = &[
        (&[1, 2, 3, 7, 8, 9], 2, 32),
        (&[15, 16, 17, 31, 33], 3, 33),
        (&[0, 5, 0, 1], 2, 64),
        (&[127, 128, 129], 1, 32),
        (&[300, 5], 1, 48),
        (&[100], 2, 100),
        (&[20, 40], 1, 256),
        (&[30], 3, 1),
        (&[25], 1, 17),
    ];
    for (class, bf16) in both() {
        let mut most = 0.0f64;
        for &(lengths, heads, size) in cases {
            let hidden = heads * size;
            let starts = starts(lengths);
            let tokens = starts[lengths.len()];
            let qkv = Guarded::filled(size as u64, tokens, 3 * hidden, 5);
            let output = attend(class.kernels, 1, qkv.view(), lengths, heads, bf16);
            for text in starts.windows(2) {
                for query in text[0]..text[1] {
                    for head in 0..heads {
                        let head = head * size..(head + 1) * size;
                        let expected = expected(qkv.view(), text[0]..text[1], query, head.clone());
                        for (found, expected) in output.view().row(query)[head].iter().zip(expected) {
                            most = most.max((f64::from(*found) - expected).abs());
                        }
                    }
                }
            }
        }
        let family = if bf16 && class.kernels.attends_in_bf16() { "attention in bf16" } else { "attention" };
        println!("{} {family}: {most:e}", class.name);
        assert!(most <= class.tolerance(family), "{} {family}: {most:e}", class.name);
    }
}

#[test]
fn scores_far_apart_neither_overflow_nor_vanish() {
    let (tokens, hidden) = (140, 32);
    for class in classes() {
        let mut qkv = Guarded::filled(1, tokens, 3 * hidden, 0);
        for row in 0..tokens {
            qkv.view_mut().row_mut(row)[..2 * hidden].iter_mut().for_each(|value| *value *= 60.0);
        }
        let output = attend(class.kernels, 1, qkv.view(), &[tokens], 1, false);
        for query in 0..tokens {
            let expected = expected(qkv.view(), 0..tokens, query, 0..hidden);
            for (found, expected) in output.view().row(query).iter().zip(expected) {
                // The scores are of the order of 10⁴, so their own rounding is what remains.
                assert!(
                    (f64::from(*found) - expected).abs() < 4e-3,
                    "{}: {found} for {expected}",
                    class.name
                );
            }
        }
    }
}

#[test]
fn a_text_has_the_same_bits_alone_and_among_others_on_any_number_of_threads() {
    let (heads, size) = (3, 40);
    let lengths = [1, 14, 130, 0, 7, 260, 24, 25];
    let starts = starts(&lengths);
    for (class, bf16) in both() {
        let qkv = Guarded::filled(2, starts[lengths.len()], 3 * heads * size, 0);
        let together = attend(class.kernels, 1, qkv.view(), &lengths, heads, bf16);
        for threads in [2, 3, 8] {
            let output = attend(class.kernels, threads, qkv.view(), &lengths, heads, bf16);
            assert!(bits(output.view()) == bits(together.view()), "{}: {threads} threads", class.name);
        }
        for (text, &length) in lengths.iter().enumerate() {
            let own = qkv.view().block(starts[text], 0, length, 3 * heads * size);
            let alone = attend(class.kernels, 1, own, &[length], heads, bf16);
            let among = together.view().block(starts[text], 0, length, heads * size);
            assert!(bits(alone.view()) == bits(among), "{}: a text of {length}", class.name);
        }
    }
}

#[test]
fn numbers_that_are_not_finite_spoil_their_text_alone() {
    let (heads, size) = (2, 32);
    for (class, bf16) in both() {
        let mut qkv = Guarded::filled(3, 20, 3 * heads * size, 0);
        qkv.view_mut().row_mut(12)[heads * size + 3] = f32::NAN;
        qkv.view_mut().row_mut(12)[2 * heads * size + 35] = f32::INFINITY;
        let output = attend(class.kernels, 1, qkv.view(), &[10, 7, 3], heads, bf16);
        for row in 0..20 {
            let (first, second) = output.view().row(row).split_at(size);
            let spoilt = (10..17).contains(&row);
            assert!(first.iter().all(|value| value.is_nan() == spoilt), "{}: row {row}", class.name);
            assert!(second[3].is_finite() != spoilt && second[4].is_finite(), "{}: row {row}", class.name);
        }
    }
}
