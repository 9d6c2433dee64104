//! The GPUs that NVIDIA's driver lists.

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute};

use crate::base::{Error, Result, Status, err};

use super::gpu::{GpuClass, GpuDevice, GpuVendor};

/// Every function of the driver that [`devices`] calls; cudarc panics at the first call of one that is missing.
const NEEDED: [&str; 7] = [
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuGetErrorString",
];

/// The driver's devices by its numbers; none where there is no driver or no device. An error when a driver is there and
/// does not work. Never panics. Any thread.
pub(super) fn devices() -> Result<Vec<GpuDevice>> {
    // SAFETY: loads the driver's library, whose start-up code is trusted as the system's own.
    if !unsafe { sys::is_culib_present() } {
        return Ok(Vec::new());
    }
    for name in NEEDED {
        // SAFETY: the library is there, and the symbol is only looked for, not called.
        if unsafe { sys::culib().get::<*const ()>(name.as_bytes()) }.is_err() {
            return err!(DeviceUnavailable, "it has no function {name}");
        }
    }
    match list() {
        Ok(devices) => Ok(devices),
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(Vec::new()),
        Err(error) => Err(Error::new(Status::DeviceUnavailable, format!("{error:?}"))),
    }
}

fn list() -> std::result::Result<Vec<GpuDevice>, DriverError> {
    result::init()?;
    let count = result::device::get_count()?;
    (0..count).map(describe).collect()
}

fn describe(ordinal: i32) -> std::result::Result<GpuDevice, DriverError> {
    use CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS,
    };
    let device = result::device::get(ordinal)?;
    // SAFETY: the driver has just given this device.
    let attribute = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    let gpu_class = GpuClass::of_compute_capability(attribute(MAJOR)?, attribute(MINOR)?);
    let units = attribute(MULTIPROCESSORS)?;
    // SAFETY: as above.
    let memory = unsafe { result::device::total_mem(device) }?;
    Ok(GpuDevice {
        vendor: GpuVendor::Nvidia,
        vendor_ordinal: ordinal as u32,
        gpu_class,
        compute_units: units.max(0) as u32,
        memory_bytes: memory as u64,
        name: name(device)?,
    })
}

/// Longer names than [`result::device::get_name`] takes end without a NUL in some drivers, which it panics at.
fn name(device: sys::CUdevice) -> std::result::Result<String, DriverError> {
    let mut bytes = [0u8; 256];
    // SAFETY: the driver writes at most as many bytes as it is told, which leaves a NUL at the end.
    unsafe { sys::cuDeviceGetName(bytes.as_mut_ptr().cast(), 255, device).result() }?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
