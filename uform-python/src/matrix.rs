//! Matrices that Python sees through the buffer protocol and DLPack without a copy.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyIndexError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};
use uform::Dtype;

use crate::arena::{Place, View};
use crate::dlpack;
use crate::errors;

/// Rows begin at multiples of that many bytes where we allocate them.
const ALIGNMENT: usize = 64;

/// Memory of our own, not initialized: the engine writes every byte before Python sees one.
pub(crate) struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone, and has no tie to a thread.
unsafe impl Send for Memory {}
// SAFETY: shared references only give out the address.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        Some(Self { start, layout })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed here only.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Who owns a matrix's memory.
#[derive(Clone)]
pub(crate) enum Storage {
    Own(#[expect(dead_code, reason = "keeps the memory alive")] Arc<Memory>),
    Arena(Arc<Place>),
}

/// Rows of numbers: the output of a call, or a place for one in an arena.
#[pyclass(frozen, module = "uform")]
pub(crate) struct Matrix {
    storage: Storage,
    first: usize,
    dtype: Dtype,
    rows: usize,
    dimensions: usize,
    /// Rows and elements of a row, as a buffer has them: bits are bytes there.
    shape: [isize; 2],
    strides: [isize; 2],
}

/// How a dtype looks to Python: the format of a buffer and the bytes of an item.
pub(crate) fn format(dtype: Dtype) -> (&'static CStr, usize) {
    match dtype {
        Dtype::F32 => (c"f", 4),
        Dtype::F16 => (c"e", 2),
        Dtype::Bf16 => (c"H", 2),
        Dtype::I8 => (c"b", 1),
        Dtype::U8 | Dtype::B1 => (c"B", 1),
    }
}

/// Items in a row of that many dimensions.
pub(crate) fn items(dtype: Dtype, dimensions: usize) -> usize {
    if dtype == Dtype::B1 { dimensions.div_ceil(8) } else { dimensions }
}

impl Matrix {
    /// A matrix in memory of its own.
    pub(crate) fn allocate(py: Python<'_>, rows: usize, dimensions: usize, dtype: Dtype) -> PyResult<Self> {
        let row_bytes = dtype.row_bytes(dimensions);
        let bytes = row_bytes.and_then(|bytes| bytes.checked_mul(rows));
        let memory = bytes.and_then(Memory::new).ok_or_else(|| {
            let message = format!("no memory for {rows} rows of {dimensions} {dtype} elements");
            errors::exception(py, uform::Status::OutOfMemory, &message)
        })?;
        let first = memory.start.as_ptr().expose_provenance();
        let storage = Storage::Own(Arc::new(memory));
        Ok(Self::of(storage, first, rows, dimensions, row_bytes.unwrap_or(0), dtype))
    }

    pub(crate) fn of(
        storage: Storage,
        first: usize,
        rows: usize,
        dimensions: usize,
        row_stride: usize,
        dtype: Dtype,
    ) -> Self {
        let shape = [rows as isize, items(dtype, dimensions) as isize];
        let strides = [row_stride as isize, format(dtype).1 as isize];
        Self { storage, first, dtype, rows, dimensions, shape, strides }
    }

    /// As the engine names it.
    pub(crate) fn raw(&self) -> uform::RawMatrix {
        uform::RawMatrix {
            pointer: self.pointer().cast(),
            rows: self.rows,
            columns: self.dimensions,
            row_stride: self.strides[0] as usize,
            dtype: self.dtype,
        }
    }

    pub(crate) fn element(&self) -> Dtype {
        self.dtype
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.first)
    }

    pub(crate) fn layout(&self) -> (&[isize; 2], &[isize; 2]) {
        (&self.shape, &self.strides)
    }

    /// Keeps the memory where it is for as long as the result lives: an arena is not reset meanwhile.
    pub(crate) fn view(&self, py: Python<'_>) -> PyResult<Option<View>> {
        match &self.storage {
            Storage::Own(_) => Ok(None),
            Storage::Arena(place) => place.view(py).map(Some),
        }
    }

    fn has_gaps(&self) -> bool {
        self.rows > 1 && self.strides[0] != self.shape[1] * self.strides[1]
    }
}

/// Fills a buffer's description. `axes` is 2 for a matrix and 1 for one of its rows.
///
/// # Safety
/// `view` is the place that the interpreter gave, and the shape in `owner` lives as long as the object.
unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    matrix: &Matrix,
    axes: usize,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no place for the buffer's description"));
    }
    let asks = |flag: c_int| flags & flag == flag;
    let fortran = asks(ffi::PyBUF_F_CONTIGUOUS) && axes == 2 && matrix.rows > 1 && matrix.shape[1] > 1;
    let contiguous =
        !asks(ffi::PyBUF_STRIDES) || asks(ffi::PyBUF_C_CONTIGUOUS) || asks(ffi::PyBUF_ANY_CONTIGUOUS);
    if fortran || (contiguous && axes == 2 && matrix.has_gaps()) {
        return Err(PyBufferError::new_err("the rows of the matrix do not lie like that in memory"));
    }
    let held = matrix.view(owner.py())?.map_or(std::ptr::null_mut(), |held| Box::into_raw(Box::new(held)));
    let (code, item) = format(matrix.dtype);
    let skip = 2 - axes;
    let count: isize = matrix.shape[skip..].iter().product();
    // SAFETY: the place is the interpreter's; format and shape live as long as the object, of which the buffer holds a
    // reference. `internal` is ours until the release.
    unsafe {
        (*view).buf = matrix.pointer();
        (*view).len = count * item as isize;
        (*view).itemsize = item as isize;
        (*view).readonly = 0;
        (*view).ndim = axes as c_int;
        (*view).format =
            if asks(ffi::PyBUF_FORMAT) { code.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        (*view).shape =
            if asks(ffi::PyBUF_ND) { matrix.shape[skip..].as_ptr().cast_mut() } else { std::ptr::null_mut() };
        (*view).strides = if asks(ffi::PyBUF_STRIDES) {
            matrix.strides[skip..].as_ptr().cast_mut()
        } else {
            std::ptr::null_mut()
        };
        (*view).suboffsets = std::ptr::null_mut();
        (*view).internal = held.cast();
        (*view).obj = owner.clone().into_ptr();
    }
    Ok(())
}

/// # Safety
/// `view` was filled by [`fill`] and is released once.
unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: `internal` is what `fill` put there.
    unsafe {
        let held = (*view).internal.cast::<View>();
        if !held.is_null() {
            drop(Box::from_raw(held));
        }
    }
}

#[pymethods]
impl Matrix {
    /// Rows and dimensions.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.rows, self.dimensions)
    }

    #[getter(dtype)]
    fn dtype_number(&self) -> i32 {
        self.dtype.number()
    }

    fn __len__(&self) -> usize {
        self.rows
    }

    /// One row, as a memoryview.
    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let row = if index < 0 { index + self.rows as isize } else { index };
        if row < 0 || row >= self.rows as isize {
            return Err(PyIndexError::new_err(format!("row {index} of {}", self.rows)));
        }
        let first = self.first + row as usize * self.strides[0] as usize;
        let stride = self.strides[0] as usize;
        let one = Matrix::of(self.storage.clone(), first, 1, self.dimensions, stride, self.dtype);
        let row = Bound::new(py, MatrixRow(one))?;
        Ok(PyMemoryView::from(row.as_any())?.into_any())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the interpreter's own place; the matrix is frozen, so that its shape stays where it is.
        unsafe { fill(slf.as_any(), slf.get(), 2, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter releases what it got, once.
        unsafe { release(view) }
    }

    /// The memory as a DLPack capsule, with rows and items as in a buffer.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some_and(|stream| !stream.is_none()) {
            return Err(errors::invalid(slf.py(), "stream: expected None for host memory"));
        }
        if dl_device.is_some_and(|device| device != dlpack::HOST) || copy == Some(true) {
            return Err(PyBufferError::new_err("the matrix is only given out as it lies in host memory"));
        }
        dlpack::capsule(&slf, max_version.is_some_and(|version| version >= (1, 0)))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::HOST
    }

    /// The matrix as an ndarray. NumPy asks for it where it got no buffer, and would otherwise say nothing of the reason:
    /// that the arena was reset, or belongs to another process.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let view = PyMemoryView::from(slf.as_any())?;
        let numpy = py.import("numpy")?;
        match copy {
            None => numpy.call_method1("asarray", (view, dtype)),
            Some(copy) => {
                let options = PyDict::new(py);
                options.set_item("copy", copy)?;
                numpy.call_method("array", (view, dtype), Some(&options))
            }
        }
    }
}

/// One row of a matrix, for the memoryview of it.
#[pyclass(frozen, module = "uform._uform")]
pub(crate) struct MatrixRow(Matrix);

#[pymethods]
impl MatrixRow {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the interpreter's own place; the row is frozen, so that its shape stays where it is.
        unsafe { fill(slf.as_any(), &slf.get().0, 1, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter releases what it got, once.
        unsafe { release(view) }
    }
}
