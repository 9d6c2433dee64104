//! Output memory that the caller owns, placed where an executor computes.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use crate::classes::{Dtype, Residency};
use crate::error::{Result, call};
use crate::executor::Executor;
use crate::matrix::{MatrixViewMut, OwnedOutput, RawMatrix};
use crate::sys;

/// Memory for outputs. Matrices are placed in it one after the other and all go at once, so that a program that embeds
/// batch after batch allocates only for the largest. Host memory, and so an arena, may outlive the executor.
///
/// Thread safety: `Send`, one thread at a time.
///
/// ```
/// # fn main() -> uform::Result<()> {
/// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/models/bert-mean");
/// # let threads = uform::Executor::for_ram(&[], None, 1, 0)?;
/// # let model = uform::Model::load_ram(directory, &threads, &Default::default())?;
/// use uform::{Arena, Dtype};
///
/// let mut arena = Arena::new_in(&threads)?;
/// for batch in [["a cat", "a dog"], ["a tree", "a house"]] {
///     let mut rows = arena.allocate(2, model.describe()?.dimensions, Dtype::F32)?;
///     model.on(&threads).embed_texts_into(&batch, &Default::default(), rows.view_mut(), None)?;
///     assert!(rows.row(1).is_some());
///     arena.reset()?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Arena {
    handle: *mut sys::uform_arena_t,
}

// SAFETY: the C interface lets any thread use the handle as long as no two do at the same time.
unsafe impl Send for Arena {}

impl Arena {
    /// Makes an empty arena in the memory where `executor` computes.
    pub fn new_in(executor: &Executor) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: executor, place for the handle, and record are live for the call.
        call(|error| unsafe { sys::uform_arena_new_in(executor.handle(), &mut handle, error) })?;
        Ok(Self { handle })
    }

    /// Places a matrix of zeros in the arena, its rows aligned to 64 bytes. It borrows the arena, which therefore
    /// cannot be reset while the matrix is in use; any number of them may be in use at once.
    pub fn allocate(&self, rows: usize, columns: usize, dtype: Dtype) -> Result<ArenaMatrix<'_>> {
        Ok(ArenaMatrix { raw: self.allocate_zeroed(rows, columns, dtype)?, arena: PhantomData })
    }

    /// Moves the arena into a deferred call: places one matrix of zeros in it, as the output.
    pub fn into_output(self, rows: usize, columns: usize, dtype: Dtype) -> Result<ArenaOutput> {
        let raw = self.allocate_zeroed(rows, columns, dtype)?;
        Ok(ArenaOutput { raw, arena: self })
    }

    fn allocate_zeroed(&self, rows: usize, columns: usize, dtype: Dtype) -> Result<RawMatrix> {
        let raw = self.allocate_raw(rows, columns, dtype)?;
        // Rows without elements take no memory, and there may be more of them than anyone can count.
        let rows = if raw.row_bytes() == 0 { 0 } else { rows };
        for row in 0..rows {
            // SAFETY: the arena has just given these rows to us alone.
            unsafe { ptr::write_bytes(raw.pointer.add(row * raw.row_stride), 0, raw.row_bytes()) };
        }
        Ok(raw)
    }

    /// Places a matrix of unspecified contents in the arena, for bindings. Its memory is valid until the arena is
    /// reset or dropped, which nothing but the caller's care prevents.
    pub fn allocate_raw(&self, rows: usize, columns: usize, dtype: Dtype) -> Result<RawMatrix> {
        let mut raw = sys::uform_matrix_t {
            data: ptr::null_mut(),
            rows: 0,
            columns: 0,
            row_stride: 0,
            dtype: 0,
            reserved: 0,
        };
        // SAFETY: arena, matrix and record are live for the call; no other thread uses the arena, as it is not `Sync`.
        call(|error| unsafe {
            sys::uform_arena_allocate(self.handle, rows, columns, dtype.number(), &mut raw, error)
        })?;
        Ok(RawMatrix { pointer: raw.data.cast(), rows, columns, row_stride: raw.row_stride, dtype })
    }

    /// Copies a matrix of this arena into memory of the same shape and type, whatever the row strides.
    ///
    /// # Safety
    /// `matrix` was placed in this arena since its last reset, and was written to. The rows of `host` address memory
    /// that nothing else touches until the function returns.
    pub unsafe fn copy_to_host_raw(&self, matrix: RawMatrix, host: RawMatrix) -> Result<()> {
        let (matrix, host) = (matrix.raw(), host.raw());
        // SAFETY: arena and record are live, both matrices by the caller's promise.
        call(|error| unsafe { sys::uform_arena_copy_to_host(self.handle, &matrix, &host, error) })
    }

    /// Copies a matrix of an arena into memory of the same shape and type, whatever the row strides.
    pub fn copy_to_host(&self, matrix: &ArenaMatrix<'_>, host: MatrixViewMut<'_>) -> Result<()> {
        // SAFETY: the matrix borrows the arena that it lies in, whichever that is, and the view its own memory.
        unsafe { self.copy_to_host_raw(matrix.raw, host.raw_matrix()) }
    }

    /// Forgets every matrix and keeps the memory for the next ones.
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: the handle is live, and `&mut` proves that no matrix of the arena is in use.
        call(|error| unsafe { sys::uform_arena_reset(self.handle, error) })
    }

    /// Says what the arena holds.
    pub fn describe(&self) -> Result<ArenaDescription> {
        let mut raw = sys::uform_arena_description_t {
            size: size_of::<sys::uform_arena_description_t>(),
            residency: 0,
            reserved: 0,
            used_bytes: 0,
            reserved_bytes: 0,
        };
        // SAFETY: the handle is live, and the structure says its size.
        call(|error| unsafe { sys::uform_arena_describe(self.handle, &mut raw, error) })?;
        Ok(ArenaDescription {
            residency: Residency::from_number(raw.residency).unwrap_or(Residency::Ram),
            used_bytes: raw.used_bytes,
            reserved_bytes: raw.reserved_bytes,
        })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and nothing uses it after this.
        unsafe { sys::uform_arena_free(self.handle) };
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.describe() {
            Ok(description) => formatter.debug_tuple("Arena").field(&description).finish(),
            Err(error) => formatter.debug_tuple("Arena").field(&error).finish(),
        }
    }
}

/// What an arena holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ArenaDescription {
    /// Where the memory lies.
    pub residency: Residency,
    /// Bytes of the matrices that were placed since the last reset.
    pub used_bytes: u64,
    /// Bytes that the arena keeps.
    pub reserved_bytes: u64,
}

/// A matrix in an arena.
#[derive(Debug)]
pub struct ArenaMatrix<'arena> {
    raw: RawMatrix,
    arena: PhantomData<&'arena Arena>,
}

/// Reading access, which a matrix has wherever its arena is.
macro_rules! matrix_access {
    () => {
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

        /// One row, if there is such a row and its elements are f32.
        pub fn row(&self, index: usize) -> Option<&[f32]> {
            if self.raw.dtype != Dtype::F32 {
                return None;
            }
            let bytes = self.row_bytes(index)?;
            if bytes.is_empty() {
                return Some(&[]);
            }
            // SAFETY: rows in an arena are aligned to 64 bytes, and this one has four for every column.
            Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), self.raw.columns) })
        }

        /// The bytes of one row of any type, if there is such a row.
        pub fn row_bytes(&self, index: usize) -> Option<&[u8]> {
            if index >= self.raw.rows {
                return None;
            }
            if self.raw.row_bytes() == 0 {
                return Some(&[]);
            }
            // SAFETY: the row lies in the arena, which lives as long as this, and was zeroed when it was placed.
            Some(unsafe {
                let row = self.raw.pointer.add(index * self.raw.row_stride);
                std::slice::from_raw_parts(row, self.raw.row_bytes())
            })
        }
    };
}

impl ArenaMatrix<'_> {
    matrix_access!();

    /// The matrix as an output.
    pub fn view_mut(&mut self) -> MatrixViewMut<'_> {
        // SAFETY: the arena gave these rows to this matrix alone, and it stays borrowed.
        unsafe { MatrixViewMut::from_raw(self.raw) }
    }
}

/// An arena together with one matrix in it, as the output of a deferred call.
#[derive(Debug)]
pub struct ArenaOutput {
    raw: RawMatrix,
    arena: Arena,
}

impl ArenaOutput {
    matrix_access!();

    /// The arena back; the matrix stays placed until it is reset.
    pub fn into_arena(self) -> Arena {
        self.arena
    }
}

// SAFETY: the arena gave the rows to this matrix alone; they lie in the engine's memory and last as long as the arena.
unsafe impl OwnedOutput for ArenaOutput {
    fn matrix(&mut self) -> RawMatrix {
        self.raw
    }
}
