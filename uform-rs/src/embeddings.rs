//! What embedding yields: vectors, reports and tokens.

use crate::classes::Dtype;
use crate::error::{Error, Result, Status};
use crate::matrix::{OwnedOutput, RawMatrix};
use crate::sys;

/// Vectors, one row per text, in memory of their own.
#[derive(Clone, PartialEq, Debug)]
pub struct Embeddings {
    rows: usize,
    dimensions: usize,
    dtype: Dtype,
    elements: Elements,
    reports: Vec<Report>,
}

/// Numbers where they are f32, so that they are aligned as such, and bytes otherwise.
#[derive(Clone, PartialEq, Debug)]
enum Elements {
    F32(Vec<f32>),
    Bytes(Vec<u8>),
}

impl Embeddings {
    /// Rows of zeros, to be written by [`OnDeferred::embed_texts_into`](crate::OnDeferred::embed_texts_into).
    pub fn zeros(rows: usize, dimensions: usize, dtype: Dtype) -> Result<Self> {
        let bytes = dtype.row_bytes(dimensions).and_then(|bytes| bytes.checked_mul(rows));
        let bytes = bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| {
            Error::new(
                Status::OutOfMemory,
                format!("{rows} rows of {dimensions} {dtype} are more than any memory holds"),
            )
        })?;
        let elements = match dtype {
            Dtype::F32 => Elements::F32(zeros(bytes / size_of::<f32>())?),
            _ => Elements::Bytes(zeros(bytes)?),
        };
        Ok(Self { rows, dimensions, dtype, elements, reports: Vec::new() })
    }

    /// Rows: one per text, in their order.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements in a row.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// One report per row if the options asked for them, else none.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// One row, if there is such a row and its elements are f32.
    pub fn row(&self, index: usize) -> Option<&[f32]> {
        let numbers = self.as_f32()?;
        (index < self.rows).then(|| &numbers[index * self.dimensions..][..self.dimensions])
    }

    /// The bytes of one row of any type, if there is such a row.
    pub fn row_bytes(&self, index: usize) -> Option<&[u8]> {
        let length = self.dtype.row_bytes(self.dimensions)?;
        (index < self.rows).then(|| &self.bytes()[index * length..][..length])
    }

    /// All rows one after the other, if their elements are f32.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.elements {
            Elements::F32(numbers) => Some(numbers),
            Elements::Bytes(_) => None,
        }
    }

    /// All rows one after the other without copying, if their elements are f32.
    pub fn into_f32(self) -> Option<Vec<f32>> {
        match self.elements {
            Elements::F32(numbers) => Some(numbers),
            Elements::Bytes(_) => None,
        }
    }

    /// All rows one after the other, as bytes in the machine's order.
    pub fn bytes(&self) -> &[u8] {
        match &self.elements {
            // SAFETY: any f32 is four bytes, and bytes need no alignment.
            Elements::F32(numbers) => unsafe {
                std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers.as_slice()))
            },
            Elements::Bytes(bytes) => bytes,
        }
    }

    /// The same vectors with these reports.
    pub fn with_reports(mut self, reports: Vec<Report>) -> Self {
        self.reports = reports;
        self
    }
}

fn zeros<T: Clone + Default>(count: usize) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(count).map_err(|_| {
        Error::new(Status::OutOfMemory, format!("output: {} bytes are not to be had", count * size_of::<T>()))
    })?;
    elements.resize(count, T::default());
    Ok(elements)
}

// SAFETY: the elements lie in a vector that nobody else reaches, whose heap memory stays where it is.
unsafe impl OwnedOutput for Embeddings {
    fn matrix(&mut self) -> RawMatrix {
        let pointer = match &mut self.elements {
            Elements::F32(numbers) => numbers.as_mut_ptr().cast(),
            Elements::Bytes(bytes) => bytes.as_mut_ptr(),
        };
        RawMatrix { pointer, rows: self.rows, columns: self.dimensions, row_stride: 0, dtype: self.dtype }
    }
}

/// What became of one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// [`Status::Ok`], or why the row could not be embedded.
    pub status: Status,
    /// Whether tokens were cut off.
    pub truncated: bool,
    /// Tokens of the text, prompt and special ones included.
    pub tokens_found: u64,
    /// Tokens that were read.
    pub tokens_kept: u64,
}

impl Default for Report {
    fn default() -> Self {
        Self { status: Status::Ok, truncated: false, tokens_found: 0, tokens_kept: 0 }
    }
}

impl From<&sys::uform_report_t> for Report {
    fn from(raw: &sys::uform_report_t) -> Self {
        Self {
            status: Status::from_code(raw.status),
            truncated: raw.truncated != 0,
            tokens_found: raw.tokens_found,
            tokens_kept: raw.tokens_kept,
        }
    }
}

/// Room for the reports of so many rows.
pub(crate) fn raw_reports(rows: usize) -> Vec<sys::uform_report_t> {
    vec![sys::uform_report_t { status: 0, truncated: 0, tokens_found: 0, tokens_kept: 0 }; rows]
}

/// One token of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Token {
    /// Its number in the vocabulary.
    pub id: u32,
    /// The first byte of the text, without its prompt, that it stands for; zero for tokens of the prompt and for those
    /// around the text.
    pub begin: usize,
    /// One past the last such byte.
    pub end: usize,
    /// Whether it is a special token of the vocabulary, put around the text or spelled by it.
    pub special: bool,
}
