//! Memory that outputs are written to.

use std::marker::PhantomData;

use crate::classes::Dtype;
use crate::error::{Error, Result};
use crate::sys;

/// The address and shape of a matrix: rows of consecutive elements, a fixed number of bytes apart. It borrows nothing
/// and promises nothing; it is what bindings to other languages hand over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawMatrix {
    /// The first element of the first row. Any alignment is legal.
    pub pointer: *mut u8,
    /// Rows.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
    /// Bytes from the start of one row to the start of the next; zero means rows without gaps.
    pub row_stride: usize,
    /// The type of the elements.
    pub dtype: Dtype,
}

// SAFETY: an address and numbers; whoever uses the address answers for it.
unsafe impl Send for RawMatrix {}
// SAFETY: as above.
unsafe impl Sync for RawMatrix {}

impl RawMatrix {
    pub(crate) fn raw(&self) -> sys::uform_matrix_t {
        sys::uform_matrix_t {
            data: self.pointer.cast(),
            rows: self.rows,
            columns: self.columns,
            row_stride: self.row_stride,
            dtype: self.dtype.number(),
            reserved: 0,
        }
    }

    /// Bytes of one row without the gap after it.
    pub(crate) fn row_bytes(&self) -> usize {
        self.dtype.row_bytes(self.columns).unwrap_or(usize::MAX)
    }
}

/// A matrix in memory that is borrowed for writing.
///
/// ```
/// use uform::MatrixViewMut;
///
/// let mut numbers = vec![0.0; 6];
/// let view = MatrixViewMut::from_f32(&mut numbers, 3)?;
/// assert_eq!((view.rows(), view.columns()), (2, 3));
/// # Ok::<(), uform::Error>(())
/// ```
#[derive(Debug)]
pub struct MatrixViewMut<'memory> {
    raw: RawMatrix,
    memory: PhantomData<&'memory mut [u8]>,
}

impl<'memory> MatrixViewMut<'memory> {
    /// A matrix of f32 with so many columns, as many rows as there are, and no gaps.
    pub fn from_f32(numbers: &'memory mut [f32], columns: usize) -> Result<Self> {
        let bytes = size_of_val(numbers);
        // SAFETY: the pointer and the length in bytes are those of the slice, which stays borrowed.
        unsafe { Self::over(numbers.as_mut_ptr().cast(), bytes, columns, 0, Dtype::F32) }
    }

    /// A matrix in bytes, with so many columns, as many rows as there are, and no gaps.
    pub fn from_bytes(bytes: &'memory mut [u8], columns: usize, dtype: Dtype) -> Result<Self> {
        Self::from_strided_bytes(bytes, columns, 0, dtype)
    }

    /// A matrix in bytes whose rows start `row_stride` bytes apart; the last row needs no gap after it.
    pub fn from_strided_bytes(
        bytes: &'memory mut [u8],
        columns: usize,
        row_stride: usize,
        dtype: Dtype,
    ) -> Result<Self> {
        // SAFETY: the pointer and the length are those of the slice, which stays borrowed.
        unsafe { Self::over(bytes.as_mut_ptr(), bytes.len(), columns, row_stride, dtype) }
    }

    /// A matrix anywhere.
    ///
    /// # Safety
    /// For `'memory` the rows address memory that nothing else reads or writes.
    pub unsafe fn from_raw(raw: RawMatrix) -> Self {
        Self { raw, memory: PhantomData }
    }

    /// # Safety
    /// For `'memory`, `length` bytes at `pointer` are memory that nothing else reads or writes.
    unsafe fn over(
        pointer: *mut u8,
        length: usize,
        columns: usize,
        row_stride: usize,
        dtype: Dtype,
    ) -> Result<Self> {
        let row_bytes = match dtype.row_bytes(columns) {
            Some(bytes) if bytes > 0 => bytes,
            _ => return Err(Error::invalid(format!("columns: {columns} of {dtype} make no row"))),
        };
        let stride = if row_stride == 0 { row_bytes } else { row_stride };
        if stride < row_bytes {
            return Err(Error::invalid(format!(
                "row_stride: expected at least {row_bytes} bytes for {columns} columns of {dtype}, found {stride}"
            )));
        }
        let whole = length / stride;
        let rows = whole + usize::from(length - whole * stride >= row_bytes);
        let rest = length - whole * stride;
        if row_stride == 0 && rest != 0 {
            return Err(Error::invalid(format!(
                "output: expected a multiple of {row_bytes} bytes for {columns} columns of {dtype}, found {length}"
            )));
        }
        Ok(Self { raw: RawMatrix { pointer, rows, columns, row_stride: stride, dtype }, memory: PhantomData })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.raw.rows
    }

    /// Elements in a row.
    pub fn columns(&self) -> usize {
        self.raw.columns
    }

    /// Bytes from the start of one row to the start of the next.
    pub fn row_stride(&self) -> usize {
        self.raw.row_stride
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.raw.dtype
    }

    pub(crate) fn raw_matrix(&self) -> RawMatrix {
        self.raw
    }
}

/// Memory that a deferred call owns while it runs and gives back at its end: [`Embeddings`](crate::Embeddings) or
/// an [`ArenaOutput`](crate::ArenaOutput).
///
/// # Safety
/// What [`matrix`](Self::matrix) describes is memory that the value alone may reach, which stays where it is when the
/// value moves, until the value is dropped.
pub unsafe trait OwnedOutput: Send + 'static {
    /// Where the rows go.
    fn matrix(&mut self) -> RawMatrix;
}
