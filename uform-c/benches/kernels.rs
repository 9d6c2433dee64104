//! Speed of the kernels of every class that this machine runs, on one thread, beside the machine's own limit: a loop of
//! independent fused multiply-adds, measured in the same run. Shapes are those of all-MiniLM-L6-v2.
//! `cargo bench -p uform-c --bench kernels [-- WORD]` runs the lines that contain the word.

mod support;

use std::hint::black_box;

use uform_c::base::{Dtype, Matrix, MatrixMut};
use uform_c::executors::{Cancel, Context, Scratch};
use uform_c::kernels::activation::Activation;
use uform_c::kernels::pool::Pooling;
use uform_c::kernels::{Kernels, for_class};
use uform_c::ops::attention::attention;
use uform_c::ops::linear::Linear;
use uform_c::system::cpu;

use support::{Alone, ceiling, fastest, numbers};

struct Report {
    class: &'static str,
    peak: f64,
    word: Option<String>,
}

impl Report {
    /// Measures `body`, which does `operations` of the kind that the peak counts, or as many elements when it has none.
    fn line(&self, name: &str, operations: usize, elements: usize, body: impl FnMut()) {
        let name = format!("{} {name}", self.class);
        if self.word.as_ref().is_some_and(|word| !name.contains(word.as_str())) {
            return;
        }
        let seconds = fastest(body);
        if operations > 0 {
            let rate = operations as f64 / seconds / 1e9;
            println!(
                "{name:48} {:9.1} µs {rate:7.1} GFLOP/s {:5.1} % of peak",
                seconds * 1e6,
                rate / self.peak * 100.0
            );
        } else {
            println!(
                "{name:48} {:9.1} µs {:7.2} ns per element",
                seconds * 1e6,
                seconds * 1e9 / elements as f64
            );
        }
    }
}

fn products(report: &Report, context: &Context, dtype: Dtype) {
    for (inputs, outputs) in [(384, 384), (384, 1152), (384, 1536), (1536, 384)] {
        let weights = numbers(inputs * outputs);
        let bias = numbers(outputs);
        let layer =
            Linear::new(dtype, Matrix::dense(&weights, outputs, inputs), Some(&bias)).expect("a layer");
        for rows in [1, 14, 16, 64, 128, 256] {
            let input = numbers(rows * inputs);
            let mut output = vec![0.0; rows * outputs];
            let operations = 2 * rows * inputs * outputs;
            report.line(
                &format!("gemm {} {rows} x {inputs} x {outputs}", dtype.name()),
                operations,
                0,
                || {
                    let input = Matrix::dense(&input, rows, inputs);
                    let output = MatrixMut::dense(&mut output, rows, outputs);
                    layer.forward(context, input, output, Activation::None, None).expect("a product");
                },
            );
        }
    }
}

fn attentions(report: &Report, context: &Context, bf16: bool) {
    let (heads, hidden) = (12, 384);
    for length in [14, 64, 128, 256, 512] {
        let qkv = numbers(length * 3 * hidden);
        let mut output = vec![0.0; length * hidden];
        let operations = 4 * length * length * hidden;
        report.line(
            &format!("attention {} {length}, {heads} heads of 32", if bf16 { "bf16" } else { "f32" }),
            operations,
            0,
            || {
                let qkv = Matrix::dense(&qkv, length, 3 * hidden);
                let output = MatrixMut::dense(&mut output, length, hidden);
                attention(context, qkv, &[0, length], heads, 0.17, bf16, output).expect("attention");
            },
        );
    }
}

fn rows(report: &Report, kernels: &Kernels) {
    let (rows, width) = (64, 384);
    let input = numbers(rows * width);
    let (weight, bias) = (numbers(width), numbers(width));
    let mut output = vec![0.0; rows * width];
    let elements = rows * width;
    report.line("layer norm 64 x 384", 0, elements, || {
        let output = MatrixMut::dense(&mut output, rows, width);
        kernels.layer_norm(Matrix::dense(&input, rows, width), &weight, &bias, 1e-12, output);
    });
    // By rows, as some machines copy large blocks slowly, which would hide what is measured.
    let copy = |output: &mut [f32]| {
        for (to, from) in output.chunks_exact_mut(width).zip(black_box(&input).chunks_exact(width)) {
            to.copy_from_slice(from);
        }
    };
    for activation in [
        Activation::None,
        Activation::Gelu,
        Activation::GeluCoarse,
        Activation::GeluTanh,
        Activation::Tanh,
        Activation::Silu,
    ] {
        report.line(&format!("{activation:?} 64 x 384"), 0, elements, || {
            copy(&mut output);
            kernels.activate(activation, MatrixMut::dense(&mut output, rows, width));
        });
    }
    report.line("softmax 64 x 384", 0, elements, || {
        copy(&mut output);
        kernels.softmax(MatrixMut::dense(&mut output, rows, width), 1.0);
    });
    report.line("normalize 64 x 384", 0, elements, || {
        kernels.normalize(MatrixMut::dense(&mut output, rows, width))
    });
    let mut pooled = vec![0.0; width];
    report.line("mean of 64 x 384", 0, elements, || {
        kernels.pool(Pooling::Mean, Matrix::dense(&input, rows, width), &mut pooled);
    });
}

fn main() {
    let word = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let (scratch, cancel) = ([Scratch::default()], Cancel::default());
    for &class in cpu::runnable() {
        let kernels = for_class(class).expect("kernels of a class that runs here");
        let context = Context { kernels, team: &Alone, scratch: &scratch, thread: 0, cancel: &cancel };
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16, Dtype::I8] {
            let report = Report { class: class.name(), peak: ceiling(kernels, dtype), word: word.clone() };
            println!("{} {}: {:.1} GFLOP/s at most on one thread", report.class, dtype.name(), report.peak);
            products(&report, &context, dtype);
            if matches!(dtype, Dtype::F32 | Dtype::Bf16) {
                attentions(&report, &context, dtype == Dtype::Bf16);
            }
            if dtype == Dtype::F32 {
                rows(&report, kernels);
            }
        }
    }
}
