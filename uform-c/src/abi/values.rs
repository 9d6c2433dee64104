//! Numbers and small structures that several nouns share.

use std::ffi::{c_char, c_void};

use crate::base::{Dtype, Result, err};

/// An element type.
pub type uform_dtype_t = i32;

/// IEEE 754 binary32.
pub const UFORM_DTYPE_F32: uform_dtype_t = 1;
/// IEEE 754 binary16.
pub const UFORM_DTYPE_F16: uform_dtype_t = 2;
/// The upper 16 bits of a binary32, rounded to nearest even.
pub const UFORM_DTYPE_BF16: uform_dtype_t = 3;
/// Signed bytes: the value times a scale, rounded to nearest even, saturated.
pub const UFORM_DTYPE_I8: uform_dtype_t = 4;
/// Unsigned bytes: as signed bytes, plus 128.
pub const UFORM_DTYPE_U8: uform_dtype_t = 5;
/// Bits, set where the value is positive: eight to a byte, the first dimension in the most significant bit.
pub const UFORM_DTYPE_B1: uform_dtype_t = 6;

/// The type of the factors of a transformer's matrix products. Sums are f32, or whole numbers of i8; embeddings, norms, pooling
/// and the modules behind it are in f32 in each. Every class computes in every precision.
pub type uform_precision_t = i32;

/// The type of the file where the class has instructions for it, else f32.
pub const UFORM_PRECISION_AUTO: uform_precision_t = 0;
/// IEEE 754 binary32.
pub const UFORM_PRECISION_F32: uform_precision_t = 1;
/// The upper 16 bits of a binary32, rounded to nearest even; so are the factors of attention where the class has it.
pub const UFORM_PRECISION_BF16: uform_precision_t = 2;
/// IEEE 754 binary16, with attention in f32.
pub const UFORM_PRECISION_F16: uform_precision_t = 3;
/// Signed bytes with scales per row and per output channel, found from weights and texts alone; attention is as in bf16.
pub const UFORM_PRECISION_I8: uform_precision_t = 4;

/// Where weights lie and outputs land.
pub type uform_residency_t = i32;

/// Host memory.
pub const UFORM_RESIDENCY_RAM: uform_residency_t = 1;
/// Device memory.
pub const UFORM_RESIDENCY_VRAM: uform_residency_t = 2;

/// Borrowed bytes: UTF-8 for texts and names, the system's own bytes for paths. NULL with length zero is empty.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_text_t {
    /// The first byte; no terminating zero is needed.
    pub data: *const c_char,
    /// Bytes.
    pub length: usize,
}

/// A borrowed matrix: rows of consecutive elements, a fixed number of bytes apart. Unaligned memory is legal.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_matrix_t {
    /// The first element of the first row.
    pub data: *mut c_void,
    /// Rows.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
    /// Bytes from the start of one row to the start of the next; zero means rows without gaps.
    pub row_stride: usize,
    /// The type of the elements.
    pub dtype: uform_dtype_t,
    /// Zero.
    pub reserved: u32,
}

/// Called now and then on a computing thread with the work done so far and the whole of it: bytes while loading, rows
/// while embedding. A return value other than zero stops the call, which then ends as cancelled. It must not unwind. Of
/// the executor that computes it may use what does not wait: describe it, submit deferred calls. A call on it that
/// waits is `INVALID_ARGUMENT`, and it must not be freed.
pub type uform_progress_t = Option<unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> i32>;

/// The value of that number; `InvalidArgument` naming the argument and what was expected when there is none.
pub(super) fn numbered<T>(
    number: i32,
    name: &str,
    expected: &str,
    from_number: impl FnOnce(u32) -> Option<T>,
) -> Result<T> {
    match u32::try_from(number).ok().and_then(from_number) {
        Some(value) => Ok(value),
        None => err!(InvalidArgument, "{name}: expected {expected}, found {number}"),
    }
}

/// The element type of that number.
pub(super) fn dtype_of(number: uform_dtype_t) -> Result<Dtype> {
    numbered(number, "dtype", "1 to 6", Dtype::from_number)
}

impl uform_matrix_t {
    /// Its element type, and the bytes from one row to the next. `name` is what messages call the matrix.
    pub(super) fn layout(&self, name: &str) -> Result<(Dtype, usize)> {
        if self.reserved != 0 {
            return err!(InvalidArgument, "{name}: reserved: expected 0, found {}", self.reserved);
        }
        let dtype = dtype_of(self.dtype)?;
        let row_bytes = dtype.row_bytes(self.columns);
        Ok((dtype, if self.row_stride == 0 { row_bytes } else { self.row_stride }))
    }
}
