//! Listing GPUs against drivers that are good, empty, broken and too old. The drivers are small C libraries, built here
//! and put in the way of the real one, since a machine that runs these tests rarely has a GPU.
#![cfg(all(feature = "cuda", target_os = "linux"))]

use std::process::Command;

use uform_c::system::gpu::{GpuClass, GpuDevice, devices, devices_found};

const FUNCTIONS: &str = r#"
#include <string.h>
int cuInit(unsigned flags) { return INIT; }
int cuGetErrorString(int status, char const **text) { *text = "an error"; return 0; }
int cuGetErrorName(int status, char const **text) { *text = "ERROR"; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal + 10; return 0; }
int cuDeviceGetName(char *name, int length, int device) {
    if (device == 10) { strncpy(name, "NVIDIA H200", length); return 0; }
    memset(name, 'x', length);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 16 ? 132 : attribute == 75 ? (device == 10 ? 9 : 7) : attribute == 76 ? 0 : -1;
    return 0;
}
#ifndef OLD
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)141 << 30; return 0; }
#endif
"#;

fn described(devices: &[GpuDevice]) -> String {
    let line = |device: &GpuDevice| {
        let class = device.gpu_class.map_or("none", GpuClass::name);
        let GpuDevice { vendor_ordinal, compute_units, memory_bytes, name, .. } = device;
        format!("{vendor_ordinal} {class} {compute_units} {} {name}\n", memory_bytes >> 30)
    };
    devices.iter().map(line).collect()
}

/// Runs this test binary again with a driver that was compiled from `source` in its way; what it found and logged.
fn found_with(flags: &[&str], source: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("driver.c");
    std::fs::write(&file, source).unwrap();
    // The name without a version is looked for first.
    let library = directory.path().join("libcuda.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(&library)
        .args(flags)
        .arg(&file)
        .status();
    assert!(compiled.unwrap().success());
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lists_what_the_driver_in_the_way_says", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", directory.path())
        .output()
        .unwrap();
    let output = String::from_utf8(child.stdout).unwrap();
    assert!(child.status.success(), "{output}{}", String::from_utf8_lossy(&child.stderr));
    assert!(!String::from_utf8_lossy(&child.stderr).contains("panicked"));
    output
}

#[test]
#[ignore = "is run by the others with a driver of theirs"]
fn lists_what_the_driver_in_the_way_says() {
    uform_c::base::log::set_sink(Some(std::sync::Arc::new(|warning: &str| println!("warned: {warning}"))));
    print!("found:\n{}listed: {}\n", described(&devices_found()), devices().unwrap().len());
}

#[test]
fn a_good_driver_lists_every_device_and_none_without_kernels() {
    let output = found_with(&["-DINIT=0"], FUNCTIONS);
    assert!(output.contains("found:\n0 nvidia-hopper 132 141 NVIDIA H200\n"), "{output}");
    assert!(output.contains(&format!("1 none 132 141 {}\nlisted: 0", "x".repeat(255))), "{output}");
    assert!(!output.contains("warned"), "{output}");
}

#[test]
fn a_driver_without_devices_lists_none() {
    let output = found_with(&["-DINIT=100"], FUNCTIONS);
    assert!(output.contains("found:\nlisted: 0") && !output.contains("warned"), "{output}");
}

#[test]
fn a_failing_driver_is_a_warning() {
    let output = found_with(&["-DINIT=999"], FUNCTIONS);
    assert!(output.contains("warned") && output.contains("listed: 0"), "{output}");
}

#[test]
fn an_old_driver_and_a_foreign_library_are_a_warning() {
    let output = found_with(&["-DINIT=0", "-DOLD"], FUNCTIONS);
    assert!(output.contains("no function cuDeviceTotalMem_v2") && output.contains("listed: 0"), "{output}");
    let output = found_with(&[], "int other;");
    assert!(output.contains("no function cuInit") && output.contains("listed: 0"), "{output}");
}
