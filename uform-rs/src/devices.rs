//! The GPUs of this machine.

use std::fmt;

use crate::classes::{GPUClass, GPUVendor};
use crate::error::{Result, call};
use crate::sys;

/// One GPU. Its position in what [`gpu_devices`] lists is the ordinal that executors and models name it by.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct GPUDevice(sys::uform_gpu_device_t);

impl GPUDevice {
    /// The maker whose runtime drives it; `None` in a value that no device was written to.
    pub fn vendor(&self) -> Option<GPUVendor> {
        GPUVendor::from_number(self.0.vendor)
    }

    /// Its ordinal in that runtime, as `nvidia-smi` or `rocm-smi` count.
    pub fn vendor_ordinal(&self) -> u32 {
        self.0.vendor_ordinal
    }

    /// The class whose kernels run on it.
    pub fn gpu_class(&self) -> Option<GPUClass> {
        GPUClass::from_number(self.0.gpu_class)
    }

    /// Its streaming multiprocessors or compute units.
    pub fn compute_units(&self) -> u32 {
        self.0.compute_units
    }

    /// Bytes of its memory.
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes
    }

    /// The maker's name for it, cut at a character boundary if it is too long.
    pub fn name(&self) -> &str {
        let name = &self.0.name;
        // SAFETY: `c_char` and `u8` have the same size, and every byte is a value of either.
        let bytes = unsafe { std::slice::from_raw_parts(name.as_ptr().cast::<u8>(), name.len()) };
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or(&[]);
        match std::str::from_utf8(text) {
            Ok(name) => name,
            Err(error) => std::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or(""),
        }
    }
}

impl Default for GPUDevice {
    fn default() -> Self {
        Self(sys::uform_gpu_device_t {
            vendor: 0,
            vendor_ordinal: 0,
            gpu_class: 0,
            compute_units: 0,
            memory_bytes: 0,
            name: [0; sys::UFORM_GPU_NAME_CAPACITY as usize],
        })
    }
}

impl fmt::Debug for GPUDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("GPUDevice")
            .field("vendor", &self.vendor())
            .field("vendor_ordinal", &self.vendor_ordinal())
            .field("gpu_class", &self.gpu_class())
            .field("compute_units", &self.compute_units())
            .field("memory_bytes", &self.memory_bytes())
            .field("name", &self.name())
            .finish()
    }
}

/// Writes the GPUs that this process can drive and this build has kernels for into `devices`, NVIDIA's first, then
/// AMD's, and says how many there are, which may be more than `devices` has room for. A vendor whose runtime is absent
/// has none, so that a machine without GPUs answers zero.
///
/// Calls `uform_gpu_devices`.
pub fn gpu_devices(devices: &mut [GPUDevice]) -> Result<usize> {
    let mut count = 0;
    // SAFETY: `GPUDevice` is laid out as the C structure, and the slice has room for as many as it says.
    call(|error| unsafe {
        sys::uform_gpu_devices(
            devices.as_mut_ptr().cast(),
            size_of::<sys::uform_gpu_device_t>(),
            devices.len(),
            &mut count,
            error,
        )
    })?;
    Ok(count)
}
