//! Packed models: one file that loads as what its directory is, to the bit, and errors that say what is wrong with it.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use uform_c::base::{Error, Result, Status};
use uform_c::models::{
    Description, EmbedOptions, Layout, LoadOptions, Model, PackOptions, Precision, Reading, Source,
};

use support::{Place, bits, embed, repository};

const PRECISIONS: [Precision; 4] = [Precision::F32, Precision::Bf16, Precision::F16, Precision::I8];
const LAYOUTS: [Layout; 2] = [Layout::Portable, Layout::X86];
const TEXTS: [&str; 4] =
    ["One man and two women see the house at night.", "", "the", "a cat and a dog and a ship and a train"];

fn models() -> Vec<PathBuf> {
    let folder = repository().join("tests/conformance/models");
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    assert!(found.len() >= 24, "{} has {} models", folder.display(), found.len());
    found
}

fn tiny(name: &str) -> PathBuf {
    repository().join("tests/conformance/models").join(name)
}

fn packed(source: &Path, to: &Path, precision: Precision, layout: Layout) -> Result<()> {
    Model::pack(Source::Path(source), to, &PackOptions { precision, layout })
}

/// The bytes of a packed model.
fn packed_bytes(source: &Path, precision: Precision, layout: Layout) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packed.safetensors");
    packed(source, &path, precision, layout).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    std::fs::read(&path).unwrap()
}

fn load_as(source: Source, precision: Precision, reading: Reading) -> Result<Arc<Model>> {
    Model::load_ram(source, &LoadOptions { precision, reading, ..LoadOptions::default() }, None)
}

fn load_bytes(bytes: &[u8], precision: Precision) -> Result<Arc<Model>> {
    load_as(Source::Files(&[("packed.safetensors", bytes)]), precision, Reading::Sequential)
}

/// The status and the sentence of a load that must fail.
fn refused(bytes: &[u8]) -> (Status, String) {
    match load_bytes(bytes, Precision::Auto) {
        Ok(_) => panic!("a damaged file was loaded"),
        Err(Error { status, message }) => (status, message),
    }
}

fn rows(model: &Model) -> Vec<Vec<u32>> {
    bits(&embed(model, Place::Here, &TEXTS, &EmbedOptions::default()).unwrap().0)
}

#[test]
fn packed_models_are_what_their_directories_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packed.safetensors");
    for source in models() {
        for precision in PRECISIONS {
            let original = load_as(Source::Path(&source), precision, Reading::Sequential).unwrap();
            let expected = (rows(&original), original.describe());
            for layout in LAYOUTS {
                let what = format!("{} in {} as {}", source.display(), precision.name(), layout.name());
                packed(&source, &path, precision, layout).unwrap_or_else(|error| panic!("{what}: {error}"));
                let bytes = std::fs::read(&path).unwrap();
                for model in [
                    load_bytes(&bytes, Precision::Auto),
                    load_bytes(&bytes, precision),
                    load_as(Source::Path(&path), Precision::Auto, Reading::Sequential),
                    load_as(Source::Path(&path), Precision::Auto, Reading::Mapped),
                ] {
                    let model = model.unwrap_or_else(|error| panic!("{what}: {error}"));
                    let description =
                        Description { file_dtype: expected.1.file_dtype, ..model.describe().clone() };
                    assert_eq!(&description, expected.1, "{what}");
                    assert_eq!(model.describe().file_dtype as u32, expected_dtype(precision), "{what}");
                    assert!(rows(&model) == expected.0, "{what}: other bits");
                }
            }
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else was left behind");
}

fn expected_dtype(precision: Precision) -> u32 {
    use uform_c::base::Dtype;
    (match precision {
        Precision::Bf16 => Dtype::Bf16,
        Precision::F16 => Dtype::F16,
        Precision::I8 => Dtype::I8,
        Precision::Auto | Precision::F32 => Dtype::F32,
    }) as u32
}

/// What other readers of safetensors see: the names and shapes of the library's checkpoint, and texts.
#[test]
fn portable_files_are_checkpoints_of_their_library() {
    let source = tiny("bert-dense");
    let checkpoint = std::fs::read(source.join("model.safetensors")).unwrap();
    let checkpoint = SafeTensors::deserialize(&checkpoint).unwrap();
    let bytes = packed_bytes(&source, Precision::Bf16, Layout::Portable);
    let found = SafeTensors::deserialize(&bytes).unwrap();
    let mut linear = 0;
    for (name, tensor) in found.tensors().iter().filter(|(name, _)| !name.contains('/')) {
        let original = checkpoint.tensor(name).unwrap();
        assert_eq!(tensor.shape(), original.shape(), "{name}");
        match tensor.dtype() {
            Dtype::BF16 => linear += 1,
            _ => assert_eq!((tensor.dtype(), tensor.data()), (original.dtype(), original.data()), "{name}"),
        }
    }
    assert!(linear > 0 && linear % 6 == 0, "{linear} weights in bf16");
    assert!(found.names().iter().any(|name| name.ends_with("_Dense/linear.weight")), "{:?}", found.names());
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let texts = metadata.metadata().clone().unwrap();
    for name in ["config.json", "modules.json", "tokenizer.json", "1_Pooling/config.json"] {
        assert_eq!(texts[name].as_bytes(), std::fs::read(source.join(name)).unwrap(), "{name}");
    }
    assert_eq!((&texts["uform.precision"][..], &texts["uform.layout"][..]), ("bf16", "portable"));
}

/// Mapping is loading: panels begin where the kernels want them.
#[test]
fn panels_lie_as_kernels_read_them() {
    let bytes = packed_bytes(&tiny("bert-odd-heads"), Precision::I8, Layout::X86);
    let (header, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!((header + 8) % 64, 0);
    let panels: Vec<_> =
        metadata.tensors().into_iter().filter(|(_, info)| info.dtype == Dtype::U32).collect();
    assert!(!panels.is_empty());
    for (name, info) in panels {
        assert!(info.data_offsets.0 % 64 == 0 && info.shape[2] == 16, "{name}: {info:?}");
    }
}

#[test]
fn packing_twice_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for precision in PRECISIONS {
        let source = tiny("bert-sharded");
        let path = folder.path().join("first.safetensors");
        packed(&source, &path, precision, Layout::Portable).unwrap();
        let portable = std::fs::read(&path).unwrap();
        assert!(portable == packed_bytes(&path, Precision::Auto, Layout::Portable), "{}", precision.name());
        let laid_out = packed_bytes(&path, Precision::Auto, Layout::X86);
        assert!(laid_out == packed_bytes(&source, precision, Layout::X86), "{}", precision.name());
    }
}

#[test]
fn floats_become_what_was_asked_for_and_numbers_do_not() {
    let source = tiny("bert-mean");
    let portable = |precision| packed_bytes(&source, precision, Layout::Portable);
    let own = portable(Precision::F32);
    for precision in PRECISIONS {
        let expected = load_as(Source::Path(&source), precision, Reading::Sequential).unwrap();
        assert!(rows(&load_bytes(&own, precision).unwrap()) == rows(&expected), "{}", precision.name());
        load_bytes(&portable(Precision::Bf16), precision).unwrap();
    }
    for (bytes, asked) in [
        (portable(Precision::I8), Precision::F32),
        (portable(Precision::I8), Precision::Bf16),
        (packed_bytes(&source, Precision::Bf16, Layout::X86), Precision::F32),
    ] {
        let error = load_bytes(&bytes, asked).unwrap_err();
        assert_eq!(error.status, Status::Unsupported);
        let start = "packed.safetensors: precision: expected auto or ";
        assert!(error.message.starts_with(start) && error.message.contains(asked.name()), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packed.safetensors");
    packed(&source, &path, Precision::I8, Layout::X86).unwrap();
    let again = folder.path().join("again.safetensors");
    for (precision, layout) in [(Precision::F32, Layout::X86), (Precision::I8, Layout::Portable)] {
        let error = packed(&path, &again, precision, layout).unwrap_err();
        assert_eq!(error.status, Status::Unsupported, "{error}");
        assert!(!again.exists());
    }
    packed(&path, &again, Precision::Auto, Layout::X86).unwrap();
    assert!(std::fs::read(&path).unwrap() == std::fs::read(&again).unwrap());
}

/// The same file with another header.
fn edited(bytes: &[u8], edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    edit(&mut header);
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(&bytes[8 + length..]);
    file
}

#[test]
fn damaged_files_are_errors_that_name_file_and_key() {
    let source = tiny("bert-mean");
    let whole = packed_bytes(&source, Precision::I8, Layout::Portable);
    let panels = packed_bytes(&source, Precision::I8, Layout::X86);
    let set = |key: &str, value: Value| edited(&whole, |header| header["__metadata__"][key] = value);
    let remove = |key: &str| {
        edited(&whole, |header| {
            assert!(header["__metadata__"].as_object_mut().unwrap().remove(key).is_some());
        })
    };
    let query = "encoder.layer.0.attention.self.query.weight";
    let shape = |bytes: &[u8], name: &str, shape: Value| {
        edited(bytes, |header| {
            assert!(header[name]["shape"] != shape && header[name].is_object(), "{name}");
            header[name]["shape"] = shape;
        })
    };
    let stack = ["query", "key", "value"].map(|part| format!("encoder.layer.0.attention.self.{part}"));
    let stack = format!("{}.panels", stack.join("+"));
    let header: Value = {
        let length = u64::from_le_bytes(panels[..8].try_into().unwrap()) as usize;
        serde_json::from_slice(&panels[8..8 + length]).unwrap()
    };
    let sizes: Vec<u64> =
        header[&stack]["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).collect();
    let turned = json!([sizes[1], sizes[0], sizes[2]]);
    for (bytes, status, parts) in [
        (whole[..whole.len() - 1].to_vec(), Status::CorruptData, ["expected", "bytes by its header"]),
        (whole[..1000].to_vec(), Status::CorruptData, ["the header promises", "the file has 1000"]),
        (whole[..5].to_vec(), Status::CorruptData, ["a header of at least 8 bytes", "found 5"]),
        (set("uform.version", json!("2")), Status::Unsupported, ["uform.version", "\"2\""]),
        (set("uform.layout", json!("arm")), Status::Unsupported, ["uform.layout", "\"arm\""]),
        (set("uform.precision", json!("i4")), Status::CorruptData, ["uform.precision", "\"i4\""]),
        (set("uform.rotation", json!("[]")), Status::CorruptData, ["uform.rotation", "expected an object"]),
        (
            set("uform.rotation", json!(format!("{{\"{query}\": 2}}"))),
            Status::Unsupported,
            ["uform.rotation", query],
        ),
        (remove("uform.precision"), Status::CorruptData, ["uform.precision", "found none"]),
        (remove("uform.layout"), Status::CorruptData, ["uform.layout", "found none"]),
        (remove("config.json"), Status::NotFound, ["config.json: no such file", "packed.safetensors"]),
        (remove("tokenizer.json"), Status::NotFound, ["tokenizer.json: no such file", "packed.safetensors"]),
        (set("uform.layout", json!("x86")), Status::CorruptData, ["panels", "found none"]),
        (set("uform.precision", json!("f32")), Status::Unsupported, [query, "found I8"]),
        (shape(&whole, query, json!([1, 1024])), Status::CorruptData, [query, "expected a tensor of"]),
        (shape(&panels, &stack, turned), Status::CorruptData, [&stack, "expected a tensor of"]),
    ] {
        let (found, message) = refused(&bytes);
        assert_eq!(found, status, "{message}");
        assert!(message.contains("packed.safetensors"), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "expected {parts:?}: {message}");
    }
    let mut outside = whole.clone();
    let (header, metadata) = SafeTensors::read_metadata(&whole).unwrap();
    outside[8 + header + metadata.info(query).unwrap().data_offsets.0] = 0x80;
    let (status, message) = refused(&outside);
    assert_eq!(status, Status::CorruptData);
    assert!(message.contains(query) && message.contains("-128"), "{message}");
}

/// A file whose panels do not begin where kernels want them is read all the same.
#[test]
fn panels_out_of_line_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packed.safetensors");
    for precision in PRECISIONS {
        let bytes = packed_bytes(&tiny("bert-mean"), precision, Layout::X86);
        let expected = rows(&load_bytes(&bytes, Precision::Auto).unwrap());
        for shift in 1..=4 {
            let name = "x".repeat(shift);
            std::fs::write(&path, edited(&bytes, |header| header["__metadata__"][&name] = json!("")))
                .unwrap();
            let model = load_as(Source::Path(&path), Precision::Auto, Reading::Mapped).unwrap();
            assert!(rows(&model) == expected);
        }
    }
}

#[test]
fn destinations_are_new_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir_all(model.join("1_Pooling")).unwrap();
    for name in std::fs::read_dir(tiny("bert-mean")).unwrap().map(|entry| entry.unwrap().path()) {
        if name.is_file() {
            std::fs::copy(&name, model.join(name.file_name().unwrap())).unwrap();
        }
    }
    let pooling = "1_Pooling/config.json";
    if tiny("bert-mean").join(pooling).is_file() {
        std::fs::copy(tiny("bert-mean").join(pooling), model.join(pooling)).unwrap();
    }
    let pack =
        |to: &Path| packed(&model, to, Precision::Auto, Layout::Portable).map_err(|error| error.status);
    let before = std::fs::read(model.join("model.safetensors")).unwrap();
    for (to, status) in [
        (model.join("model.safetensors"), Status::InvalidArgument),
        (folder.path().join("packed.bin"), Status::InvalidArgument),
        (folder.path().join(".safetensors"), Status::InvalidArgument),
        (folder.path().join("nowhere/packed.safetensors"), Status::Io),
    ] {
        assert_eq!(pack(&to), Err(status), "{}", to.display());
    }
    assert_eq!(before, std::fs::read(model.join("model.safetensors")).unwrap());
    let inside = model.join("packed.safetensors");
    pack(&inside).unwrap();
    assert_eq!(
        packed(&inside, &inside, Precision::I8, Layout::Portable).unwrap_err().status,
        Status::InvalidArgument
    );
    let outside = folder.path().join("model.safetensors");
    std::fs::write(&outside, "old").unwrap();
    pack(&outside).unwrap();
    let expected = rows(&support::load(&model));
    for path in [&model.join("model.safetensors"), &inside, &outside] {
        assert!(rows(&support::load(path)) == expected, "{}", path.display());
    }
    // A model that does not load is not packed, and what was there stays.
    std::fs::write(model.join("tokenizer.json"), "{").unwrap();
    assert_eq!(pack(&outside), Err(Status::CorruptData));
    assert!(rows(&support::load(&outside)) == expected);
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "what was begun is removed");
}

/// Their tensors would have the same names in the file.
#[test]
fn modules_that_share_a_folder_are_not_packed() {
    let source = tiny("bert-mean");
    let read = |name: &str| std::fs::read(source.join(name)).unwrap();
    let edit = |name: &str, edit: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_slice(&read(name)).unwrap();
        edit(&mut value);
        value.to_string().into_bytes()
    };
    let zeros = vec![0u8; 32 * 32 * 4];
    let checkpoint = read("model.safetensors");
    let mut tensors = SafeTensors::deserialize(&checkpoint).unwrap().tensors();
    for (name, shape) in [("linear.weight", vec![32, 32]), ("linear.bias", vec![32])] {
        let bytes = shape.iter().product::<usize>() * 4;
        let view = safetensors::tensor::TensorView::new(Dtype::F32, shape, &zeros[..bytes]).unwrap();
        tensors.push((name.to_owned(), view));
    }
    let files = [
        ("model.safetensors", safetensors::serialize(tensors, None).unwrap()),
        ("tokenizer.json", read("tokenizer.json")),
        ("1_Pooling/config.json", read("1_Pooling/config.json")),
        (
            "config.json",
            edit("config.json", &|config| {
                (config["in_features"], config["out_features"]) = (json!(32), json!(32));
            }),
        ),
        (
            "modules.json",
            edit("modules.json", &|modules| {
                let dense = json!({"path": "", "type": "sentence_transformers.models.Dense"});
                modules.as_array_mut().unwrap().insert(2, dense);
            }),
        ),
    ];
    let named: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    load_as(Source::Files(&named), Precision::Auto, Reading::Sequential).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packed.safetensors");
    let error = Model::pack(Source::Files(&named), &path, &PackOptions::default()).unwrap_err();
    assert_eq!(error.status, Status::Unsupported);
    assert!(error.message.contains("modules.json: path: ") && error.message.contains("twice"), "{error}");
    assert!(!path.exists());
}
