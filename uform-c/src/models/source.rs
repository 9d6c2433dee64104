//! Where the files of a model are: a directory, a packed file, a name in the local Hugging Face cache, or bytes of the
//! caller.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
#[cfg(not(target_family = "wasm"))]
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::{Error, Result, Status, err};
use crate::system::memory::Memory;

use super::packed::{Packed, Place};

/// What the names of files of weights end in.
pub(super) const SUFFIX: &str = ".safetensors";

/// Configurations above 16 MiB are refused: the largest known ones have some 100 KB.
const LARGEST_CONFIGURATION: u64 = 16 << 20;

/// `tokenizer.json` and `model.safetensors.index.json` above 256 MiB are refused: the largest known ones have some 35 MB.
const LARGEST_LIST: u64 = 256 << 20;

/// The most bytes that a text file of that name may have.
fn largest(name: &str) -> u64 {
    match name.rsplit('/').next() {
        Some("tokenizer.json" | "model.safetensors.index.json") => LARGEST_LIST,
        _ => LARGEST_CONFIGURATION,
    }
}

/// Where to load a model from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A directory, the `model.safetensors` inside one, a packed file whose name ends in `.safetensors`, or, when nothing has
    /// that path, a name such as `sentence-transformers/all-MiniLM-L6-v2` in the local Hugging Face cache.
    Path(&'a Path),
    /// The files of a model directory by their path inside it, as `1_Pooling/config.json`, with their bytes; or one packed
    /// file under any name.
    Files(&'a [(&'a str, &'a [u8])]),
}

/// How weights are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Reading {
    /// Read into memory; a file that shrinks meanwhile is an error.
    #[default]
    Sequential = 0,
    /// Mapped into memory; the caller sees to it that the file stays as it is while the model lives.
    Mapped = 1,
}

impl Reading {
    /// The way of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Sequential, Self::Mapped].into_iter().find(|reading| *reading as u32 == number)
    }
}

/// The files of one model.
pub(super) enum Files<'a> {
    Folder(PathBuf),
    Memory(&'a [(&'a str, &'a [u8])]),
    Packed(Box<Packed<'a>>),
    /// Others, and what was found among them.
    Recorded(Box<Files<'a>>, Mutex<Found>),
}

/// The files that a model was read from.
#[derive(Default)]
pub(super) struct Found {
    /// Text files by their path.
    pub(super) texts: BTreeMap<String, Vec<u8>>,
    /// Folders whose weights were opened, as often as they were, each empty or ending in a slash.
    pub(super) folders: Vec<String>,
}

/// One file of weights, read by position.
pub(super) enum Blob<'a> {
    File {
        file: File,
        length: u64,
    },
    #[cfg(not(target_family = "wasm"))]
    Map(Arc<memmap2::Mmap>),
    Bytes(&'a [u8]),
}

impl<'a> Files<'a> {
    /// Finds the files of `source`.
    pub(super) fn find(source: Source<'a>) -> Result<Self> {
        match source {
            Source::Files([]) => err!(InvalidArgument, "expected the files of a model, found none"),
            Source::Files(files) => {
                for (index, (name, _)) in files.iter().enumerate() {
                    inside(name)?;
                    if files[..index].iter().any(|(earlier, _)| earlier == name) {
                        return err!(InvalidArgument, "expected each file once, found {name:?} twice");
                    }
                }
                if let [(name, bytes)] = files
                    && let Some(packed) = Packed::find(name, Place::Bytes(bytes))?
                {
                    return Ok(Self::Packed(Box::new(packed)));
                }
                Ok(Self::Memory(files))
            }
            Source::Path(path) if path.is_dir() => Ok(Self::Folder(path.to_owned())),
            Source::Path(path) if path.exists() => match packed_at(path)? {
                Some(packed) => Ok(Self::Packed(Box::new(packed))),
                None => folder_of(path),
            },
            Source::Path(path) => super::hub::find(path).map(Self::Folder),
        }
    }

    /// The bytes of a text file, or nothing where there is none of that name.
    pub(super) fn text(&self, name: &str) -> Result<Option<Vec<u8>>> {
        inside(name)?;
        let most = largest(name);
        let check = |length: u64| match length <= most {
            true => Ok(()),
            false => err!(CorruptData, "{name}: expected at most {most} bytes, found {length}"),
        };
        match self {
            Self::Recorded(files, found) => {
                let text = files.text(name)?;
                if let Some(bytes) = &text {
                    locked(found).texts.insert(name.to_owned(), bytes.clone());
                }
                Ok(text)
            }
            Self::Packed(packed) => {
                let Some(text) = packed.text(name) else { return Ok(None) };
                check(text.len() as u64)?;
                Ok(Some(text.as_bytes().to_vec()))
            }
            Self::Memory(files) => {
                let Some(bytes) = find_bytes(files, name) else { return Ok(None) };
                check(bytes.len() as u64)?;
                Ok(Some(bytes.to_vec()))
            }
            Self::Folder(folder) => {
                let Some((file, length)) = open(&folder.join(name), name)? else { return Ok(None) };
                check(length)?;
                let mut bytes = Vec::new();
                match file.take(most).read_to_end(&mut bytes) {
                    Ok(_) => Ok(Some(bytes)),
                    Err(error) => err!(Io, "{name}: {error}"),
                }
            }
        }
    }

    /// Whether there is a file of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::Memory(files) => find_bytes(files, name).is_some(),
            Self::Folder(folder) => inside(name).is_ok() && folder.join(name).is_file(),
            Self::Packed(packed) => packed.text(name).is_some(),
            Self::Recorded(files, _) => files.has(name),
        }
    }

    /// The packed file that stands for all files, where there is one.
    pub(super) fn packed(&self) -> Option<&Packed<'a>> {
        match self {
            Self::Packed(packed) => Some(packed),
            Self::Recorded(files, _) => files.packed(),
            Self::Folder(_) | Self::Memory(_) => None,
        }
    }

    /// The directory of the files or the packed file, where there is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(folder),
            Self::Memory(_) => None,
            Self::Packed(packed) => packed.path(),
            Self::Recorded(files, _) => files.path(),
        }
    }

    /// These files, with a record of those that are read from now on.
    pub(super) fn recorded(self) -> Self {
        Self::Recorded(Box::new(self), Mutex::default())
    }

    /// Records that the weights of a folder are read.
    pub(super) fn note(&self, folder: &str) {
        if let Self::Recorded(_, found) = self {
            locked(found).folders.push(folder.to_owned());
        }
    }

    /// What was recorded.
    pub(super) fn found(&self) -> Found {
        match self {
            Self::Recorded(_, found) => std::mem::take(&mut locked(found)),
            _ => Found::default(),
        }
    }

    /// Opens a file of weights, or nothing where there is none of that name.
    pub(super) fn blob(&self, name: &str, reading: Reading) -> Result<Option<Blob<'a>>> {
        inside(name)?;
        match self {
            Self::Memory(files) => Ok(find_bytes(files, name).map(Blob::Bytes)),
            Self::Folder(folder) => blob_of(&folder.join(name), name, reading),
            // Its tensors are not those of a file of its own.
            Self::Packed(_) => Ok(None),
            Self::Recorded(files, _) => files.blob(name, reading),
        }
    }

    /// What messages call the place.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            Self::Memory(files) => format!("the {} files given", files.len()),
            Self::Packed(packed) => packed.name().to_owned(),
            Self::Recorded(files, _) => files.place(),
        }
    }
}

fn locked(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the file of weights at that path, or nothing where there is none.
pub(super) fn blob_of<'a>(path: &Path, name: &str, reading: Reading) -> Result<Option<Blob<'a>>> {
    let Some((file, length)) = open(path, name)? else { return Ok(None) };
    match reading {
        Reading::Sequential => Ok(Some(Blob::File { file, length })),
        Reading::Mapped => map(&file, name).map(Some),
    }
}

/// The packed file of that path, or nothing where it is another one. That of a directory may be damaged: reading the
/// directory will tell.
fn packed_at<'a>(path: &Path) -> Result<Option<Packed<'a>>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.ends_with(SUFFIX) {
        return Ok(None);
    }
    match Packed::find(name, Place::Path(path.to_owned())) {
        Err(_) if name == "model.safetensors" && path.with_file_name("config.json").is_file() => Ok(None),
        found => found,
    }
}

fn find_bytes<'a>(files: &[(&str, &'a [u8])], name: &str) -> Option<&'a [u8]> {
    files.iter().find(|(path, _)| path.trim_start_matches("./") == name).map(|(_, bytes)| *bytes)
}

/// Refuses a path that leads out of the model's directory, in the spelling of any system.
pub(super) fn inside(name: &str) -> Result<()> {
    let parts_inside =
        Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let windows = name.contains('\\') || name.contains(':');
    if name.is_empty() || name.contains('\0') || name.starts_with('/') || windows || !parts_inside {
        return err!(CorruptData, "expected a path inside the model's directory, found {name:?}");
    }
    Ok(())
}

/// The directory around a file of weights that was named.
fn folder_of<'a>(path: &Path) -> Result<Files<'a>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name != "model.safetensors" && name != "model.safetensors.index.json" {
        let expected = "expected a model's directory, its model.safetensors or a packed model";
        return err!(InvalidArgument, "{}: {expected}, found another file", path.display());
    }
    // Only a whole path has all its parents; where it cannot be had, the file is looked at where it is.
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = whole.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match folder.parent() {
        Some(parent) if is_transformer_of(parent, folder) => Ok(Files::Folder(parent.to_owned())),
        _ => Ok(Files::Folder(folder.to_owned())),
    }
}

/// Whether the `modules.json` in `parent` lists `folder` as its transformer, so that the model is more than that.
fn is_transformer_of(parent: &Path, folder: &Path) -> bool {
    let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { return false };
    let list = Files::Folder(parent.to_owned()).text("modules.json").ok().flatten();
    let list = list.and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    list.as_ref().and_then(|list| list.as_array()).into_iter().flatten().any(|module| {
        let text = |key: &str| module[key].as_str().unwrap_or_default();
        text("path").trim_end_matches('/') == name && text("type").rsplit('.').next() == Some("Transformer")
    })
}

fn open(path: &Path, name: &str) -> Result<Option<(File, u64)>> {
    // What it is comes first: to open a named pipe would wait for a writer.
    let opened = std::fs::metadata(path).and_then(|metadata| match metadata.is_file() {
        true => File::open(path).and_then(|file| Ok(Some((file.metadata()?.len(), file)))),
        false => Ok(None),
    });
    match opened {
        Ok(Some((length, file))) => Ok(Some((file, length))),
        Ok(None) => err!(CorruptData, "{name}: expected a file, found something else in {}", path.display()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => err!(Io, "{}: {error}", path.display()),
    }
}

#[cfg(not(target_family = "wasm"))]
fn map<'a>(file: &File, name: &str) -> Result<Blob<'a>> {
    // SAFETY: mapping is chosen by the caller, who thereby promises that the file stays as it is (`Reading::Mapped`).
    match unsafe { memmap2::Mmap::map(file) } {
        Ok(map) => Ok(Blob::Map(Arc::new(map))),
        Err(error) => err!(Io, "{name}: could not be mapped: {error}"),
    }
}

#[cfg(target_family = "wasm")]
fn map<'a>(_: &File, name: &str) -> Result<Blob<'a>> {
    err!(Unsupported, "{name}: files cannot be mapped on this system")
}

impl Blob<'_> {
    /// Bytes in the file when it was opened.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::File { length, .. } => *length,
            #[cfg(not(target_family = "wasm"))]
            Self::Map(map) => map.len() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Words in place, where the file is mapped and they are aligned.
    pub(super) fn memory(&self, offset: u64, bytes: usize, alignment: usize) -> Option<Memory> {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Self::Map(map) => Memory::mapped(map, offset, bytes, alignment),
            _ => {
                let _ = (offset, bytes, alignment);
                None
            }
        }
    }

    /// The bytes from `offset` on, as many as `output` has. Any thread.
    pub(super) fn read(&self, name: &str, offset: u64, output: &mut [u8]) -> Result<()> {
        let expected = offset.saturating_add(output.len() as u64);
        let short = || {
            Error::new(
                Status::CorruptData,
                format!("{name}: expected at least {expected} bytes, found fewer"),
            )
        };
        let memory = match self {
            Self::File { file, .. } => {
                return match read_exact_at(file, offset, output) {
                    Ok(()) => Ok(()),
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(short()),
                    Err(error) => err!(Io, "{name}: {error}"),
                };
            }
            #[cfg(not(target_family = "wasm"))]
            Self::Map(map) => &map[..],
            Self::Bytes(bytes) => bytes,
        };
        let start = usize::try_from(offset).map_err(|_| short())?;
        let end = start.checked_add(output.len()).ok_or_else(short)?;
        output.copy_from_slice(memory.get(start..end).ok_or_else(short)?);
        Ok(())
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, output: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, output, offset)
}

#[cfg(not(unix))]
fn read_exact_at(file: &File, offset: u64, output: &mut [u8]) -> std::io::Result<()> {
    use std::io::{Seek, SeekFrom};
    // A clone shares the position, so that only one thread may read here at a time.
    static ONE_READER: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _guard = ONE_READER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut file = file;
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_are_refused() {
        for name in
            ["../a", "/a", "a/../../b", "..", "", "C:\\a", "a\\..\\b", "a\0b", "\\\\host\\share", "c:a"]
        {
            assert_eq!(inside(name).unwrap_err().status, Status::CorruptData, "{name:?}");
        }
        for name in ["a", "1_Pooling/config.json", "./a", "a..b"] {
            inside(name).unwrap();
        }
    }

    #[test]
    fn bytes_by_name() {
        let files = [("config.json", &b"{}"[..]), ("1_Pooling/config.json", &b"{ }"[..])];
        let found = Files::find(Source::Files(&files)).unwrap();
        assert_eq!(found.text("1_Pooling/config.json").unwrap().unwrap(), b"{ }");
        assert!(found.text("modules.json").unwrap().is_none());
        assert!(Files::find(Source::Files(&[])).is_err());
        assert!(Files::find(Source::Files(&[("a", b""), ("a", b"")])).is_err());
    }

    #[test]
    fn what_is_no_file_or_too_large_is_refused() {
        let folder = std::env::temp_dir().join(format!("uform-no-files-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("config.json")).unwrap();
        let large = std::fs::File::create(folder.join("modules.json")).unwrap();
        large.set_len(LARGEST_CONFIGURATION + 1).unwrap();
        let files = Files::Folder(folder.clone());
        for name in ["config.json", "modules.json"] {
            let error = files.text(name).unwrap_err();
            assert_eq!(error.status, Status::CorruptData);
            assert!(error.message.starts_with(&format!("{name}: expected ")), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(largest("0_Transformer/tokenizer.json") > largest("0_Transformer/config.json"));
    }

    #[test]
    #[cfg(unix)]
    fn a_named_pipe_does_not_block() {
        let folder = std::env::temp_dir().join(format!("uform-pipe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = std::ffi::CString::new(folder.join("config.json").to_str().unwrap()).unwrap();
        // SAFETY: the path is a string that ends in a zero byte.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        let error = Files::Folder(folder.clone()).text("config.json").unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(error.status, Status::CorruptData);
    }

    #[test]
    fn weights_of_a_listed_transformer_stand_for_the_whole_model() {
        let folder = std::env::temp_dir().join(format!("uform-listed-{}", std::process::id()));
        for inner in ["0_Transformer", "other"] {
            std::fs::create_dir_all(folder.join(inner)).unwrap();
            std::fs::write(folder.join(inner).join("model.safetensors"), b"").unwrap();
        }
        let list = r#"[{"path": "0_Transformer/", "type": "sentence_transformers.models.Transformer"}]"#;
        std::fs::write(folder.join("modules.json"), list).unwrap();
        let found = |inner: &str| match folder_of(&folder.join(inner).join("model.safetensors")).unwrap() {
            Files::Folder(found) => found,
            _ => panic!("a folder was expected"),
        };
        let (listed, other) = (found("0_Transformer"), found("other"));
        let expected = std::path::absolute(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((listed, other), (expected.clone(), expected.join("other")));
    }

    #[test]
    fn a_file_that_shrank_is_an_error() {
        let path = std::env::temp_dir().join(format!("uform-shrinking-{}", std::process::id()));
        std::fs::write(&path, [0; 64]).unwrap();
        let blob = Blob::File { file: File::open(&path).unwrap(), length: 64 };
        std::fs::write(&path, [0; 10]).unwrap();
        let error = blob.read("model.safetensors", 0, &mut [0; 64]).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.status, Status::CorruptData);
        assert!(error.message.contains("model.safetensors"), "{error}");
    }
}
