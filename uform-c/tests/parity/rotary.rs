//! Rotary position embeddings.

use uform_c::base::Matrix;
use uform_c::kernels::rotary::Angles;

use crate::support::{Guarded, bits, classes};

/// Cosines and sines of tokens × pairs, with the frequencies of the paper.
fn angles(tokens: usize, pairs: usize) -> [Vec<f32>; 2] {
    let angle = |index: usize| {
        let (token, pair) = (index / pairs, index % pairs);
        token as f64 * 10_000f64.powf(-(pair as f64) / pairs as f64)
    };
    [f64::cos, f64::sin].map(|of| (0..tokens * pairs).map(|index| of(angle(index)) as f32).collect())
}

#[test]
fn rotations_match_f64() {
    // Heads of all sizes; those of 80 and 5 keep elements behind the rotated ones.
    for (heads, size, pairs) in
        [(1, 2, 1), (3, 6, 3), (2, 32, 16), (1, 33, 16), (4, 64, 32), (2, 80, 20), (3, 5, 2)]
    {
        let tokens = 9;
        let [cosines, sines] = angles(tokens, pairs);
        let angles = Angles {
            cosines: Matrix::dense(&cosines, tokens, pairs),
            sines: Matrix::dense(&sines, tokens, pairs),
        };
        let input = Guarded::filled(size as u64, tokens, heads * size, 0);
        for class in classes() {
            let mut output = Guarded::filled(size as u64, tokens, heads * size, 3);
            class.kernels.rotate(angles, size, output.view_mut());
            output.check("rotary");
            for token in 0..tokens {
                let (from, to) = (input.view().row(token).to_vec(), output.view().row(token).to_vec());
                for (from, to) in from.chunks(size).zip(to.chunks(size)) {
                    for pair in 0..pairs {
                        let (first, second) = (f64::from(from[pair]), f64::from(from[pairs + pair]));
                        let at = token * pairs + pair;
                        let (cosine, sine) = (f64::from(cosines[at]), f64::from(sines[at]));
                        for (found, expected) in [
                            (to[pair], first * cosine - second * sine),
                            (to[pairs + pair], second * cosine + first * sine),
                        ] {
                            let error = (f64::from(found) - expected).abs();
                            let limit = class.tolerance("rotary") * (first.abs() + second.abs());
                            assert!(error <= limit, "{}: size {size}: {found} for {expected}", class.name);
                        }
                    }
                    assert!(from[2 * pairs..] == to[2 * pairs..], "{}: size {size}", class.name);
                }
            }
        }
    }
}

#[test]
fn a_token_is_turned_the_same_whatever_stands_beside_it() {
    let (tokens, heads, size, pairs) = (6, 3, 50, 25);
    let [cosines, sines] = angles(tokens, pairs);
    for class in classes() {
        let turn = |tokens: usize, heads: usize| {
            let angles = Angles {
                cosines: Matrix::dense(&cosines[..tokens * pairs], tokens, pairs),
                sines: Matrix::dense(&sines[..tokens * pairs], tokens, pairs),
            };
            let mut rows = Guarded::new(tokens, heads * size, 2);
            let all = Guarded::filled(1, 6, 3 * size, 0);
            for token in 0..tokens {
                rows.view_mut().row_mut(token).copy_from_slice(&all.view().row(token)[..heads * size]);
            }
            class.kernels.rotate(angles, size, rows.view_mut());
            (0..tokens).map(|token| bits(rows.view().block(token, 0, 1, size))).collect::<Vec<_>>()
        };
        let whole = turn(tokens, heads);
        assert!(turn(1, 1)[..] == whole[..1] && turn(4, 2)[..] == whole[..4], "{}", class.name);
    }
}
