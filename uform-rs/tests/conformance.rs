//! Runs the cases of tests/conformance: the same answers in every language.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use uform::{
    Dtype, EmbedOptions, Embeddings, Error, Executor, LoadOptions, Model, OwnedOutput, Prompt, RawMatrix,
    Report, Status, Token,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Suite {
    #[serde(rename = "made_with")]
    _made_with: BTreeMap<String, String>,
    models: BTreeMap<String, Facts>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    files: Vec<String>,
    dimensions: usize,
    token_limit: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    verb: Verb,
    model: String,
    precision: Option<String>,
    path: Option<String>,
    derive: Option<Derive>,
    #[serde(default)]
    options: Options,
    #[serde(default = "yes")]
    reports: bool,
    #[serde(default)]
    texts: Vec<Text>,
    expect: Expect,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Verb {
    Embed,
    Load,
    Tokenize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Derive {
    #[serde(default)]
    remove: Vec<String>,
    #[serde(default)]
    replace: BTreeMap<String, String>,
    #[serde(default)]
    patch: Vec<Patch>,
    #[serde(default)]
    truncate: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    file: String,
    offset: usize,
    hex: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Options {
    role: Option<String>,
    prompt_name: Option<String>,
    prompt: Option<String>,
    dimensions: usize,
    token_limit: usize,
    normalize: Option<String>,
    length: Option<String>,
    dtype: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Bytes { hex: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    status: String,
    #[serde(default)]
    message_contains: Vec<String>,
    dimensions: Option<usize>,
    token_limit: Option<usize>,
    #[serde(default)]
    difference: f64,
    #[serde(default)]
    least_difference: f64,
    #[serde(default)]
    rows: Vec<Row>,
    #[serde(default)]
    tokens: Vec<Vec<ExpectedToken>>,
}

/// Number, begin, end, and whether it is special where that is compared.
type ExpectedToken = (u32, usize, usize, Option<bool>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    status: Option<String>,
    tokens_found: Option<u64>,
    tokens_kept: Option<u64>,
    truncated: Option<bool>,
    vector: Option<String>,
}

type Outcome = std::result::Result<(), String>;

macro_rules! demand {
    ($condition:expr, $($message:tt)*) => {
        match $condition {
            true => {}
            false => return Err(format!($($message)*)),
        }
    };
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

impl Text {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Utf8(text) => text.as_bytes().to_vec(),
            Self::Bytes { hex: text } => hex(text),
        }
    }
}

impl Options {
    fn options(&self, reports: bool) -> EmbedOptions {
        let prompt = match (&self.prompt, &self.prompt_name) {
            (Some(text), None) => Prompt::Text(text.clone()),
            (None, Some(name)) => Prompt::Name(name.clone()),
            (None, None) => Prompt::Model,
            (Some(_), Some(_)) => panic!("a case gives a prompt twice"),
        };
        EmbedOptions {
            role: self.role.as_ref().map_or_else(Default::default, |role| role.parse().unwrap()),
            prompt,
            dimensions: self.dimensions,
            token_limit: self.token_limit,
            normalize: self.normalize.as_ref().map_or_else(Default::default, |text| text.parse().unwrap()),
            length: self.length.as_ref().map_or_else(Default::default, |text| text.parse().unwrap()),
            dtype: self.dtype.as_ref().map_or_else(Default::default, |text| text.parse().unwrap()),
            reports,
            ..Default::default()
        }
    }
}

/// The status as the header spells it, without its prefix.
fn spelled(status: Status) -> String {
    status.name().to_uppercase().replace('-', "_")
}

impl Case {
    fn load(&self, suite: &Suite, executor: &Executor) -> uform::Result<Model> {
        let directory = common::path(&self.model);
        let precision = self.precision.as_ref().map_or_else(Default::default, |name| name.parse().unwrap());
        let options = LoadOptions { precision, ..LoadOptions::default() };
        let Some(derive) = &self.derive else {
            let path = self.path.as_ref().map_or(directory.clone(), |file| directory.join(file));
            return Model::load_ram(path, executor, &options);
        };
        let names = suite.models[&self.model].files.iter().filter(|name| !derive.remove.contains(name));
        let mut files: BTreeMap<String, Vec<u8>> =
            names.map(|name| (name.clone(), fs::read(directory.join(name)).unwrap())).collect();
        for (name, text) in &derive.replace {
            files.insert(name.clone(), text.clone().into_bytes());
        }
        for Patch { file, offset, hex: text } in &derive.patch {
            let bytes = hex(text);
            files.get_mut(file).unwrap()[*offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        for (name, length) in &derive.truncate {
            files.get_mut(name).unwrap().truncate(*length);
        }
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        Model::load_ram_from_bytes(&files, executor, &options)
    }

    /// Whether `outcome` is the failure that the case wants.
    fn failed(&self, outcome: &Error) -> Outcome {
        let found = spelled(outcome.status());
        demand!(found == self.expect.status, "expected {}, found {found}: {outcome}", self.expect.status);
        for part in &self.expect.message_contains {
            demand!(outcome.message().contains(part), "expected {part:?} in {:?}", outcome.message());
        }
        Ok(())
    }

    fn run(&self, suite: &Suite, executor: &Executor) -> Outcome {
        let model = match (self.load(suite, executor), self.verb == Verb::Load) {
            (Err(error), true) => return self.failed(&error),
            (Ok(_), true) => return Err(format!("it loads, but {} was expected", self.expect.status)),
            (Err(error), false) => return Err(format!("it does not load: {error}")),
            (Ok(model), false) => model,
        };
        let description = model.describe().map_err(|error| error.to_string())?;
        let facts = &suite.models[&self.model];
        if self.derive.is_none() {
            let found = (description.dimensions, description.token_limit);
            demand!(found == (facts.dimensions, facts.token_limit), "describe says {found:?}");
        }
        if let Some(limit) = self.expect.token_limit {
            demand!(description.token_limit == limit, "token limit {}, not {limit}", description.token_limit);
        }
        match self.verb {
            Verb::Embed => self.embed(&model, executor, description.default_dimensions),
            _ => self.tokenize(&model),
        }
    }

    fn embed(&self, model: &Model, executor: &Executor, native: usize) -> Outcome {
        let options = self.options.options(self.reports);
        let texts: Vec<Vec<u8>> = self.texts.iter().map(Text::bytes).collect();
        let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let columns = if options.dimensions == 0 { native } else { options.dimensions };
        let all = match embed(model, Some(executor), &texts, &options, columns) {
            Err(error) => return self.failed(&error),
            Ok(all) => all,
        };
        demand!(self.expect.status == "OK", "it succeeds, but {} was expected", self.expect.status);
        if let Some(dimensions) = self.expect.dimensions {
            demand!(columns == dimensions, "{columns} columns, not {dimensions}");
        }
        let mut largest = 0.0f64;
        for (index, row) in self.expect.rows.iter().enumerate() {
            let found = row.check(&all, index, self.expect.difference);
            largest = largest.max(found.map_err(|error| format!("row {index}: {error}"))?);
        }
        let least = self.expect.least_difference;
        demand!(largest >= least, "it differs by {largest}, less than {least}");
        for (index, text) in texts.iter().enumerate() {
            let alone = embed(model, None, &[text], &options, columns).map_err(|error| error.to_string())?;
            demand!(
                alone.row_bytes(0) == all.row_bytes(index),
                "row {index} has other bits when it is alone"
            );
            demand!(
                alone.reports().first() == all.reports().get(index),
                "row {index} has another report when alone"
            );
        }
        Ok(())
    }

    fn tokenize(&self, model: &Model) -> Outcome {
        let options = self.options.options(false);
        for (index, text) in self.texts.iter().enumerate() {
            let text = String::from_utf8(text.bytes()).unwrap();
            let tokens = match model.tokenize(&text, &options) {
                Err(error) => return self.failed(&error),
                Ok(tokens) => tokens,
            };
            let expected = &self.expect.tokens[index];
            let same = |(found, wanted): (&Token, &ExpectedToken)| {
                (found.id, found.begin, found.end) == (wanted.0, wanted.1, wanted.2)
                    && wanted.3.is_none_or(|special| special == found.special)
            };
            demand!(
                tokens.len() == expected.len() && tokens.iter().zip(expected).all(same),
                "text {index}: expected {expected:?}, found {tokens:?}"
            );
        }
        demand!(self.expect.status == "OK", "it succeeds, but {} was expected", self.expect.status);
        Ok(())
    }
}

/// Embeds by the safe verbs where all texts are UTF-8, else by the one for bindings; on the calling thread without an
/// executor.
fn embed(
    model: &Model,
    executor: Option<&Executor>,
    texts: &[&[u8]],
    options: &EmbedOptions,
    columns: usize,
) -> uform::Result<Embeddings> {
    let nobody = Executor::default();
    if let Ok(texts) = texts.iter().map(|text| std::str::from_utf8(text)).collect::<Result<Vec<_>, _>>() {
        return match executor {
            Some(executor) => model.on(executor).embed_texts(&texts, options),
            None => model.embed_texts(&texts, options),
        };
    }
    let mut output = Embeddings::zeros(texts.len(), columns, options.dtype)?;
    let matrix: RawMatrix = output.matrix();
    let mut reports = vec![Report::default(); texts.len()];
    let wanted = options.reports.then_some(reports.as_mut_slice());
    // SAFETY: the matrix is the output's own memory.
    unsafe { model.on(executor.unwrap_or(&nobody)).embed_texts_raw(texts, options, matrix, wanted)? };
    Ok(output.with_reports(if options.reports { reports } else { Vec::new() }))
}

impl Row {
    /// The difference from the vector, which is at most `allowed`, or why the row is not as expected.
    fn check(&self, all: &Embeddings, index: usize, allowed: f64) -> std::result::Result<f64, String> {
        if let Some(report) = all.reports().get(index) {
            let status = spelled(report.status);
            let wanted = self.status.as_deref().unwrap_or("OK");
            demand!(status == wanted, "status {status}, not {wanted}");
            for (what, found, wanted) in [
                ("tokens_found", report.tokens_found, self.tokens_found),
                ("tokens_kept", report.tokens_kept, self.tokens_kept),
                ("truncated", u64::from(report.truncated), self.truncated.map(u64::from)),
            ] {
                demand!(wanted.is_none_or(|wanted| wanted == found), "{what}: {found}, not {wanted:?}");
            }
            if report.status != Status::Ok && all.dtype() == Dtype::F32 {
                demand!(
                    all.row(index).unwrap().iter().all(|value| value.is_nan()),
                    "a failed row is not NaN"
                );
            }
        }
        let Some(vector) = &self.vector else { return Ok(0.0) };
        let found = difference(all.row_bytes(index).unwrap(), &hex(vector), all.dtype());
        demand!(found <= allowed, "it differs by {found}, more than {allowed}");
        Ok(found)
    }
}

/// The largest difference between elements of two rows; infinite where the rows do not compare.
fn difference(found: &[u8], wanted: &[u8], dtype: Dtype) -> f64 {
    if found.len() != wanted.len() {
        return f64::INFINITY;
    }
    let largest = |decode: fn(&[u8]) -> f64, width: usize| {
        let pairs = found.chunks(width).zip(wanted.chunks(width));
        // `max` drops NaN, which must count as a difference.
        pairs
            .map(|(found, wanted)| (decode(found) - decode(wanted)).abs())
            .fold(0.0, |most: f64, one| if one.is_nan() { f64::INFINITY } else { most.max(one) })
    };
    match dtype {
        Dtype::F32 => largest(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()).into(), 4),
        Dtype::F16 | Dtype::Bf16 => largest(|bytes| u16::from_le_bytes(bytes.try_into().unwrap()).into(), 2),
        Dtype::I8 => largest(|bytes| (bytes[0] as i8).into(), 1),
        Dtype::U8 | Dtype::B1 => largest(|bytes| bytes[0].into(), 1),
    }
}

#[test]
fn every_case() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance/cases.json");
    let suite: Suite = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let executor = common::executor(2);
    let mut failures = Vec::new();
    for case in &suite.cases {
        if let Err(why) = case.run(&suite, &executor) {
            failures.push(format!("{}: {why}", case.name));
        }
    }
    println!("{} passed, {} failed, 0 skipped", suite.cases.len() - failures.len(), failures.len());
    assert!(suite.cases.len() > 100, "the suite has only {} cases", suite.cases.len());
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}
