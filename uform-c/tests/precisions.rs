//! What each precision keeps of f32, on the real model and on damaged weights.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use uform_c::base::Status;
use uform_c::executors::Executor;
use uform_c::models::{EmbedOptions, LoadOptions, Model, Precision, Source};
use uform_c::system::cpu::{self, CpuClass};

use support::{PRECISIONS, Place, cosine, embed, load_in, minilm_folder, read_npy, repository};

/// Neighbours that are compared.
const NEAREST: usize = 10;

fn read(path: &str) -> String {
    let path = repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn vectors(precision: Precision, texts: &[&str]) -> Vec<Vec<f32>> {
    let executor = Executor::for_ram(&[], None, 2, 0).unwrap();
    let model = load_in(&minilm_folder(), precision);
    let (rows, reports) = embed(&model, Place::On(&executor), texts, &EmbedOptions::default()).unwrap();
    assert!(reports.iter().all(|report| report.status == Status::Ok));
    rows
}

/// The mean and the least cosine of rows that belong together, and which row has the least.
fn cosines(found: &[Vec<f32>], exact: &[Vec<f32>]) -> (f64, f64, usize) {
    assert_eq!(found.len(), exact.len());
    let all: Vec<f64> = found.iter().zip(exact).map(|(found, exact)| cosine(found, exact)).collect();
    let (row, least) = all.iter().enumerate().min_by(|left, right| left.1.total_cmp(right.1)).expect("rows");
    (all.iter().sum::<f64>() / all.len() as f64, *least, row)
}

/// For each row of vectors of length one the others that are nearest to it.
fn nearest(rows: &[Vec<f32>]) -> Vec<Vec<usize>> {
    let near = |row: &Vec<f32>, index: usize| {
        let mut others: Vec<(f32, usize)> = (0..rows.len())
            .filter(|other| *other != index)
            .map(|other| (row.iter().zip(&rows[other]).map(|(a, b)| a * b).sum(), other))
            .collect();
        others.select_nth_unstable_by(NEAREST - 1, |left, right| right.0.total_cmp(&left.0));
        others[..NEAREST].iter().map(|(_, other)| *other).collect()
    };
    rows.iter().enumerate().map(|(index, row)| near(row, index)).collect()
}

/// The share of the nearest that are the same.
fn agreement(found: &[Vec<f32>], exact: &[Vec<f32>]) -> f64 {
    let (found, exact) = (nearest(found), nearest(exact));
    let same = |(found, exact): (&Vec<usize>, &Vec<usize>)| {
        found.iter().filter(|neighbour| exact.contains(neighbour)).count()
    };
    found.iter().zip(&exact).map(same).sum::<usize>() as f64 / (found.len() * NEAREST) as f64
}

/// Over 1,000 real sentences, against f32 of the engine, which the parity test holds to the reference's.
#[test]
fn real_sentences_keep_their_vectors() {
    let file = read("tests/data/sentences.txt");
    let texts: Vec<&str> = file.lines().take(1000).collect();
    let exact = vectors(Precision::F32, &texts);
    // f16 is the slowest where it is widened, and loses so little that fewer sentences show it.
    for (precision, count, mean_limit, least_limit, agreement_limit) in [
        (Precision::Bf16, 1000, 0.9999, 0.9995, 0.98),
        (Precision::F16, 200, 0.99999, 0.9999, 0.99),
        (Precision::I8, 1000, 0.998, 0.99, 0.96),
    ] {
        let found = vectors(precision, &texts[..count]);
        let exact = &exact[..count];
        let ((mean, least, row), agreed) = (cosines(&found, exact), agreement(&found, exact));
        let name = precision.name();
        println!("{name}: cosine {mean:.7}, at least {least:.6}; nearest agree to {agreed:.4}");
        assert!(mean >= mean_limit && least >= least_limit, "{name}: {mean}, {least} of {}", texts[row]);
        assert!(agreed >= agreement_limit, "{name}: {agreed}");
        assert!(mean < 1.0 - 1e-9, "{name}: these are the vectors of f32");
    }
}

/// Texts of any kind and language, every fourth of the parity set, against the reference library's own vectors.
#[test]
fn any_text_keeps_its_vector() {
    let file = read("tests/data/parity/texts.jsonl");
    let texts: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let exact = read_npy(&repository().join("tests/data/parity/vectors.npy"));
    let others = (0..texts.len()).filter(|row| texts[*row]["kind"] != "sentence");
    let chosen: Vec<usize> = others.step_by(4).collect();
    assert!(chosen.len() > 150);
    let plain: Vec<&str> = chosen.iter().map(|row| texts[*row]["text"].as_str().unwrap()).collect();
    let exact: Vec<Vec<f32>> = chosen.iter().map(|row| exact[*row].clone()).collect();
    for (precision, mean_limit, least_limit) in
        [(Precision::Bf16, 0.9999, 0.9995), (Precision::I8, 0.998, 0.99)]
    {
        let found = vectors(precision, &plain);
        let (mean, least, row) = cosines(&found, &exact);
        let name = precision.name();
        println!("{name}: cosine {mean:.7}, at least {least:.6}: {}", texts[chosen[row]]);
        assert!(mean >= mean_limit && least >= least_limit, "{name}: {mean}, {least} of {}", plain[row]);
    }
}

fn tiny(name: &str) -> PathBuf {
    repository().join("tests/conformance/models").join(name)
}

fn load_as(folder: &Path, precision: Precision, class: CpuClass) -> Arc<Model> {
    let options = LoadOptions { precision, class: Some(class), ..LoadOptions::default() };
    Model::load_ram(Source::Path(folder), &options, None).unwrap()
}

/// `auto` is the file's type where the class has instructions for it, else f32; what was asked for holds everywhere.
#[test]
fn automatic_precision_follows_file_and_class() {
    for class in cpu::runnable() {
        let has_bf16 = match class {
            CpuClass::Serial | CpuClass::IntelHaswell | CpuClass::IntelSierra => false,
            CpuClass::IntelSkylake | CpuClass::IntelIcelake => false,
            CpuClass::AmdGenoa => true,
            _ => continue,
        };
        let automatic = |name| load_as(&tiny(name), Precision::Auto, *class).describe().precision;
        let bf16 = if has_bf16 { Precision::Bf16 } else { Precision::F32 };
        assert_eq!(automatic("bert-bf16"), bf16, "{class}");
        // No class up to AmdGenoa multiplies f16.
        assert_eq!(automatic("bert-f16"), Precision::F32, "{class}");
        assert_eq!(automatic("bert-mean"), Precision::F32, "{class}");
        for precision in PRECISIONS {
            for name in ["bert-bf16", "bert-mean"] {
                let model = load_as(&tiny(name), precision, *class);
                assert_eq!(model.describe().precision, precision, "{class}");
            }
        }
    }
}

#[test]
fn weights_take_the_bytes_of_their_type() {
    let bytes = PRECISIONS.map(|precision| load_in(&minilm_folder(), precision).describe().weight_bytes);
    // Six layers of 12 · 384² weights; the scales of i8 are less than two percent of that.
    let weights = 6 * 12 * 384 * 384;
    assert_eq!((bytes[0] - bytes[1], bytes[1]), (2 * weights, bytes[2]));
    let scales = bytes[3] + 3 * weights - bytes[0];
    assert!(scales > 0 && scales < weights / 50, "{scales}");
}

/// Where numbers of a tensor of f32 begin in a safetensors file.
fn place(file: &[u8], tensor: &str) -> usize {
    let length = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let start = header[tensor]["data_offsets"][0].as_u64().unwrap_or_else(|| panic!("no {tensor}"));
    8 + length + start as usize
}

/// The statuses of two texts by a model one of whose weights is `value`.
fn statuses_with(value: f32, tensor: &str, precision: Precision) -> [Status; 2] {
    let folder = tiny("bert-cls");
    let names = ["config.json", "tokenizer.json", "tokenizer_config.json", "modules.json"];
    let names = names.into_iter().chain(["1_Pooling/config.json", "model.safetensors"]);
    let mut files: Vec<(&str, Vec<u8>)> =
        names.map(|name| (name, std::fs::read(folder.join(name)).unwrap())).collect();
    let weights = &mut files.last_mut().unwrap().1;
    // Some number in the middle of the second row.
    let at = place(weights, tensor) + 40 * size_of::<f32>();
    weights[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    let options = LoadOptions { precision, ..LoadOptions::default() };
    let model = Model::load_ram(Source::Files(&files), &options, None).unwrap();
    let (rows, reports) =
        embed(&model, Place::Here, &["a cat", "Hello world"], &EmbedOptions::default()).unwrap();
    for (row, report) in rows.iter().zip(&reports) {
        let (finite, spoilt) = (row.iter().all(|x| x.is_finite()), row.iter().all(|x| x.is_nan()));
        assert!(if report.status == Status::Ok { finite } else { spoilt }, "{report:?}: {row:?}");
    }
    [reports[0].status, reports[1].status]
}

/// Contract 3: a weight that is not a number shows in the status of every row that it meets, in every precision.
#[test]
fn weights_that_are_not_finite_fail_the_rows() {
    let layer = "encoder.layer.0.";
    for precision in PRECISIONS {
        for part in [
            "attention.self.query",
            "attention.self.value",
            "attention.output.dense",
            "intermediate.dense",
            "output.dense",
        ] {
            let tensor = format!("{layer}{part}.weight");
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let found = statuses_with(value, &tensor, precision);
                assert_eq!(found, [Status::RowFailed; 2], "{tensor} with {value} in {}", precision.name());
            }
            assert_eq!(statuses_with(0.5, &tensor, precision), [Status::Ok; 2]);
        }
        // Large, but a number: only f16 has no room for it.
        let large = statuses_with(1e6, &format!("{layer}attention.output.dense.weight"), precision);
        let expected = if precision == Precision::F16 { Status::RowFailed } else { Status::Ok };
        assert_eq!(large, [expected; 2], "{}", precision.name());
    }
}
