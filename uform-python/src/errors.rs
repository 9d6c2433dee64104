//! Failures of the engine as Python exceptions, whose classes live in `uform.errors`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static FROM_STATUS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The exception of a status, with its sentence.
pub(crate) fn exception(py: Python<'_>, status: uform::Status, message: &str) -> PyErr {
    let make = FROM_STATUS
        .get_or_try_init(py, || Ok::<_, PyErr>(py.import("uform.errors")?.getattr("from_status")?.unbind()));
    match make.and_then(|make| make.bind(py).call1((status.code(), message))) {
        Ok(instance) => PyErr::from_value(instance),
        Err(error) => error,
    }
}

/// An argument that the engine would never see.
pub(crate) fn invalid(py: Python<'_>, message: &str) -> PyErr {
    exception(py, uform::Status::InvalidArgument, message)
}

/// Turns the engine's results into Python's.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for uform::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, error.status(), error.message()))
    }
}
