//! The conformance suite of `tests/conformance`, run on the engine itself; its README says what a runner does.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use uform_c::base::{Dtype, Error, Result, Status};
use uform_c::executors::Executor;
use uform_c::models::{
    EmbedOptions, Length, LoadOptions, Model, Normalize, Output, Precision, Prompt, Report, Role, Source,
};

use support::{NOTHING_YET, repository};

const OUTSIDE: u8 = 0xa5;

struct Suite {
    folder: PathBuf,
    executor: Arc<Executor>,
    document: Value,
}

/// What a call gave: the bytes of each row, and its reports.
struct Outcome {
    rows: Vec<Vec<u8>>,
    reports: Vec<Report>,
    dimensions: usize,
}

fn known_keys(object: &Value, known: &[&str]) {
    for key in object.as_object().into_iter().flat_map(Map::keys) {
        assert!(known.contains(&key.as_str()), "unknown key {key:?}");
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().as_chunks::<2>().0.iter();
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn status_name(status: Status) -> String {
    let name = format!("{status:?}");
    let parts = name.char_indices().map(|(at, letter)| match letter.is_uppercase() && at > 0 {
        true => format!("_{letter}"),
        false => letter.to_uppercase().to_string(),
    });
    parts.collect()
}

impl Suite {
    fn open() -> Self {
        let folder = repository().join("tests/conformance");
        let text = std::fs::read_to_string(folder.join("cases.json")).expect("tests/conformance/cases.json");
        let executor = Executor::for_ram(&[], None, 2, 0).expect("an executor");
        Self { folder, executor, document: serde_json::from_str(&text).expect("cases") }
    }

    /// Loads the model of a case, by its path or, where the case changes it, from bytes.
    fn load(&self, case: &Value) -> Result<Arc<Model>> {
        let options = load_options(case);
        let name = case["model"].as_str().expect("a model");
        let folder = self.folder.join("models").join(name);
        let Some(derive) = case.get("derive") else {
            let path =
                case.get("path").map_or(folder.clone(), |path| folder.join(path.as_str().expect("a path")));
            return Model::load_ram(Source::Path(&path), &options, Some(&self.executor));
        };
        known_keys(derive, &["remove", "replace", "patch", "truncate"]);
        let listed = self.document["models"][name]["files"].as_array().expect("files").iter();
        let listed = listed.map(|file| file.as_str().expect("a name").to_owned());
        let mut files: BTreeMap<String, Vec<u8>> =
            listed.map(|file| (file.clone(), std::fs::read(folder.join(&file)).expect("a file"))).collect();
        for file in derive["remove"].as_array().into_iter().flatten() {
            assert!(files.remove(file.as_str().unwrap()).is_some(), "{file} is not there to be removed");
        }
        for (file, text) in derive["replace"].as_object().into_iter().flatten() {
            files.insert(file.clone(), text.as_str().unwrap().as_bytes().to_vec());
        }
        for patch in derive["patch"].as_array().into_iter().flatten() {
            let (offset, bytes) =
                (patch["offset"].as_u64().unwrap() as usize, unhex(patch["hex"].as_str().unwrap()));
            files.get_mut(patch["file"].as_str().unwrap()).unwrap()[offset..offset + bytes.len()]
                .copy_from_slice(&bytes);
        }
        for (file, length) in derive["truncate"].as_object().into_iter().flatten() {
            files.get_mut(file).unwrap().truncate(length.as_u64().unwrap() as usize);
        }
        let named: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
        Model::load_ram(Source::Files(&named), &options, Some(&self.executor))
    }

    fn embed(
        &self,
        model: &Model,
        texts: &[Vec<u8>],
        options: &EmbedOptions,
        dtype: Dtype,
        with_reports: bool,
    ) -> Result<Outcome> {
        let dimensions = model.dimensions(options.dimensions)?;
        let width = dtype.row_bytes(dimensions);
        // Rows start at odd addresses and have gaps, in which nothing may be written.
        let stride = width + 3;
        let mut memory = vec![OUTSIDE; texts.len() * stride + 1];
        let mut reports = vec![NOTHING_YET; texts.len()];
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        // SAFETY: the memory has these rows and lives longer than the call.
        let output =
            unsafe { Output::new(memory.as_mut_ptr().add(1), texts.len(), dimensions, stride, dtype) };
        self.executor.run(|context| {
            model.embed_texts(context, &texts, options, output, with_reports.then_some(&mut reports[..]))
        })?;
        assert_eq!(memory[0], OUTSIDE);
        let rows = memory[1..].chunks_exact(stride);
        assert!(
            rows.clone().all(|row| row[width..].iter().all(|byte| *byte == OUTSIDE)),
            "a gap was written"
        );
        Ok(Outcome { rows: rows.map(|row| row[..width].to_vec()).collect(), reports, dimensions })
    }
}

fn load_options(case: &Value) -> LoadOptions<'static> {
    let Some(name) = case.get("precision") else { return LoadOptions::default() };
    let all = [Precision::Auto, Precision::F32, Precision::Bf16, Precision::F16, Precision::I8];
    let precision = all.into_iter().find(|precision| Some(precision.name()) == name.as_str());
    LoadOptions { precision: precision.expect("a known precision"), ..LoadOptions::default() }
}

fn options(case: &Value) -> (EmbedOptions<'_>, Dtype) {
    let mut options = EmbedOptions::default();
    let mut dtype = Dtype::F32;
    for (key, value) in case.get("options").and_then(Value::as_object).into_iter().flatten() {
        match (key.as_str(), value.as_str().unwrap_or_default()) {
            ("role", "as-given") => options.role = Role::AsGiven,
            ("role", "query") => options.role = Role::Query,
            ("role", "document") => options.role = Role::Document,
            ("prompt_name", name) => options.prompt = Prompt::Name(name),
            ("prompt", text) => options.prompt = Prompt::Text(text),
            ("dimensions", _) => options.dimensions = value.as_u64().unwrap() as usize,
            ("token_limit", _) => options.token_limit = value.as_u64().unwrap() as usize,
            ("normalize", "model") => options.normalize = Normalize::Model,
            ("normalize", "yes") => options.normalize = Normalize::Yes,
            ("normalize", "no") => options.normalize = Normalize::No,
            ("length", "truncate") => options.length = Length::Truncate,
            ("length", "refuse") => options.length = Length::Refuse,
            ("dtype", name) => {
                let all = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8, Dtype::U8, Dtype::B1];
                dtype = all.into_iter().find(|dtype| dtype.name() == name).expect("a known type");
            }
            _ => panic!("unknown option {key:?}: {value}"),
        }
    }
    (options, dtype)
}

/// The largest difference between two rows, in the units of the suite.
fn difference(dtype: Dtype, found: &[u8], expected: &[u8]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let units = |row: &[u8]| -> Vec<f64> {
        match dtype {
            Dtype::F32 => {
                row.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
            }
            Dtype::F16 | Dtype::Bf16 => {
                row.as_chunks().0.iter().map(|bytes| f64::from(u16::from_le_bytes(*bytes))).collect()
            }
            Dtype::I8 => row.iter().map(|byte| f64::from(*byte as i8)).collect(),
            Dtype::U8 | Dtype::B1 => row.iter().map(|byte| f64::from(*byte)).collect(),
        }
    };
    let differences = units(found).into_iter().zip(units(expected)).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |most, each| if each <= most { most } else { each })
}

fn check_error(expect: &Value, error: &Error) {
    assert_eq!(Some(status_name(error.status).as_str()), expect["status"].as_str(), "{error}");
    for part in expect["message_contains"].as_array().into_iter().flatten() {
        assert!(error.message.contains(part.as_str().unwrap()), "expected {part} in: {error}");
    }
}

fn check_rows(expect: &Value, outcome: &Outcome, dtype: Dtype, worst: &mut f64) {
    assert_eq!(Some(outcome.dimensions as u64), expect["dimensions"].as_u64());
    let rows = expect["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), outcome.rows.len());
    let allowed = expect["difference"].as_f64().expect("a difference");
    let mut largest = 0.0f64;
    for (index, (row, (bytes, report))) in
        rows.iter().zip(outcome.rows.iter().zip(&outcome.reports)).enumerate()
    {
        known_keys(row, &["status", "tokens_found", "tokens_kept", "truncated", "vector"]);
        let status = row.get("status").map_or("OK", |status| status.as_str().unwrap());
        assert_eq!(status_name(report.status), status, "row {index}");
        let facts = [
            ("tokens_found", Value::from(report.tokens_found)),
            ("tokens_kept", Value::from(report.tokens_kept)),
            ("truncated", Value::from(report.truncated)),
        ];
        for (key, found) in facts {
            assert!(
                row.get(key).is_none_or(|expected| *expected == found),
                "row {index}: {key}: found {found}"
            );
        }
        match row.get("vector") {
            Some(vector) => {
                let found = difference(dtype, bytes, &unhex(vector.as_str().unwrap()));
                assert!(
                    found <= allowed,
                    "row {index}: expected a difference of at most {allowed}, found {found}"
                );
                largest = largest.max(found);
                // Units of the other types are none or one.
                if dtype == Dtype::F32 {
                    *worst = worst.max(found / allowed);
                }
            }
            None => {
                let mut elements = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
                assert!(
                    dtype != Dtype::F32 || elements.all(f32::is_nan),
                    "row {index} failed and is not NaN"
                );
            }
        }
    }
    let least = expect["least_difference"].as_f64().unwrap_or(0.0);
    assert!(largest >= least, "expected a difference of at least {least}, found {largest}");
}

fn run(suite: &Suite, case: &Value, worst: &mut f64) {
    let known = "name verb model precision path derive options reports texts expect";
    known_keys(case, &known.split(' ').collect::<Vec<_>>());
    let expect = &case["expect"];
    let known = "status message_contains dimensions token_limit difference least_difference rows tokens";
    known_keys(expect, &known.split(' ').collect::<Vec<_>>());
    let bytes = |text: &Value| match text {
        Value::String(text) => text.as_bytes().to_vec(),
        other => unhex(other["hex"].as_str().expect("a text or its bytes")),
    };
    let texts: Vec<Vec<u8>> = case["texts"].as_array().into_iter().flatten().map(bytes).collect();
    let model = suite.load(case);
    match case["verb"].as_str().unwrap() {
        "load" => check_error(expect, &model.expect_err("loading fails")),
        "tokenize" => {
            let model = model.unwrap_or_else(|error| panic!("{error}"));
            let (options, _) = options(case);
            for (text, expected) in texts.iter().zip(expect["tokens"].as_array().unwrap()) {
                let found = model.tokenize(text, &options).unwrap_or_else(|error| panic!("{error}"));
                let expected = expected.as_array().unwrap();
                assert_eq!(found.len(), expected.len());
                for (token, expected) in found.iter().zip(expected) {
                    let found = (Some(token.id.into()), Some(token.begin as u64), Some(token.end as u64));
                    assert_eq!(
                        found,
                        (expected[0].as_u64(), expected[1].as_u64(), expected[2].as_u64()),
                        "{token:?}"
                    );
                    assert!(
                        expected[3].is_null() || expected[3].as_bool() == Some(token.special),
                        "{token:?}"
                    );
                }
            }
        }
        "embed" => {
            let model = model.unwrap_or_else(|error| panic!("{error}"));
            if let Some(limit) = expect["token_limit"].as_u64() {
                assert_eq!(model.describe().token_limit as u64, limit);
            }
            let (options, dtype) = options(case);
            let with_reports = case["reports"].as_bool().unwrap_or(true);
            match suite.embed(&model, &texts, &options, dtype, with_reports) {
                Err(error) => check_error(expect, &error),
                Ok(outcome) => {
                    assert_eq!(expect["status"].as_str(), Some("OK"), "the call succeeded");
                    check_rows(expect, &outcome, dtype, worst);
                    for (index, text) in texts.iter().enumerate() {
                        let alone =
                            suite.embed(&model, std::slice::from_ref(text), &options, dtype, true).unwrap();
                        assert_eq!(alone.rows[0], outcome.rows[index], "row {index} alone has other bits");
                        assert_eq!(alone.reports[0], outcome.reports[index]);
                    }
                }
            }
        }
        other => panic!("unknown verb {other:?}"),
    }
}

#[test]
fn every_case() {
    let suite = Suite::open();
    let cases = suite.document["cases"].as_array().expect("cases");
    assert!(cases.len() > 100);
    let mut failed = Vec::new();
    let mut worst = 0.0;
    for case in cases {
        let attempt = std::panic::AssertUnwindSafe(|| run(&suite, case, &mut worst));
        if std::panic::catch_unwind(attempt).is_err() {
            failed.push(case["name"].as_str().unwrap_or_default());
        }
    }
    let passed = cases.len() - failed.len();
    println!(
        "{passed} passed, {} failed, 0 skipped; at most {worst:.2} of the allowed difference",
        failed.len()
    );
    assert!(failed.is_empty(), "failed: {failed:#?}");
}
