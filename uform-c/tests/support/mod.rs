//! What several test programs share: the real model, the reference's vectors, and ways to call a model.

#![allow(dead_code, missing_docs, reason = "every test program uses a part of this")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uform_c::base::{Result, Status};
use uform_c::executors::{Executor, on_calling_thread};
use uform_c::models::{EmbedOptions, LoadOptions, Model, Output, Precision, Report, Source};

/// The top of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate has a parent").to_owned()
}

/// Where `scripts/get-model.sh` puts all-MiniLM-L6-v2.
pub(crate) fn minilm_folder() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = cache.or_else(|| home.map(|home| home.join(".cache"))).expect("a cache directory");
    let folder = cache.join("uform/models/all-MiniLM-L6-v2");
    assert!(
        folder.join("model.safetensors").is_file(),
        "{} is not there: run scripts/get-model.sh",
        folder.display()
    );
    folder
}

pub(crate) fn load(folder: &Path) -> Arc<Model> {
    load_in(folder, Precision::Auto)
}

/// Every precision that a caller may ask for.
pub(crate) const PRECISIONS: [Precision; 4] =
    [Precision::F32, Precision::Bf16, Precision::F16, Precision::I8];

pub(crate) fn load_in(folder: &Path, precision: Precision) -> Arc<Model> {
    let options = LoadOptions { precision, ..LoadOptions::default() };
    Model::load_ram(Source::Path(folder), &options, None).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) const NOTHING_YET: Report =
    Report { status: Status::Internal, truncated: false, tokens_found: 0, tokens_kept: 0 };

/// Where a call computes.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Here,
    On(&'a Executor),
}

/// Embeds into dense f32 rows with reports.
pub(crate) fn embed(
    model: &Model,
    place: Place,
    texts: &[impl AsRef<[u8]>],
    options: &EmbedOptions,
) -> Result<(Vec<Vec<f32>>, Vec<Report>)> {
    let texts: Vec<&[u8]> = texts.iter().map(AsRef::as_ref).collect();
    let columns = model.dimensions(options.dimensions)?;
    let mut values = vec![0f32; texts.len() * columns];
    let mut reports = vec![NOTHING_YET; texts.len()];
    let output = Output::dense(&mut values, texts.len(), columns);
    match place {
        Place::Here => on_calling_thread(None, |context| {
            model.embed_texts(context, &texts, options, output, Some(&mut reports))
        })?,
        Place::On(executor) => {
            executor.run(|context| model.embed_texts(context, &texts, options, output, Some(&mut reports)))?
        }
    }
    Ok((values.chunks(columns).map(<[f32]>::to_vec).collect(), reports))
}

/// The bits of rows, for comparisons that take no difference.
pub(crate) fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|element| element.to_bits()).collect()).collect()
}

pub(crate) fn cosine(left: &[f32], right: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(left, right) / (dot(left, left) * dot(right, right)).sqrt()
}

pub(crate) fn largest_difference(left: &[f32], right: &[f32]) -> f64 {
    let differences = left.iter().zip(right).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    differences
        .fold(0.0, |most, difference| if difference.is_nan() { f64::NAN } else { difference.max(most) })
}

/// The rows of a `.npy` file of little-endian f32 with two dimensions.
pub(crate) fn read_npy(path: &Path) -> Vec<Vec<f32>> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{}", path.display());
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..start]).expect("a header of ASCII");
    assert!(header.contains("'<f4'") && header.contains("False"), "{header}");
    let shape = header.split("'shape': (").nth(1).and_then(|rest| rest.split(')').next()).expect("a shape");
    let shape: Vec<usize> = shape.split(',').filter_map(|size| size.trim().parse().ok()).collect();
    let [rows, columns] = shape[..] else { panic!("expected two dimensions, found {shape:?}") };
    let values: Vec<f32> =
        bytes[start..].as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
    assert_eq!(values.len(), rows * columns, "{}", path.display());
    values.chunks(columns).map(<[f32]>::to_vec).collect()
}
