//! Damaged files: whatever is done to the bytes of a model, loading it answers, and never panics.

mod support;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use uform_c::models::{EmbedOptions, Layout, LoadOptions, Model, PackOptions, Precision, Source};

use support::{PRECISIONS, Place, embed, repository};

/// A small generator of numbers, SplitMix64 of Steele, Lea and Flood (2014), so that every run makes the same damage.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

type Files = BTreeMap<String, Vec<u8>>;

fn files_of(name: &str) -> Files {
    let folder = repository().join("tests/conformance/models").join(name);
    let mut files = Files::new();
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

const HOSTILE: [&str; 14] = [
    "-1",
    "0",
    "1e999",
    "18446744073709551615",
    "99999999999",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"../../etc/passwd\"",
    "[[[[[[[[[[",
    "1.5",
    "\"\\u0000\"",
];

/// Puts something else where a JSON value stood.
fn replace_value(bytes: &mut Vec<u8>, random: &mut Random) {
    let colons: Vec<usize> =
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at).collect();
    if colons.is_empty() {
        return;
    }
    let start = colons[random.below(colons.len())] + 1;
    let length = bytes[start..].iter().position(|byte| matches!(byte, b',' | b'}' | b'\n')).unwrap_or(0);
    let value = HOSTILE[random.below(HOSTILE.len())];
    bytes.splice(start..start + length, value.bytes());
}

/// Damages one file in one of several ways, and says how.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> &'static str {
    match random.below(6) {
        0 => {
            bytes.truncate(random.below(bytes.len()));
            "cut"
        }
        1 => {
            for _ in 0..=random.below(8) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            "flipped"
        }
        2 => {
            let length = [0u64, 1, 7, 1 << 20, 1 << 40, u64::MAX, u64::MAX / 2][random.below(7)];
            let end = bytes.len().min(8);
            bytes[..end].copy_from_slice(&length.to_le_bytes()[..end]);
            "length"
        }
        3 => {
            let (from, count) = (random.below(bytes.len()), random.below(64));
            let end = (from + count).min(bytes.len());
            bytes.drain(from..end);
            "gap"
        }
        4 => {
            let at = random.below(bytes.len());
            let copied = bytes[at..(at + 100).min(bytes.len())].to_vec();
            bytes.splice(at..at, copied);
            "doubled"
        }
        _ => {
            replace_value(bytes, random);
            "value"
        }
    }
}

/// Loads, and runs what loads. Answers whether it did.
fn survives(files: &Files, precision: Precision) -> bool {
    let named: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    let options = LoadOptions { precision, ..LoadOptions::default() };
    match Model::load_ram(Source::Files(&named), &options, None) {
        Ok(model) => {
            let texts = ["One man and two women see the house at night.", ""];
            embed(&model, Place::Here, &texts, &EmbedOptions::default()).is_ok()
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            false
        }
    }
}

/// A model as one file.
fn packed(name: &str, precision: Precision, layout: Layout) -> Files {
    let folder = tempfile::tempdir().unwrap();
    let (source, path) =
        (repository().join("tests/conformance/models").join(name), folder.path().join("packed.safetensors"));
    Model::pack(Source::Path(&source), &path, &PackOptions { precision, layout }).unwrap();
    Files::from([("packed.safetensors".to_owned(), std::fs::read(&path).unwrap())])
}

fn attack(model: &str, whole: &Files, precisions: &[Precision], rounds: usize) {
    for &precision in precisions {
        assert!(survives(whole, precision), "{model} loads when it is whole");
    }
    let names: Vec<&String> = whole.keys().collect();
    let mut random = Random(0x5eed);
    let (mut loaded, mut refused) = (0, 0);
    for round in 0..rounds {
        let mut files = whole.clone();
        let name = names[round % names.len()].clone();
        let bytes = files.get_mut(&name).unwrap();
        if bytes.is_empty() {
            continue;
        }
        let how = damage(bytes, &mut random);
        let precision = precisions[random.below(precisions.len())];
        match catch_unwind(AssertUnwindSafe(|| survives(&files, precision))) {
            Ok(true) => loaded += 1,
            Ok(false) => refused += 1,
            Err(_) => {
                panic!("{model} in {}: round {round}: {name} was {how}, and that panicked", precision.name())
            }
        }
    }
    println!("{model}: {loaded} loaded, {refused} refused");
    assert!(refused > rounds / 4, "damage was noticed {refused} times of {rounds}");
}

#[test]
fn a_whole_chain() {
    attack("bert-tiny", &files_of("bert-tiny"), &PRECISIONS, 1500);
}

#[test]
fn shards() {
    attack("bert-sharded", &files_of("bert-sharded"), &PRECISIONS, 600);
}

#[test]
fn byte_level_tokens_and_other_positions() {
    attack("roberta-mean", &files_of("roberta-mean"), &PRECISIONS, 400);
}

#[test]
fn packed_files() {
    for (precision, layout) in [
        (Precision::I8, Layout::Portable),
        (Precision::I8, Layout::X86),
        (Precision::Bf16, Layout::X86),
        (Precision::F32, Layout::Portable),
    ] {
        let name = format!("bert-dense in {} as {}", precision.name(), layout.name());
        attack(&name, &packed("bert-dense", precision, layout), &[Precision::Auto], 300);
    }
}
