//! Holds the public interface against the reference of executors, item by item: that this file compiles is the test of
//! signatures, fields and traits; numbers and defaults are compared when it runs.

use std::ffi::c_void;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::str::FromStr;

use uform::{CPUClass, Executor, GPUClass, GPUDevice, GPUVendor, Mood, Result, Status};

/// Items of the reference that come with the mesh's own issue.
const EXCUSED: [&str; 4] = ["Mesh", "MeshOptions", "MeshDescription", "MultimemTier"];

// Functions of the crate.
const _: fn() -> &'static str = uform::capabilities_compiled;
const _: fn() -> &'static str = uform::capabilities_available;
const _: fn(&mut [GPUDevice]) -> Result<usize> = uform::gpu_devices;

// Executor.
const _: fn(&[i32], Option<CPUClass>, usize, usize) -> Result<Executor> = Executor::for_ram;
const _: unsafe fn(&[i32], Option<CPUClass>, *mut c_void, usize) -> Result<Executor> = Executor::on_pool;
type ForVram = unsafe fn(
    &[i32],
    Option<GPUClass>,
    &[i32],
    Option<CPUClass>,
    &[*mut c_void],
    usize,
    usize,
) -> Result<Executor>;
const _: ForVram = Executor::for_vram;
const _: fn(&Executor, Mood) -> Result<()> = Executor::drain;

// GPUDevice.
const _: fn(&GPUDevice) -> Option<GPUVendor> = GPUDevice::vendor;
const _: fn(&GPUDevice) -> u32 = GPUDevice::vendor_ordinal;
const _: fn(&GPUDevice) -> Option<GPUClass> = GPUDevice::gpu_class;
const _: fn(&GPUDevice) -> u32 = GPUDevice::compute_units;
const _: fn(&GPUDevice) -> u64 = GPUDevice::memory_bytes;
const _: fn(&GPUDevice) -> &str = GPUDevice::name;

// Traits.
const fn class<T: Clone + Copy + PartialEq + Eq + Debug + Hash + Display + FromStr>() {}
const fn vendor<T: Clone + Copy + PartialEq + Eq + Debug + Hash>() {}
const fn device<T: Clone + Copy + Default + Debug>() {}
const fn executor<T: Debug + Send + Default>() {}
const _: () = {
    class::<CPUClass>();
    class::<GPUClass>();
    vendor::<GPUVendor>();
    device::<GPUDevice>();
    executor::<Executor>();
};

/// Compiles only while the type does not implement the trait: with it, the name would be ambiguous.
macro_rules! lacks {
    ($type:ty, $trait:path) => {
        const _: fn() = || {
            trait Ambiguous<Why> {
                fn name() {}
            }
            struct Implemented;
            impl<T: ?Sized> Ambiguous<()> for T {}
            impl<T: ?Sized + $trait> Ambiguous<Implemented> for T {}
            let _ = <$type as Ambiguous<_>>::name;
        };
    };
}
lacks!(Executor, Sync);
lacks!(Executor, Clone);

/// Every variant with its number; the match without a wildcard fails to compile when there is another one.
macro_rules! variants {
    ($type:ident, $test:ident, $($variant:ident = $number:literal)*) => {
        #[test]
        fn $test() {
            fn number(value: $type) -> i32 {
                match value {
                    $($type::$variant => $number,)*
                }
            }
            let listed = [$($type::$variant),*];
            assert_eq!($type::ALL, listed);
            for value in listed {
                assert_eq!((value as i32, value.number()), (number(value), number(value)), "{value:?}");
                assert_eq!($type::from_number(number(value)), Some(value));
            }
        }
    };
}

variants!(CPUClass, cpu_classes,
    Serial = 1 IntelHaswell = 2 IntelSierra = 3 IntelSkylake = 4 IntelIcelake = 5 AmdGenoa = 6 IntelSapphire = 7
    IntelGranite = 8 IntelDiamond = 9 AwsG2 = 10 AppleM2 = 11 AppleM4 = 12 AwsG5 = 13 NvidiaVera = 14
    AlibabaC930 = 15 Wasm32V128 = 16 Wasm64Extended = 17 Monoversioned = 18
);
variants!(GPUClass, gpu_classes,
    NvidiaAmpere = 1 NvidiaAda = 2 NvidiaHopper = 3 NvidiaBlackwell = 4 NvidiaBlackwellRtx = 5 NvidiaRubin = 6
    AmdCdna3 = 7 AmdCdna4 = 8 AmdCdna5 = 9 AppleMetal7 = 10 AppleMetal9 = 11 AppleMetal10 = 12
);
variants!(GPUVendor, gpu_vendors, Nvidia = 1 Amd = 2 Apple = 3);
variants!(Mood, moods, Parked = 0 Spinning = 1);

#[test]
fn spellings_of_the_classes() {
    let cpus = "serial intel-haswell intel-sierra intel-skylake intel-icelake amd-genoa intel-sapphire intel-granite \
                intel-diamond aws-g2 apple-m2 apple-m4 aws-g5 nvidia-vera alibaba-c930 wasm32-v128 wasm64-extended \
                monoversioned";
    let gpus = "nvidia-ampere nvidia-ada nvidia-hopper nvidia-blackwell nvidia-blackwell-rtx nvidia-rubin amd-cdna3 \
                amd-cdna4 amd-cdna5 apple-metal7 apple-metal9 apple-metal10";
    assert_eq!(cpus.split(' ').count(), CPUClass::ALL.len());
    assert_eq!(gpus.split(' ').count(), GPUClass::ALL.len());
    for (name, class) in cpus.split(' ').zip(CPUClass::ALL) {
        assert_eq!((class.to_string().as_str(), name.parse()), (name, Ok(*class)));
    }
    for (name, class) in gpus.split(' ').zip(GPUClass::ALL) {
        assert_eq!((class.to_string().as_str(), name.parse()), (name, Ok(*class)));
    }
    let error = "z80".parse::<CPUClass>().unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("intel-haswell"), "{error}");
    assert!("".parse::<GPUClass>().is_err());
}

#[test]
fn a_device_that_was_never_written_is_unknown() {
    let device = GPUDevice::default();
    assert_eq!((device.vendor(), device.gpu_class()), (None, None));
    assert_eq!((device.vendor_ordinal(), device.compute_units(), device.memory_bytes()), (0, 0, 0));
    assert_eq!(device.name(), "");
}

#[test]
fn devices_are_counted_beyond_the_room_for_them() {
    let count = uform::gpu_devices(&mut []).unwrap();
    let mut devices = vec![GPUDevice::default(); count + 1];
    assert_eq!(uform::gpu_devices(&mut devices).unwrap(), count);
    assert!(devices[..count].iter().all(|device| device.vendor().is_some() && !device.name().is_empty()));
    assert_eq!(devices[count].vendor(), None);
}

#[test]
fn only_the_mesh_is_missing() {
    let exported = include_str!("../src/lib.rs");
    for name in EXCUSED {
        assert!(!exported.contains(name), "{name} is there now: hold it against the reference instead");
    }
}
