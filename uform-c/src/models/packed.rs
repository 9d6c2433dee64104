//! Packed models: one safetensors file with the weights of all modules and, in its metadata, the other files of the model's
//! directory, each under its path there. ARCHITECTURE.md describes the format; `pack` writes it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Dtype, Result, err};

use super::header::Header;
use super::json::Keys;
use super::source::{Blob, Reading, SUFFIX, blob_of};

/// What the keys of the metadata begin with that are not paths of files.
const PREFIX: &str = "uform.";
/// The key by which a packed file is known, and its only value.
pub(super) const VERSION_KEY: &str = "uform.version";
pub(super) const VERSION: &str = "1";
/// The type of the weights of the encoder's linear layers.
pub(super) const PRECISION_KEY: &str = "uform.precision";
/// How those weights lie: [`Layout`].
pub(super) const LAYOUT_KEY: &str = "uform.layout";
/// For weights in i8, as a JSON object: how many inputs of which tensor are rotated together, where any are.
pub(super) const ROTATION_KEY: &str = "uform.rotation";

/// How the weights of linear layers lie in a packed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Layout {
    /// As their library names and shapes them; every machine packs them anew when it loads them.
    #[default]
    Portable = 0,
    /// As the kernels of all x86 classes read them.
    X86 = 1,
}

impl Layout {
    /// The layout of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Portable, Self::X86].into_iter().find(|layout| *layout as u32 == number)
    }

    /// Its name in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::X86 => "x86",
        }
    }

    /// An error unless kernels of this machine's family read it.
    pub(super) fn check(self, place: &str) -> Result<()> {
        if self == Self::Portable || cfg!(target_arch = "x86_64") {
            return Ok(());
        }
        let (name, family) = (self.name(), std::env::consts::ARCH);
        err!(Unsupported, "{place}: expected portable on {family}, found {name}; pack the model as portable")
    }
}

/// The names in files of the types that weights are packed in.
const DTYPES: [(&str, Dtype); 4] =
    [("f32", Dtype::F32), ("bf16", Dtype::Bf16), ("f16", Dtype::F16), ("i8", Dtype::I8)];

/// The name of a type that weights are packed in.
pub(super) fn dtype_name(dtype: Dtype) -> &'static str {
    DTYPES.iter().find(|(_, known)| *known == dtype).map_or("", |(name, _)| name)
}

/// How the weights of a packed file are stored.
#[derive(Clone)]
pub(super) struct Format {
    /// f32, bf16, f16 or i8.
    pub(super) dtype: Dtype,
    pub(super) layout: Layout,
    /// What messages call the file.
    file: String,
    /// What stands before the names of tensors.
    folder: String,
    /// Inputs that are rotated together, by the tensors where any are.
    rotation: Arc<HashMap<String, usize>>,
}

impl Format {
    fn read(file: &str, texts: &HashMap<String, String>) -> Result<Self> {
        let text = |key: &str| texts.get(key).map(String::as_str);
        let shown = |found: Option<&str>| found.map_or("none".to_owned(), |found| format!("{found:?}"));
        let version = text(VERSION_KEY);
        if version != Some(VERSION) {
            let found = shown(version);
            return err!(Unsupported, "{file}: {VERSION_KEY}: expected {VERSION:?}, found {found}");
        }
        let precision = text(PRECISION_KEY);
        let Some((_, dtype)) = DTYPES.iter().find(|(name, _)| Some(*name) == precision) else {
            let found = shown(precision);
            return err!(
                CorruptData,
                "{file}: {PRECISION_KEY}: expected f32, bf16, f16 or i8, found {found}"
            );
        };
        let layout = match text(LAYOUT_KEY) {
            Some("portable") => Layout::Portable,
            Some("x86") => Layout::X86,
            Some(other) => {
                let advice = "pack the model as portable";
                return err!(
                    Unsupported,
                    "{file}: {LAYOUT_KEY}: expected portable or x86, found {other:?}; {advice}"
                );
            }
            None => return err!(CorruptData, "{file}: {LAYOUT_KEY}: expected portable or x86, found none"),
        };
        layout.check(&format!("{file}: {LAYOUT_KEY}"))?;
        let mut rotation = HashMap::new();
        if let Some(listed) = text(ROTATION_KEY) {
            let keys = Keys::parse(&format!("{file}: {ROTATION_KEY}"), listed.as_bytes())?;
            for name in keys.names().map(str::to_owned).collect::<Vec<_>>() {
                rotation.insert(name.clone(), keys.size(&name, 1, u32::MAX as usize)?);
            }
        }
        let (file, rotation) = (file.to_owned(), Arc::new(rotation));
        Ok(Self { dtype: *dtype, layout, file, folder: String::new(), rotation })
    }

    /// The same for the tensors of one folder, which are named without it.
    pub(super) fn within(&self, folder: &str) -> Self {
        Self { folder: folder.to_owned(), ..self.clone() }
    }

    /// An error unless weights can be had in that type: numbers in i8 stand for no others, and panels are as they are.
    pub(super) fn allow(&self, asked: Dtype) -> Result<()> {
        if asked == self.dtype || (self.layout == Layout::Portable && self.dtype != Dtype::I8) {
            return Ok(());
        }
        let (file, layout, own) = (&self.file, self.layout.name(), dtype_name(self.dtype));
        let asked = dtype_name(asked);
        err!(
            Unsupported,
            "{file}: precision: expected auto or {own}, in which it is packed as {layout}, found {asked}; load the \
             model's directory, or pack it in that precision"
        )
    }

    /// Whether the inputs of that tensor are rotated. `Unsupported` where other than `expected` inputs are rotated together.
    pub(super) fn is_rotated(&self, tensor: &str, expected: usize) -> Result<bool> {
        let tensor = format!("{}{tensor}", self.folder);
        match self.rotation.get(&tensor) {
            None | Some(1) => Ok(false),
            Some(found) if *found == expected => Ok(true),
            Some(found) => {
                let file = &self.file;
                err!(Unsupported, "{file}: {ROTATION_KEY}: {tensor}: expected {expected}, found {found}")
            }
        }
    }
}

/// Where a packed file is.
#[derive(Clone)]
pub(super) enum Place<'a> {
    Path(PathBuf),
    Bytes(&'a [u8]),
}

/// A packed file whose header was read.
pub(super) struct Packed<'a> {
    name: String,
    place: Place<'a>,
    header: Header,
    format: Format,
}

impl<'a> Packed<'a> {
    /// Reads the header of a safetensors file; nothing when it is none of a packed model.
    pub(super) fn find(name: &str, place: Place<'a>) -> Result<Option<Self>> {
        let blob = blob_at(name, &place, Reading::Sequential)?;
        let header = match Header::read(name, &blob) {
            Ok(header) => header,
            // Some other file, under a name that promises nothing.
            Err(_) if !name.ends_with(SUFFIX) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(texts) = header.metadata.metadata().as_ref().filter(|texts| texts.contains_key(VERSION_KEY))
        else {
            return Ok(None);
        };
        let format = Format::read(name, texts)?;
        Ok(Some(Self { name: name.to_owned(), place, header, format }))
    }

    /// The text of a file of the model's directory.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let texts = self.header.metadata.metadata().as_ref()?;
        texts.get(name).filter(|_| !name.starts_with(PREFIX)).map(String::as_str)
    }

    /// Opens the file to read its tensors.
    pub(super) fn blob(&self, reading: Reading) -> Result<Blob<'a>> {
        let blob = blob_at(&self.name, &self.place, reading)?;
        self.header.check(&self.name, blob.length())?;
        Ok(blob)
    }

    /// What messages call the file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn format(&self) -> &Format {
        &self.format
    }

    /// The path of the file, where it has one.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Path(path) => Some(path),
            Place::Bytes(_) => None,
        }
    }
}

fn blob_at<'a>(name: &str, place: &Place<'a>, reading: Reading) -> Result<Blob<'a>> {
    match place {
        Place::Bytes(bytes) => Ok(Blob::Bytes(bytes)),
        Place::Path(path) => match blob_of(path, name, reading)? {
            Some(blob) => Ok(blob),
            None => err!(NotFound, "{}: no such file", path.display()),
        },
    }
}
