//! The GPUs that this process can drive.

use std::ffi::{c_char, c_void};

use crate::base::{Result, err};
use crate::system::gpu::{self, GpuDevice};

use super::capabilities::uform_gpu_class_t;
use super::error::{uform_error_t, uform_status_t};
use super::guard::guard;
use super::handle;

/// The vendor whose runtime drives a GPU. Zero is unknown.
pub type uform_gpu_vendor_t = i32;

/// NVIDIA, through the CUDA driver.
pub const UFORM_GPU_VENDOR_NVIDIA: uform_gpu_vendor_t = 1;
/// AMD, through the HIP runtime.
pub const UFORM_GPU_VENDOR_AMD: uform_gpu_vendor_t = 2;
/// Apple, through Metal.
pub const UFORM_GPU_VENDOR_APPLE: uform_gpu_vendor_t = 3;

/// Bytes of a device's name, its terminating zero included.
pub const UFORM_GPU_NAME_CAPACITY: usize = 256;

/// One GPU. Its position in what `uform_gpu_devices` lists is the ordinal that executors and models name it by.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_gpu_device_t {
    /// The vendor whose runtime drives it.
    pub vendor: uform_gpu_vendor_t,
    /// Its ordinal in that runtime.
    pub vendor_ordinal: u32,
    /// The class whose kernels run on it.
    pub gpu_class: uform_gpu_class_t,
    /// Streaming multiprocessors or compute units.
    pub compute_units: u32,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// The vendor's name for it, in UTF-8, zero-terminated, cut at a character boundary if it is too long.
    pub name: [c_char; UFORM_GPU_NAME_CAPACITY],
}

/// Lists the GPUs that this process can drive and this build has kernels for: NVIDIA's first, then AMD's. `devices`
/// has room for `capacity` structures of `device_size` bytes each, the size that the caller compiled; it may be NULL
/// when the capacity is zero. `count_out` receives how many GPUs there are, which may exceed the capacity. A vendor
/// whose runtime is absent has none.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_gpu_devices(
    devices: *mut uform_gpu_device_t,
    device_size: usize,
    capacity: usize,
    count_out: *mut usize,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe { guard(error, || list(devices.cast(), device_size, capacity, count_out)) }
}

/// # Safety
/// `devices` addresses `capacity` · `device_size` writable bytes, unless one of them is zero.
unsafe fn list(
    devices: *mut c_void,
    device_size: usize,
    capacity: usize,
    count_out: *mut usize,
) -> Result<()> {
    if capacity != 0 && (devices.is_null() || !(1..=1 << 16).contains(&device_size)) {
        return err!(
            InvalidArgument,
            "devices: capacity is {capacity}, but the pointer is NULL or device_size, {device_size}, is not sizeof \
             the structure"
        );
    }
    let found = gpu::devices()?;
    for (index, device) in found.iter().take(capacity).enumerate() {
        let entry = convert(device);
        let size = device_size.min(size_of::<uform_gpu_device_t>());
        // SAFETY: inside the array by the caller's promise, and no more bytes than either side has.
        unsafe {
            let to = devices.cast::<u8>().add(index * device_size);
            std::ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), to, size);
            std::ptr::write_bytes(to.add(size), 0, device_size - size);
        }
    }
    // SAFETY: the caller's promise is ours.
    unsafe { handle::write(count_out, "count_out", found.len()) }
}

fn convert(device: &GpuDevice) -> uform_gpu_device_t {
    let mut name = [0; UFORM_GPU_NAME_CAPACITY];
    let text = &device.name[..device.name.floor_char_boundary(UFORM_GPU_NAME_CAPACITY - 1)];
    for (to, from) in name.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    uform_gpu_device_t {
        vendor: device.vendor as uform_gpu_vendor_t,
        vendor_ordinal: device.vendor_ordinal,
        gpu_class: device.gpu_class.map_or(0, |class| class as uform_gpu_class_t),
        compute_units: device.compute_units,
        memory_bytes: device.memory_bytes,
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::gpu::GpuVendor;

    #[test]
    fn long_names_are_cut_before_a_character_that_does_not_fit() {
        let converted = |name: &str| {
            let name = name.to_owned();
            let (vendor, gpu_class) = (GpuVendor::Nvidia, None);
            let device =
                GpuDevice { vendor, vendor_ordinal: 3, gpu_class, compute_units: 0, memory_bytes: 0, name };
            let bytes = convert(&device).name.map(|byte| byte as u8);
            let end = bytes.iter().position(|byte| *byte == 0).expect("a zero at the end");
            String::from_utf8(bytes[..end].to_vec()).expect("whole characters")
        };
        assert_eq!(converted("GPU"), "GPU");
        assert_eq!(converted(&"x".repeat(255)), "x".repeat(255));
        assert_eq!(converted(&format!("{}é", "x".repeat(254))), "x".repeat(254));
        assert_eq!(converted(&"é".repeat(200)), "é".repeat(127));
    }
}
