//! Packing: a model's files become one, as `packed` reads it.
//!
//! The header is planned first, so that every tensor has its place; then the tensors are made one after the other and
//! written there, so that no more of them is in memory than one linear layer.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use half::{bf16, f16};
use safetensors::Dtype;
use serde_json::{Map, Value};

use crate::base::{self, Error, Matrix, Result, Status, err};
use crate::ops::linear::quantize;
use crate::system::pages::ALIGNMENT;

use super::bert::{self, Contents};
use super::header::{Planned, written};
use super::model::{Model, Opened, Precision};
use super::packed::{LAYOUT_KEY, Layout, PRECISION_KEY, ROTATION_KEY, VERSION, VERSION_KEY, dtype_name};
use super::source::{Files, Reading, SUFFIX, Source};
use super::tensors::Tensors;
use super::weights::{self, scales_of, sums_of};

/// How a model is packed.
#[derive(Clone, Copy, Default)]
pub struct PackOptions {
    /// The type of the weights of its linear layers; auto is that of its files.
    pub precision: Precision,
    /// How those weights lie.
    pub layout: Layout,
}

impl Model {
    /// Writes the model at `source` to `destination` as one file, whose name ends in `.safetensors`, and which loads as what
    /// the model is in that precision, to the bit. The file appears when it is whole, instead of one that was there.
    /// `InvalidArgument` for a destination of another name or among the files of the model, `Io` where it cannot be written,
    /// `Unsupported` where modules share a folder or `source` is packed otherwise already, else the errors of [`Model::load_ram`]. Any thread.
    pub fn pack(source: Source, destination: &Path, options: &PackOptions) -> Result<()> {
        options.layout.check("layout")?;
        let files = Files::find(source)?.recorded();
        check_destination(&files, destination)?;
        let opened = Opened::read(&files, Reading::Sequential)?;
        // Not kept: what does not load is not packed, and what was read is known now.
        opened.surroundings(&files, Reading::Sequential, &[])?;
        let dtype = options.precision.dtype().unwrap_or(opened.tensors.stored_dtype());
        if let Some(format) = opened.tensors.format() {
            format.allow(dtype)?;
            if format.layout != Layout::Portable && options.layout != format.layout {
                let (name, layout) = (files.place(), format.layout.name());
                return err!(
                    Unsupported,
                    "{name}: layout: expected {layout}, as which it is packed, found {}; pack the model's directory",
                    options.layout.name()
                );
            }
        }
        Packer::new(&files, &opened, dtype, options.layout)?.write(destination)
    }
}

/// The destination has the name of a file of weights, and is none of the files that are read.
fn check_destination(files: &Files, destination: &Path) -> Result<()> {
    let shown = destination.display();
    let name = destination.file_name().unwrap_or_default();
    if !name.as_encoded_bytes().ends_with(SUFFIX.as_bytes()) || name.len() == SUFFIX.len() {
        return err!(InvalidArgument, "destination: expected a name that ends in {SUFFIX}, found {shown}");
    }
    if destination.is_dir() {
        return err!(InvalidArgument, "destination: expected a file, found the directory {shown}");
    }
    let Some(source) = files.path().and_then(|path| path.canonicalize().ok()) else { return Ok(()) };
    let Ok(folder) = folder_of(destination).canonicalize() else { return Ok(()) };
    if destination.exists() && folder.join(name).starts_with(source) {
        return err!(InvalidArgument, "destination: expected no file of the model itself, found {shown}");
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What is written, and from where.
struct Packer<'t, 'a> {
    folder: &'t str,
    tensors: &'t Tensors<'a>,
    contents: Contents,
    /// The modules behind the transformer that have weights, by their folders.
    modules: Vec<(String, Tensors<'a>)>,
    dtype: base::Dtype,
    layout: Layout,
    texts: BTreeMap<String, String>,
    planned: Vec<Planned>,
}

/// The type of that name in files.
fn stored(dtype: base::Dtype) -> Dtype {
    match dtype {
        base::Dtype::Bf16 => Dtype::BF16,
        base::Dtype::F16 => Dtype::F16,
        base::Dtype::I8 => Dtype::I8,
        _ => Dtype::F32,
    }
}

impl<'t, 'a> Packer<'t, 'a> {
    fn new(files: &Files<'a>, opened: &'t Opened<'a>, dtype: base::Dtype, layout: Layout) -> Result<Self> {
        let found = files.found();
        let mut texts = BTreeMap::new();
        for (name, bytes) in found.texts {
            // The list of shards belongs to files that are not there any more.
            if name.ends_with(".safetensors.index.json") {
                continue;
            }
            let Ok(text) = String::from_utf8(bytes) else {
                return err!(CorruptData, "{name}: expected UTF-8, found other bytes");
            };
            texts.insert(name, text);
        }
        for (key, value) in
            [(VERSION_KEY, VERSION), (PRECISION_KEY, dtype_name(dtype)), (LAYOUT_KEY, layout.name())]
        {
            texts.insert(key.to_owned(), value.to_owned());
        }
        let mut folders = found.folders;
        folders.sort();
        if let Some(pair) = folders.windows(2).find(|pair| pair[0] == pair[1]) {
            return err!(
                Unsupported,
                "modules.json: path: expected a folder for each module with weights, found {:?} twice",
                pair[0]
            );
        }
        let others = folders.into_iter().filter(|folder| *folder != opened.folder);
        let open = |folder: String| {
            let tensors = Tensors::open(files, &folder, Reading::Sequential)?;
            Ok((folder, tensors))
        };
        let modules = others.map(open).collect::<Result<Vec<_>>>()?;
        let (folder, tensors) = (&opened.folder[..], &opened.tensors);
        let contents = bert::contents(&opened.shape, opened.architecture.layout, tensors, dtype)?;
        let mut packer =
            Self { folder, tensors, contents, modules, dtype, layout, texts, planned: Vec::new() };
        packer.plan()?;
        Ok(packer)
    }

    /// Lists the tensors with their places.
    fn plan(&mut self) -> Result<()> {
        let mut planned = Vec::new();
        let folder = self.folder;
        let mut add = |folder: &str, name: &str, dtype: Dtype, shape: &[usize]| {
            planned.push(Planned { name: format!("{folder}{name}"), dtype, shape: shape.to_vec() });
        };
        for map in &self.contents.maps {
            let quantized = self.dtype == base::Dtype::I8;
            if self.layout == Layout::X86 {
                let name = map.panels();
                add(folder, &name, Dtype::U32, &map.panels_shape());
                if quantized {
                    add(folder, &scales_of(&name), Dtype::F32, &[map.all_outputs()]);
                    add(folder, &sums_of(&name), Dtype::I32, &[map.all_outputs()]);
                }
                continue;
            }
            for name in map.weights() {
                add(folder, &name, stored(self.dtype), &[map.outputs, map.inputs]);
                if quantized {
                    add(folder, &scales_of(&name), Dtype::F32, &[map.outputs]);
                }
            }
        }
        for (name, shape) in &self.contents.others {
            let (dtype, shape) = self.tensors.shape(name, Some(shape))?;
            add(folder, name, dtype, shape);
        }
        for (folder, tensors) in &self.modules {
            for name in tensors.floats() {
                let (dtype, shape) = tensors.shape(name, None)?;
                add(folder, name, dtype, shape);
            }
        }
        // Panels are whole multiples of the alignment, so that they keep it when they come first; behind them wider elements
        // come before narrower ones, so that all have theirs.
        let order =
            |planned: &Planned| (planned.dtype != Dtype::U32, std::cmp::Reverse(planned.dtype.bitsize()));
        planned
            .sort_by(|left, right| order(left).cmp(&order(right)).then_with(|| left.name.cmp(&right.name)));
        self.planned = planned;
        self.texts.extend(self.rotations()?);
        Ok(())
    }

    /// What the metadata says of rotated inputs.
    fn rotations(&self) -> Result<Option<(String, String)>> {
        let mut rotations = Map::new();
        for map in &self.contents.maps {
            let rotation = map.packing_in(self.tensors)?.rotation(map.inputs);
            let names = match self.layout {
                Layout::Portable => map.weights().collect(),
                Layout::X86 => vec![map.panels()],
            };
            let rotated = names.into_iter().filter(|_| rotation > 1);
            rotations.extend(rotated.map(|name| (format!("{}{name}", self.folder), Value::from(rotation))));
        }
        let found = !rotations.is_empty();
        Ok(found.then(|| (ROTATION_KEY.to_owned(), Value::Object(rotations).to_string())))
    }

    fn write(&self, destination: &Path) -> Result<()> {
        let header =
            written(&destination.display().to_string(), &self.texts, &self.planned, ALIGNMENT as u64)?;
        let mut output = Output::create(destination, &header, &self.planned)?;
        for map in &self.contents.maps {
            match self.layout {
                Layout::Portable => self.write_weights(map, &mut output)?,
                Layout::X86 => self.write_panels(map, &mut output)?,
            }
        }
        for (name, _) in &self.contents.others {
            output.copy(self.folder, self.tensors, name)?;
        }
        for (folder, tensors) in &self.modules {
            for name in tensors.floats() {
                output.copy(folder, tensors, name)?;
            }
        }
        output.finish(destination)
    }

    fn write_panels(&self, map: &weights::Map, output: &mut Output) -> Result<()> {
        let linear = map.read(self.tensors, &[])?;
        let name = format!("{}{}", self.folder, map.panels());
        output.put(&name, linear.panels())?;
        if let Some(scales) = linear.scales() {
            output.put(&scales_of(&name), &bytes_of(&scales.weights, |scale| scale.to_le_bytes()))?;
            output.put(&sums_of(&name), &bytes_of(&scales.sums, |sum| sum.to_le_bytes()))?;
        }
        Ok(())
    }

    fn write_weights(&self, map: &weights::Map, output: &mut Output) -> Result<()> {
        for tensor in map.weights() {
            let name = format!("{}{tensor}", self.folder);
            // Numbers stay the same numbers.
            if self.tensors.format().is_some_and(|format| format.dtype == base::Dtype::I8) {
                output.copy(self.folder, self.tensors, &tensor)?;
                output.copy(self.folder, self.tensors, &scales_of(&tensor))?;
                continue;
            }
            let weight = self.tensors.matrix(&tensor, map.outputs, map.inputs)?;
            let bytes = match self.dtype {
                base::Dtype::Bf16 => bytes_of(&weight, |value| bf16::from_f32(*value).to_le_bytes()),
                base::Dtype::F16 => bytes_of(&weight, |value| f16::from_f32(*value).to_le_bytes()),
                base::Dtype::I8 => {
                    let weight = Matrix::dense(&weight, map.outputs, map.inputs);
                    let (numbers, scales) = quantize(map.packing, weight);
                    output.put(&scales_of(&name), &bytes_of(&scales, |scale| scale.to_le_bytes()))?;
                    bytes_of(&numbers, |number| (*number as i8).to_le_bytes())
                }
                _ => bytes_of(&weight, |value| value.to_le_bytes()),
            };
            output.put(&name, &bytes)?;
        }
        Ok(())
    }
}

fn bytes_of<T, const N: usize>(values: &[T], bytes: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(bytes).collect()
}

/// A file that is being written beside its destination.
struct Output {
    file: File,
    path: PathBuf,
    /// Where the tensors go that were not written yet, and how many bytes each has.
    places: HashMap<String, (u64, usize)>,
    moved: bool,
}

/// The sentence of a system's error.
fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::new(Status::Io, format!("{}: {error}", path.display()))
}

impl Output {
    fn create(destination: &Path, header: &[u8], planned: &[Planned]) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut name = OsString::from(".");
        name.push(destination.file_name().unwrap_or_default());
        let (process, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        name.push(format!(".{process}-{number}.partial"));
        let path = folder_of(destination).join(name);
        let file = File::options().write(true).create_new(true).open(&path).map_err(failed(&path))?;
        let mut output = Self { file, path, places: HashMap::new(), moved: false };
        let mut offset = header.len() as u64;
        for tensor in planned {
            let bytes = tensor.bytes().unwrap_or(usize::MAX);
            output.places.insert(tensor.name.clone(), (offset, bytes));
            offset += bytes as u64;
        }
        output.file.set_len(offset).map_err(failed(destination))?;
        output.file.write_all(header).map_err(failed(destination))?;
        Ok(output)
    }

    /// Goes to where a tensor belongs, which has so many bytes.
    fn seek(&mut self, name: &str) -> Result<usize> {
        let Some((offset, bytes)) = self.places.remove(name) else {
            return err!(Internal, "{name}: written twice or never planned");
        };
        self.file.seek(SeekFrom::Start(offset)).map_err(failed(&self.path))?;
        Ok(bytes)
    }

    /// Writes a tensor.
    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let expected = self.seek(name)?;
        if bytes.len() != expected {
            return err!(Internal, "{name}: {expected} bytes were planned, and {} made", bytes.len());
        }
        self.file.write_all(bytes).map_err(failed(&self.path))
    }

    /// Writes a tensor as it stands in the files of the model.
    fn copy(&mut self, folder: &str, tensors: &Tensors, tensor: &str) -> Result<()> {
        self.seek(&format!("{folder}{tensor}"))?;
        tensors.copy(tensor, |bytes| self.file.write_all(bytes).map_err(failed(&self.path)))
    }

    /// Makes the file appear at its destination.
    fn finish(mut self, destination: &Path) -> Result<()> {
        if let Some(name) = self.places.keys().next() {
            return err!(Internal, "{name}: planned and never written");
        }
        self.file.sync_all().map_err(failed(&self.path))?;
        std::fs::rename(&self.path, destination).map_err(failed(destination))?;
        self.moved = true;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.moved {
            // What cannot be removed is told by nobody: there is an error on its way already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
