//! What was compiled, and what this engine of JavaScript offers.

use js_sys::Array;
use uform::GPUVendor;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::errors::{Result, failed};
use crate::objects::{object, text_or_null};

/// The version of the library.
#[wasm_bindgen]
pub fn version() -> String {
    uform::version().to_owned()
}

/// The classes that this module has kernels for.
#[wasm_bindgen(js_name = capabilitiesCompiled)]
pub fn capabilities_compiled() -> String {
    uform::capabilities_compiled().to_owned()
}

/// The classes of this module that this engine offers.
#[wasm_bindgen(js_name = capabilitiesAvailable)]
pub fn capabilities_available() -> String {
    uform::capabilities_available().to_owned()
}

/// The class that executors dispatch as unless one is pinned.
#[wasm_bindgen(js_name = cpuClassDetected)]
pub fn cpu_class_detected() -> JsValue {
    text_or_null(uform::cpu_class_detected())
}

/// The GPUs that this module can drive.
#[wasm_bindgen(js_name = gpuDevices)]
pub fn gpu_devices() -> Result<JsValue> {
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
    let device = |device: &uform::GPUDevice| {
        object([
            ("vendor", device.vendor().map_or(0, GPUVendor::number).into()),
            ("vendorOrdinal", device.vendor_ordinal().into()),
            ("gpuClass", text_or_null(device.gpu_class())),
            ("computeUnits", device.compute_units().into()),
            ("memoryBytes", (device.memory_bytes() as f64).into()),
            ("name", device.name().into()),
        ])
    };
    Ok(devices.iter().map(device).collect::<Array>().into())
}
