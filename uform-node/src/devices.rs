//! What was compiled, and what this machine offers.

use napi_derive::napi;
use uform::{GPUClass, GPUVendor};

use crate::errors::{Result, failed};

/// The version of the library.
#[napi]
pub fn version() -> &'static str {
    uform::version()
}

/// The classes that this build has kernels for.
#[napi]
pub fn capabilities_compiled() -> &'static str {
    uform::capabilities_compiled()
}

/// The classes of this build that this machine offers.
#[napi]
pub fn capabilities_available() -> &'static str {
    uform::capabilities_available()
}

/// The class that executors dispatch as unless one is pinned.
#[napi]
pub fn cpu_class_detected() -> Option<String> {
    uform::cpu_class_detected().map(|class| class.to_string())
}

/// One GPU.
#[napi(object)]
pub struct GpuDevice {
    /// The number of the vendor, zero where unknown.
    pub vendor: i32,
    /// Its ordinal in the vendor's runtime.
    pub vendor_ordinal: u32,
    /// The class whose kernels run on it.
    #[napi(ts_type = "string | null")]
    pub gpu_class: napi::Either<String, napi::bindgen_prelude::Null>,
    /// Multiprocessors or compute units.
    pub compute_units: u32,
    /// Bytes of memory.
    pub memory_bytes: f64,
    /// The vendor's name for it.
    pub name: String,
}

/// The name of a class, or the `null` of JavaScript.
pub(crate) fn class_or_null(class: Option<GPUClass>) -> napi::Either<String, napi::bindgen_prelude::Null> {
    match class {
        Some(class) => napi::Either::A(class.to_string()),
        None => napi::Either::B(napi::bindgen_prelude::Null),
    }
}

/// The GPUs that this process can drive.
#[napi]
pub fn gpu_devices() -> Result<Vec<GpuDevice>> {
    let mut devices = Vec::new();
    // The list may grow between two calls.
    loop {
        let count = uform::gpu_devices(&mut devices).map_err(failed)?;
        if count <= devices.len() {
            devices.truncate(count);
            break;
        }
        devices.resize(count, uform::GPUDevice::default());
    }
    Ok(devices
        .iter()
        .map(|device| GpuDevice {
            vendor: device.vendor().map_or(0, GPUVendor::number),
            vendor_ordinal: device.vendor_ordinal(),
            gpu_class: class_or_null(device.gpu_class()),
            compute_units: device.compute_units(),
            memory_bytes: device.memory_bytes() as f64,
            name: device.name().to_owned(),
        })
        .collect())
}
