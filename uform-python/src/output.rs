//! Where the vectors of a call go: memory of our own, a matrix of an arena, or any buffer that Python can write to.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use uform::{Dtype, RawMatrix};

use crate::arena::View;
use crate::errors;
use crate::matrix::{Matrix, format, items};

/// The place, kept alive and in place for as long as this value.
pub(crate) struct Output {
    /// What the caller gets: a new matrix, or what it gave.
    pub(crate) object: Py<PyAny>,
    target: RawMatrix,
    _view: Option<View>,
    _buffer: Option<PyUntypedBuffer>,
}

impl Output {
    /// The place in the engine's words.
    pub(crate) fn target(&self) -> RawMatrix {
        self.target
    }

    /// A place for `rows` rows: `out`, or a new matrix of `dimensions` columns where there is none.
    pub(crate) fn prepare(
        py: Python<'_>,
        out: Option<&Bound<'_, PyAny>>,
        rows: usize,
        dimensions: usize,
        dtype: Option<Dtype>,
    ) -> PyResult<Self> {
        let Some(out) = out else {
            let matrix = Matrix::allocate(py, rows, dimensions, dtype.unwrap_or_default())?;
            let target = matrix.raw();
            let object = Bound::new(py, matrix)?.into_any().unbind();
            return Ok(Self { object, target, _view: None, _buffer: None });
        };
        let object = out.clone().unbind();
        if let Ok(matrix) = out.cast::<Matrix>() {
            let matrix = matrix.get();
            let view = matrix.view(py)?;
            if dtype.is_some_and(|dtype| dtype != matrix.element()) {
                return Err(errors::invalid(py, &format!("out: its elements are {}", matrix.element())));
            }
            return Ok(Self { object, target: matrix.raw(), _view: view, _buffer: None });
        }
        // Asked first, as a buffer without axes has no shape.
        let axes: usize = PyMemoryView::from(out)?.getattr("ndim")?.extract()?;
        if axes != 2 {
            return Err(errors::invalid(py, &format!("out: expected 2 axes, found {axes}")));
        }
        let buffer = PyUntypedBuffer::get(out)?;
        let target = borrow(py, &buffer, rows, dimensions, dtype)?;
        Ok(Self { object, target, _view: None, _buffer: Some(buffer) })
    }
}

/// The dtype that a buffer's items stand for where the caller names none.
fn guess(code: &str) -> Option<Dtype> {
    match code {
        "f" => Some(Dtype::F32),
        "e" => Some(Dtype::F16),
        "H" => Some(Dtype::Bf16),
        "b" => Some(Dtype::I8),
        "B" => Some(Dtype::U8),
        _ => None,
    }
}

fn borrow(
    py: Python<'_>,
    buffer: &PyUntypedBuffer,
    rows: usize,
    dimensions: usize,
    dtype: Option<Dtype>,
) -> PyResult<RawMatrix> {
    let refuse = |message: &str| Err(errors::invalid(py, &format!("out: {message}")));
    if buffer.readonly() {
        return refuse("the buffer is read-only");
    }
    let (height, width) = (buffer.shape()[0], buffer.shape()[1]);
    let native = if cfg!(target_endian = "little") { ['@', '=', '<'] } else { ['@', '=', '>'] };
    let found = buffer.format().to_string_lossy();
    let code = found.trim_start_matches(native);
    let Some(dtype) = dtype.or_else(|| guess(code)) else {
        return refuse(&format!("items of format {found:?} hold no dtype"));
    };
    let (expected, item) = format(dtype);
    if code.as_bytes() != expected.to_bytes() || buffer.item_size() != item {
        return refuse(&format!("expected items of format {expected:?} for {dtype}, found {found:?}"));
    }
    if height != rows || width != items(dtype, dimensions) {
        let width_expected = items(dtype, dimensions);
        return refuse(&format!("expected the shape ({rows}, {width_expected}), found ({height}, {width})"));
    }
    let strides = buffer.strides();
    let row_bytes = (width * item) as isize;
    let packed = width <= 1 || strides[1] == item as isize;
    if buffer.suboffsets().is_some() || !packed || (height > 1 && strides[0] < row_bytes) {
        return refuse("expected rows of items side by side, one after the other in memory");
    }
    Ok(RawMatrix {
        pointer: buffer.buf_ptr().cast(),
        rows,
        columns: dimensions,
        // The stride of a single row may be anything.
        row_stride: if height > 1 { strides[0] as usize } else { row_bytes as usize },
        dtype,
    })
}
