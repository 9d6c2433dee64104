//! Where the time of a model goes on one thread: every step of its layers, timed in the order of a forward pass over weights of
//! their own, beside the whole model and its tokenizer.
//!
//! `cargo bench -p uform-c --bench layers -- MODEL` reads a directory with a BERT and prints a line for each step: precision,
//! workload, step, microseconds, share of the machine's limit. `scripts/bench/profile.py` draws them.

mod support;

use std::path::Path;
use std::sync::Arc;

use uform_c::base::{Dtype, Matrix, MatrixMut};
use uform_c::executors::{Context, on_calling_thread};
use uform_c::kernels::activation::Activation;
use uform_c::models::{EmbedOptions, LoadOptions, Model, Output, Precision, Source};
use uform_c::ops::attention::attention;
use uform_c::ops::linear::Linear;
use uform_c::ops::norm::layer_norm;
use uform_c::system::cpu::CpuClass;

use support::{ceiling, numbers, seconds};

/// The steps of a layer.
const STEPS: [&str; 6] =
    ["query, key, value", "attention", "attention output", "intermediate, GELU", "output", "layer norms"];

/// Passes over which medians are taken.
const PASSES: usize = 41;

struct Shape {
    hidden: usize,
    intermediate: usize,
    heads: usize,
    layers: usize,
}

/// Texts that are computed together, by their tokens.
struct Workload {
    name: &'static str,
    tokens: Vec<usize>,
}

struct Layer {
    query_key_value: Linear,
    attention_output: Linear,
    intermediate: Linear,
    output: Linear,
}

impl Layer {
    fn new(shape: &Shape, dtype: Dtype) -> Self {
        let linear = |inputs, outputs| {
            let (weight, bias) = (numbers(inputs * outputs), numbers(outputs));
            Linear::new(dtype, Matrix::dense(&weight, outputs, inputs), Some(&bias)).expect("a layer")
        };
        let (hidden, intermediate) = (shape.hidden, shape.intermediate);
        Self {
            query_key_value: linear(hidden, 3 * hidden),
            attention_output: linear(hidden, hidden),
            intermediate: linear(hidden, intermediate),
            output: linear(intermediate, hidden),
        }
    }
}

/// One pass over all layers: the seconds of each step, summed over the layers.
fn pass(context: &Context, shape: &Shape, layers: &[Layer], starts: &[usize], coarse: bool) -> [f64; 6] {
    let (count, hidden) = (starts[starts.len() - 1], shape.hidden);
    let (mut state, mut narrow) = (numbers(count * hidden), vec![0.0; count * hidden]);
    let mut wide = vec![0.0; count * shape.intermediate.max(3 * hidden)];
    let (weight, bias) = (vec![1.0; hidden], vec![0.0; hidden]);
    let activation = if coarse { Activation::GeluCoarse } else { Activation::Gelu };
    let mut spent = [0.0; STEPS.len()];
    let mut timed = |step: usize, body: &mut dyn FnMut() -> uform_c::base::Result<()>| {
        let start = seconds();
        body().expect("a step");
        spent[step] += seconds() - start;
    };
    let scale = ((hidden / shape.heads) as f32).powf(-0.5);
    for layer in layers {
        let input = Matrix::dense(&state, count, hidden);
        timed(0, &mut || {
            let output = MatrixMut::dense(&mut wide, count, 3 * hidden);
            layer.query_key_value.forward(context, input, output, Activation::None, None)
        });
        timed(1, &mut || {
            let qkv = Matrix::dense(&wide, count, 3 * hidden);
            let output = MatrixMut::dense(&mut narrow, count, hidden);
            attention(context, qkv, starts, shape.heads, scale, coarse, output)
        });
        timed(2, &mut || {
            let attended = Matrix::dense(&narrow, count, hidden);
            let sum = MatrixMut::dense(&mut wide, count, hidden);
            layer.attention_output.forward(context, attended, sum, Activation::None, Some(input))
        });
        timed(5, &mut || {
            let output = MatrixMut::dense(&mut state, count, hidden);
            layer_norm(context, Matrix::dense(&wide, count, hidden), &weight, &bias, 1e-12, output)
        });
        let input = Matrix::dense(&state, count, hidden);
        timed(3, &mut || {
            let output = MatrixMut::dense(&mut wide, count, shape.intermediate);
            layer.intermediate.forward(context, input, output, activation, None)
        });
        timed(4, &mut || {
            let inner = Matrix::dense(&wide, count, shape.intermediate);
            let sum = MatrixMut::dense(&mut narrow, count, hidden);
            layer.output.forward(context, inner, sum, Activation::None, Some(input))
        });
        timed(5, &mut || {
            let output = MatrixMut::dense(&mut state, count, hidden);
            layer_norm(context, Matrix::dense(&narrow, count, hidden), &weight, &bias, 1e-12, output)
        });
    }
    spent
}

/// Multiplications and additions of each step, in all layers.
fn operations(shape: &Shape, tokens: &[usize]) -> [f64; 6] {
    let (hidden, intermediate) = (shape.hidden as f64, shape.intermediate as f64);
    let count: f64 = tokens.iter().map(|tokens| *tokens as f64).sum();
    let squares: f64 = tokens.iter().map(|tokens| (*tokens * *tokens) as f64).sum();
    let product = |inputs: f64, outputs: f64| 2.0 * count * inputs * outputs;
    let of_layer = [
        product(hidden, 3.0 * hidden),
        4.0 * squares * hidden,
        product(hidden, hidden),
        product(hidden, intermediate),
        product(intermediate, hidden),
        0.0,
    ];
    of_layer.map(|operations| shape.layers as f64 * operations)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Seconds to tokenize the texts, and to embed their tokens.
fn whole(context: &Context, model: &Model, tokens: &[usize]) -> (f64, f64) {
    // Each word is one token, and two more stand around a text.
    let texts: Vec<String> = tokens.iter().map(|tokens| "house ".repeat(tokens - 2)).collect();
    let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    let options = EmbedOptions { token_budget: tokens.iter().sum(), ..EmbedOptions::default() };
    let columns = model.dimensions(0).expect("dimensions");
    let mut values = vec![0.0; texts.len() * columns];
    let mut pass = || {
        let start = seconds();
        let mut tokenized = model.tokenize_texts(context, &texts, &options).expect("tokens");
        let middle = seconds();
        let output = Output::dense(&mut values, texts.len(), columns);
        model.embed_tokenized(context, &mut tokenized, &options, output, None).expect("vectors");
        (middle - start, seconds() - middle)
    };
    let (tokenizing, embedding) = (0..PASSES).map(|_| pass()).unzip();
    (median(tokenizing), median(embedding))
}

fn profile(context: &Context, model: &Model, shape: &Shape, precision: Precision, workload: &Workload) {
    let dtype = match precision {
        Precision::Bf16 => Dtype::Bf16,
        Precision::I8 => Dtype::I8,
        _ => Dtype::F32,
    };
    let layers: Vec<Layer> = (0..shape.layers).map(|_| Layer::new(shape, dtype)).collect();
    let mut starts = vec![0];
    workload.tokens.iter().for_each(|tokens| starts.push(starts[starts.len() - 1] + tokens));
    let passes: Vec<[f64; 6]> =
        (0..PASSES).map(|_| pass(context, shape, &layers, &starts, dtype != Dtype::F32)).collect();
    let steps: Vec<f64> =
        (0..STEPS.len()).map(|step| median(passes.iter().map(|pass| pass[step]).collect())).collect();
    let (tokenizing, embedding) = whole(context, model, &workload.tokens);
    // Attention multiplies in bf16 where linear layers do in bytes.
    let attention = if dtype == Dtype::I8 { Dtype::Bf16 } else { dtype };
    let limits = [ceiling(context.kernels, dtype) * 1e9, ceiling(context.kernels, attention) * 1e9];
    let line = |step: &str, seconds: f64, share: Option<f64>| {
        let share = share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        println!("{}\t{}\t{step}\t{:.1}\t{share}", precision.name(), workload.name, seconds * 1e6);
    };
    // Where linear layers multiply in tiles, attention does not, and has no limit that is measured here.
    let tiles = [CpuClass::IntelSapphire, CpuClass::IntelGranite, CpuClass::IntelDiamond];
    let in_tiles = dtype != Dtype::F32 && tiles.contains(&context.kernels.class);
    for (step, operations) in operations(shape, &workload.tokens).into_iter().enumerate() {
        let limit = limits[usize::from(step == 1)];
        let known = operations > 0.0 && !(in_tiles && step == 1);
        line(STEPS[step], steps[step], known.then(|| operations / steps[step] / limit));
    }
    line("embeddings, pooling, lists", (embedding - steps.iter().sum::<f64>()).max(0.0), None);
    line("tokenizing", tokenizing, None);
}

fn main() {
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let Some(folder) = folder else {
        println!("layers: give the directory of a BERT to profile");
        return;
    };
    let workloads = [
        Workload { name: "query", tokens: vec![14] },
        Workload { name: "mixed", tokens: vec![8, 11, 14, 17, 20, 23, 26, 30, 35, 41, 50, 62, 75, 100] },
        Workload { name: "256 tokens", tokens: vec![256, 256] },
    ];
    for precision in [Precision::F32, Precision::Bf16, Precision::I8] {
        let options = LoadOptions { precision, ..LoadOptions::default() };
        let model: Arc<Model> =
            Model::load_ram(Source::Path(Path::new(&folder)), &options, None).expect("a model");
        let about = model.describe();
        let shape = Shape {
            hidden: about.hidden,
            intermediate: about.intermediate,
            heads: about.heads,
            layers: about.layers,
        };
        for workload in &workloads {
            let run = |context: &Context| {
                profile(context, &model, &shape, precision, workload);
                Ok(())
            };
            on_calling_thread(None, run).expect("a profile");
        }
    }
}
