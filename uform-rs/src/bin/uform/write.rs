//! Vectors into files: NumPy's format, or JSON lines.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use half::{bf16, f16};
use serde_json::json;
use uform::{Dtype, Embeddings, Status};

use super::failure::{Failure, Outcome};

/// How vectors lie in the output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One array in NumPy's format
    Npy,
    /// One JSON object a line
    Jsonl,
}

/// Where vectors go.
pub(crate) enum Output {
    Npy(Npy),
    Jsonl(Jsonl),
}

impl Output {
    /// Opens the output; without a path, or for "-", it is stdout.
    pub(crate) fn open(path: Option<&PathBuf>, format: Option<Format>) -> Outcome<Self> {
        let path = path.filter(|path| path.as_os_str() != "-");
        let format = match format {
            Some(format) => format,
            None => by_name(path)?,
        };
        match (format, path) {
            (Format::Npy, Some(path)) => Ok(Self::Npy(Npy::create(path)?)),
            (Format::Npy, None) => {
                Err(Failure::Usage("an array cannot go to stdout: name a file with --output".to_owned()))
            }
            (Format::Jsonl, Some(path)) => {
                let file = File::create(path).map_err(|error| Failure::of(path.display(), error))?;
                Ok(Self::Jsonl(Jsonl::new(path.display().to_string(), Box::new(file))))
            }
            (Format::Jsonl, None) => Ok(Self::Jsonl(Jsonl::new("stdout".to_owned(), Box::new(io::stdout())))),
        }
    }

    /// Appends all rows. The output is whole after it, also if nothing follows.
    pub(crate) fn write(&mut self, rows: &Embeddings) -> Outcome<()> {
        match self {
            Self::Npy(npy) => npy.file.append(rows).map_err(|error| Failure::writing(&npy.name, &error)),
            Self::Jsonl(jsonl) => jsonl.append(rows).map_err(|error| Failure::writing(&jsonl.name, &error)),
        }
    }
}

/// The format that the ending of a name says; JSON lines where there is no name or no ending.
fn by_name(path: Option<&PathBuf>) -> Outcome<Format> {
    let ending = path.and_then(|path| path.extension()).map(|ending| ending.to_string_lossy());
    match (ending.as_deref(), path) {
        (Some("npy"), _) => Ok(Format::Npy),
        (None | Some("jsonl" | "ndjson"), _) | (_, None) => Ok(Format::Jsonl),
        (Some(_), Some(path)) => Err(Failure::Usage(format!(
            "{}: expected a name that ends in .npy or .jsonl, or a format with --output-format",
            path.display()
        ))),
    }
}

/// An array that grows, in NumPy's format 1.0. Its header has room for any number of rows and is written anew after
/// every block, so that the file is whole whenever the program ends.
pub(crate) struct Npy {
    name: String,
    file: NpyFile<File>,
}

impl Npy {
    fn create(path: &Path) -> Outcome<Self> {
        let file = File::create(path).map_err(|error| Failure::of(path.display(), error))?;
        Ok(Self { name: path.display().to_string(), file: NpyFile { file, rows: 0 } })
    }
}

struct NpyFile<F> {
    file: F,
    rows: usize,
}

/// Bytes before the elements: a multiple of 64, as NumPy writes them.
const NPY_HEADER: usize = 128;

impl<F: Write + Seek> NpyFile<F> {
    fn append(&mut self, rows: &Embeddings) -> io::Result<()> {
        self.rows += rows.rows();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header(self.rows, rows.dimensions(), rows.dtype()))?;
        self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(rows.bytes())?;
        self.file.flush()
    }
}

/// NumPy has no bf16: its bits are stored as unsigned integers. Bits are stored as bytes, in the order of `unpackbits`.
fn header(rows: usize, columns: usize, dtype: Dtype) -> [u8; NPY_HEADER] {
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    let (kind, columns) = match dtype {
        Dtype::F32 => (format!("{order}f4"), columns),
        Dtype::F16 => (format!("{order}f2"), columns),
        Dtype::Bf16 => (format!("{order}u2"), columns),
        Dtype::I8 => ("|i1".to_owned(), columns),
        Dtype::U8 => ("|u1".to_owned(), columns),
        Dtype::B1 => ("|u1".to_owned(), columns.div_ceil(8)),
    };
    let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let mut header = [b' '; NPY_HEADER];
    header[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
    header[8..10].copy_from_slice(&(NPY_HEADER as u16 - 10).to_le_bytes());
    // Two numbers of twenty digits fit.
    header[10..10 + text.len()].copy_from_slice(text.as_bytes());
    header[NPY_HEADER - 1] = b'\n';
    header
}

/// One object a line: the number of the text from zero on, and its vector or why there is none.
pub(crate) struct Jsonl {
    name: String,
    output: BufWriter<Box<dyn Write>>,
    rows: usize,
}

impl Jsonl {
    fn new(name: String, output: Box<dyn Write>) -> Self {
        Self { name, output: BufWriter::with_capacity(1 << 16, output), rows: 0 }
    }

    fn append(&mut self, rows: &Embeddings) -> io::Result<()> {
        for index in 0..rows.rows() {
            let text = self.rows + index;
            match rows.reports().get(index).map(|report| report.status) {
                Some(status) if status != Status::Ok => {
                    let line = json!({ "index": text, "embedding": null, "status": status.name() });
                    writeln!(self.output, "{line}")?;
                }
                _ => {
                    write!(self.output, "{{\"index\":{text},\"embedding\":")?;
                    vector(&mut self.output, rows, index)?;
                    writeln!(self.output, "}}")?;
                }
            }
        }
        self.rows += rows.rows();
        self.output.flush()
    }
}

/// One row as a JSON array: numbers, or the bytes of bits.
fn vector(output: &mut impl Write, rows: &Embeddings, index: usize) -> io::Result<()> {
    let bytes = rows.row_bytes(index).unwrap_or_default();
    let pairs = || bytes.as_chunks::<2>().0.iter();
    let written = match rows.dtype() {
        Dtype::F32 => serde_json::to_writer(output, rows.row(index).unwrap_or_default()),
        Dtype::F16 => {
            let numbers: Vec<f32> = pairs().map(|pair| f16::from_ne_bytes(*pair).to_f32()).collect();
            serde_json::to_writer(output, &numbers)
        }
        Dtype::Bf16 => {
            let numbers: Vec<f32> = pairs().map(|pair| bf16::from_ne_bytes(*pair).to_f32()).collect();
            serde_json::to_writer(output, &numbers)
        }
        Dtype::I8 => {
            let numbers: Vec<i8> = bytes.iter().map(|byte| *byte as i8).collect();
            serde_json::to_writer(output, &numbers)
        }
        Dtype::U8 | Dtype::B1 => serde_json::to_writer(output, bytes),
    };
    written.map_err(io::Error::from)
}
