//! GPU classes, and the GPUs that the vendors' drivers list. Drivers are bound at run time; where there is none, or
//! one that cannot be used, there are no devices.

use std::fmt;
use std::str::FromStr;

use crate::base::{Error, Result, err};

/// Who made a GPU, numbered as the C ABI numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
pub enum GpuVendor {
    /// NVIDIA, through the CUDA driver.
    Nvidia = 1,
    /// AMD, through the HIP runtime.
    Amd = 2,
    /// Apple, through Metal.
    Apple = 3,
}

macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident = $number:literal, $name:literal;)*) => {
        /// The GPU families that kernels are tuned for, numbered as the C ABI numbers them.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        pub enum GpuClass { $($(#[$doc])* $class = $number,)* }

        static ROWS: &[(GpuClass, &str)] = &[$((GpuClass::$class, $name),)*];
    };
}

classes! {
    /// NVIDIA from compute capability 8.0 on, where no other class fits.
    NvidiaAmpere = 1, "nvidia-ampere";
    /// NVIDIA Ada, with conversions of 8-bit floating point numbers.
    NvidiaAda = 2, "nvidia-ada";
    /// NVIDIA Hopper.
    NvidiaHopper = 3, "nvidia-hopper";
    /// NVIDIA Blackwell for servers.
    NvidiaBlackwell = 4, "nvidia-blackwell";
    /// NVIDIA Blackwell for workstations and consumers.
    NvidiaBlackwellRtx = 5, "nvidia-blackwell-rtx";
    /// NVIDIA Rubin.
    NvidiaRubin = 6, "nvidia-rubin";
    /// AMD CDNA 3, with its own encoding of 8-bit floating point numbers.
    AmdCdna3 = 7, "amd-cdna3";
    /// AMD CDNA 4, with the common encoding.
    AmdCdna4 = 8, "amd-cdna4";
    /// AMD CDNA 5.
    AmdCdna5 = 9, "amd-cdna5";
    /// Apple's GPU family 7, and every GPU of Apple's where no other class fits.
    AppleMetal7 = 10, "apple-metal7";
    /// Apple's GPU family 9.
    AppleMetal9 = 11, "apple-metal9";
    /// Apple's GPU family 10.
    AppleMetal10 = 12, "apple-metal10";
}

impl GpuClass {
    /// Every class, by number.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|(class, ..)| *class)
    }

    /// The class of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::all().find(|class| *class as u32 == number)
    }

    /// Its name in the ABI, in files and in messages.
    pub fn name(self) -> &'static str {
        // Rows are in the order of the numbers, which start at one; a test holds that.
        ROWS[self as usize - 1].1
    }

    /// The class of that name; `InvalidArgument` with all names when there is none.
    pub fn parse(name: &str) -> Result<Self> {
        match Self::all().find(|class| class.name() == name) {
            Some(class) => Ok(class),
            None => {
                let known: Vec<&str> = Self::all().map(Self::name).collect();
                err!(InvalidArgument, "unknown GPU class {name:?}; known are {}", known.join(","))
            }
        }
    }

    /// Whether this build has kernels for it. None yet: they come with the executors in VRAM.
    pub fn is_compiled(self) -> bool {
        false
    }

    /// The class of an NVIDIA GPU of that compute capability; none before 8.0.
    pub fn of_compute_capability(major: i32, minor: i32) -> Option<Self> {
        match (major, minor) {
            (..8, _) => None,
            (8, 9) => Some(Self::NvidiaAda),
            (9, _) => Some(Self::NvidiaHopper),
            (10, 7) => Some(Self::NvidiaRubin),
            (10, _) => Some(Self::NvidiaBlackwell),
            (12, _) => Some(Self::NvidiaBlackwellRtx),
            _ => Some(Self::NvidiaAmpere),
        }
    }
}

impl fmt::Display for GpuClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for GpuClass {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::parse(name)
    }
}

/// A GPU as its vendor's driver describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuDevice {
    /// Whose driver lists it.
    pub vendor: GpuVendor,
    /// Its number in that driver.
    pub vendor_ordinal: u32,
    /// The class whose kernels would run on it; none when it is too old for any.
    pub gpu_class: Option<GpuClass>,
    /// Streaming multiprocessors or compute units.
    pub compute_units: u32,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// The vendor's name for it.
    pub name: String,
}

/// The GPUs that this build has kernels for, NVIDIA's first, then AMD's, each by the driver's numbers. Any thread.
pub fn devices() -> Result<Vec<GpuDevice>> {
    Ok(usable(devices_found(), GpuClass::is_compiled))
}

/// Those of `devices` whose class is `compiled`.
pub fn usable(devices: Vec<GpuDevice>, compiled: impl Fn(GpuClass) -> bool) -> Vec<GpuDevice> {
    devices.into_iter().filter(|device| device.gpu_class.is_some_and(&compiled)).collect()
}

/// Every GPU that a driver of this machine lists, whether this build can use it or not. A driver that is missing, broken or
/// too old lists none, with a warning to the log when it is there. Any thread.
pub fn devices_found() -> Vec<GpuDevice> {
    #[cfg(all(feature = "cuda", not(target_family = "wasm")))]
    match super::cuda::devices() {
        Ok(devices) => return devices,
        Err(error) => crate::base::log::warn(&format!("the CUDA driver lists no devices: {error}")),
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_their_numbers_and_names_parse_back() {
        for (position, (class, name)) in ROWS.iter().enumerate() {
            assert_eq!(*class as usize, position + 1);
            assert_eq!(GpuClass::from_number(position as u32 + 1), Some(*class));
            assert_eq!(name.parse::<GpuClass>().unwrap(), *class);
            assert_eq!(class.name(), *name);
        }
        assert_eq!(ROWS.len(), 12);
        assert!(GpuClass::parse("nvidia-volta").unwrap_err().message.contains("apple-metal10"));
    }

    #[test]
    fn compute_capabilities_have_their_classes() {
        let class = GpuClass::of_compute_capability;
        assert_eq!(class(7, 5), None);
        assert_eq!(class(8, 0), Some(GpuClass::NvidiaAmpere));
        assert_eq!(class(8, 6), Some(GpuClass::NvidiaAmpere));
        assert_eq!(class(8, 9), Some(GpuClass::NvidiaAda));
        assert_eq!(class(9, 0), Some(GpuClass::NvidiaHopper));
        assert_eq!(class(10, 3), Some(GpuClass::NvidiaBlackwell));
        assert_eq!(class(11, 0), Some(GpuClass::NvidiaAmpere));
        assert_eq!(class(12, 1), Some(GpuClass::NvidiaBlackwellRtx));
        assert_eq!(class(13, 0), Some(GpuClass::NvidiaAmpere));
    }

    #[test]
    fn only_devices_with_kernels_are_listed() {
        let device = |vendor_ordinal, gpu_class| GpuDevice {
            vendor: GpuVendor::Nvidia,
            vendor_ordinal,
            gpu_class,
            compute_units: 1,
            memory_bytes: 1,
            name: "GPU".into(),
        };
        let found = vec![
            device(0, None),
            device(1, Some(GpuClass::NvidiaAda)),
            device(2, Some(GpuClass::NvidiaHopper)),
        ];
        let kept = usable(found.clone(), |class| class == GpuClass::NvidiaHopper);
        assert_eq!(kept, [device(2, Some(GpuClass::NvidiaHopper))]);
        assert!(usable(found, GpuClass::is_compiled).is_empty());
    }
}
