//! The compiled half of the Python package `uform`: handles with numbers and plain types for arguments. The package's
//! Python half gives them names, enumerations and documentation; nothing here is meant to be used directly.
//!
//! Everything that may wait releases the interpreter first, and looks for signals while it waits.

mod arena;
mod call;
mod dlpack;
mod errors;
mod executor;
mod interpreter;
mod matrix;
mod model;
mod options;
mod output;
mod progress;
mod wait;

use std::sync::Arc;

use pyo3::prelude::*;

use errors::OrRaise;

type Device = (i32, u32, i32, u32, u64, String);

/// The GPUs: vendor, ordinal there, class, compute units, bytes of memory, name.
#[pyfunction]
fn gpu_devices(py: Python<'_>) -> PyResult<Vec<Device>> {
    let mut devices = Vec::new();
    loop {
        let count = py.detach(|| uform::gpu_devices(&mut devices)).or_raise(py)?;
        if count <= devices.len() {
            devices.truncate(count);
            break;
        }
        devices.resize(count, uform::GPUDevice::default());
    }
    let row = |device: &uform::GPUDevice| {
        (
            device.vendor().map_or(0, uform::GPUVendor::number),
            device.vendor_ordinal(),
            device.gpu_class().map_or(0, uform::GPUClass::number),
            device.compute_units(),
            device.memory_bytes(),
            device.name().to_owned(),
        )
    };
    Ok(devices.iter().map(row).collect())
}

/// Sends warnings to `callback` from now on, or nowhere.
#[pyfunction]
fn set_log_callback(py: Python<'_>, callback: Option<Py<PyAny>>) -> PyResult<()> {
    let receive = callback.map(|callback| -> Arc<dyn Fn(&str) + Send + Sync> {
        Arc::new(move |message| {
            // Warnings of the interpreter's last moments have no reader.
            let _ = interpreter::enter(|py| {
                if let Err(error) = callback.call1(py, (message,)) {
                    error.write_unraisable(py, Some(callback.bind(py)));
                }
            });
        })
    });
    py.detach(|| uform::set_log_callback(receive)).or_raise(py)
}

/// The number of the class that executors dispatch as unless one is pinned; zero for none.
#[pyfunction]
fn cpu_class_detected() -> i32 {
    uform::cpu_class_detected().map_or(0, uform::CPUClass::number)
}

#[pyfunction]
fn capabilities_compiled() -> &'static str {
    uform::capabilities_compiled()
}

#[pyfunction]
fn capabilities_available() -> &'static str {
    uform::capabilities_available()
}

#[pyfunction]
fn version() -> &'static str {
    uform::version()
}

#[pymodule(gil_used = false)]
mod _uform {
    #[pymodule_export]
    use super::{
        arena::Arena, call::Deferred, capabilities_available, capabilities_compiled, cpu_class_detected,
        executor::Executor, gpu_devices, interpreter::interpreter_ends, matrix::Matrix, matrix::MatrixRow,
        model::Model, set_log_callback, version,
    };
}
