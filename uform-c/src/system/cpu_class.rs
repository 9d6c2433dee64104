//! The CPU classes: one row each, with all that there is to know about a class outside its kernels.

use std::fmt;
use std::str::FromStr;

use crate::base::{Error, Result, err};

use super::cpu_features::Features;

/// The instruction sets that classes belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Architecture {
    /// Any processor.
    Any,
    /// 64-bit x86.
    X86,
    /// 64-bit Arm.
    Arm,
    /// 64-bit RISC-V.
    RiscV,
    /// WebAssembly with 32-bit addresses.
    Wasm32,
    /// WebAssembly with 64-bit addresses.
    Wasm64,
}

impl Architecture {
    /// Whether this build is for it.
    pub const fn is_built(self) -> bool {
        match self {
            Self::Any => true,
            Self::X86 => cfg!(target_arch = "x86_64"),
            Self::Arm => cfg!(target_arch = "aarch64"),
            Self::RiscV => cfg!(target_arch = "riscv64"),
            // Modules cannot ask for instructions at run time: without them in the build, the class is not there.
            Self::Wasm32 => cfg!(all(target_arch = "wasm32", target_feature = "simd128")),
            Self::Wasm64 => cfg!(all(target_arch = "wasm64", target_feature = "relaxed-simd")),
        }
    }
}

/// All that is known of a class outside its kernels.
pub(super) struct Row {
    pub(super) class: CpuClass,
    pub(super) name: &'static str,
    pub(super) architecture: Architecture,
    /// What the processor and the operating system must offer beyond what the parent needs.
    pub(super) features: Features,
    /// The class whose kernels serve where this one has none of its own.
    pub(super) parent: Option<CpuClass>,
}

impl Row {
    /// What the class and all its ancestors need.
    const fn needs(&self) -> Features {
        match self.parent {
            None => self.features,
            Some(parent) => self.features.with(parent.row().needs()),
        }
    }
}

macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident = $number:literal, $name:literal, $architecture:ident, [$($feature:ident)*], $parent:expr;)*) => {
        /// The processor families that kernels are tuned for, numbered as the C ABI numbers them.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        pub enum CpuClass { $($(#[$doc])* $class = $number,)* }

        pub(super) const ROWS: &[Row] = &[$(Row {
            class: CpuClass::$class,
            name: $name,
            architecture: Architecture::$architecture,
            features: Features::NONE$(.with(Features::$feature))*,
            parent: $parent,
        },)*];
    };
}

classes! {
    /// The portable floor: scalar code.
    Serial = 1, "serial", Any, [], None;
    /// x86 with AVX2 and FMA.
    IntelHaswell = 2, "intel-haswell", X86, [AVX2 FMA F16C BMI], Some(CpuClass::Serial);
    /// x86 with the 256-bit dot products of the efficiency-core Xeons, and no AVX-512.
    IntelSierra = 3, "intel-sierra", X86, [AVX_VNNI AVX_VNNI_INT8 AVX_NE_CONVERT AVX_IFMA], Some(CpuClass::IntelHaswell);
    /// x86 with the AVX-512 of Skylake servers.
    IntelSkylake = 4, "intel-skylake", X86, [AVX512], Some(CpuClass::IntelHaswell);
    /// x86 with AVX-512 VNNI, VBMI and VPOPCNTDQ.
    IntelIcelake = 5, "intel-icelake", X86, [AVX512_VNNI AVX512_BITS], Some(CpuClass::IntelSkylake);
    /// x86 with bf16 dot products over AVX-512: Zen 4 and later.
    AmdGenoa = 6, "amd-genoa", X86, [AVX512_BF16], Some(CpuClass::IntelIcelake);
    /// x86 with AVX-512 FP16 and the bf16 and i8 tiles of AMX.
    IntelSapphire = 7, "intel-sapphire", X86, [AVX512_FP16 AMX], Some(CpuClass::AmdGenoa);
    /// x86 with the f16 tiles of AMX besides.
    IntelGranite = 8, "intel-granite", X86, [AMX_FP16], Some(CpuClass::IntelSapphire);
    /// x86 with AVX10.2 and its 8-bit floating point conversions.
    IntelDiamond = 9, "intel-diamond", X86, [AVX10_2], Some(CpuClass::IntelGranite);
    /// 64-bit Arm with NEON and nothing more.
    AwsG2 = 10, "aws-g2", Arm, [NEON], Some(CpuClass::Serial);
    /// Arm from version 8.6 on: NEON with dot products, i8 matrix products, bf16 and f16 arithmetic.
    AppleM2 = 11, "apple-m2", Arm, [DOT_PRODUCT I8MM BF16 FP16], Some(CpuClass::AwsG2);
    /// The same with the outer-product tiles of SME.
    AppleM4 = 12, "apple-m4", Arm, [SME], Some(CpuClass::AppleM2);
    /// Arm of version 9 with SVE2 vectors: Neoverse V2, V3 and their kin.
    AwsG5 = 13, "aws-g5", Arm, [SVE2], Some(CpuClass::AppleM2);
    /// The same with 8-bit floating point dot products.
    NvidiaVera = 14, "nvidia-vera", Arm, [FP8_DOT], Some(CpuClass::AwsG5);
    /// RISC-V with the vectors of the RVA23 profile.
    AlibabaC930 = 15, "alibaba-c930", RiscV, [RVA23_VECTORS], Some(CpuClass::Serial);
    /// WebAssembly with 128-bit vectors, 32-bit addresses and one thread.
    Wasm32V128 = 16, "wasm32-v128", Wasm32, [], Some(CpuClass::Serial);
    /// WebAssembly with relaxed vectors, shared memory and 64-bit addresses.
    Wasm64Extended = 17, "wasm64-extended", Wasm64, [], Some(CpuClass::Serial);
    /// The only class of a build for one kind of machine, which the cargo feature `monoversioned` makes: it has the kernels of
    /// [`BUILT_FOR`] and needs all that the build may use.
    Monoversioned = 18, "monoversioned", Any, [], Some(CpuClass::Serial);
}

/// The widest of the classes that are chosen at run time for which the target features of this build suffice.
pub const BUILT_FOR: CpuClass = {
    let (mut widest, mut position) = (CpuClass::Serial, 0);
    // The last row is that of `Monoversioned`; numbers grow with the instructions inside an architecture.
    while position + 1 < ROWS.len() {
        let row = &ROWS[position];
        if row.architecture.is_built() && Features::OF_BUILD.contains(row.needs()) {
            widest = row.class;
        }
        position += 1;
    }
    widest
};

impl CpuClass {
    /// Every class, by number.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.class)
    }

    /// The class of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::all().find(|class| *class as u32 == number)
    }

    /// Its name in the ABI, in files and in messages.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The class of that name; `InvalidArgument` with all names when there is none.
    pub fn parse(name: &str) -> Result<Self> {
        match ROWS.iter().find(|row| row.name == name) {
            Some(row) => Ok(row.class),
            None => err!(InvalidArgument, "unknown CPU class {name:?}; known are {}", names(Self::all())),
        }
    }

    /// The class whose kernels serve where this one has none of its own; `Serial` has no parent.
    pub const fn parent(self) -> Option<Self> {
        match self {
            Self::Monoversioned => Some(BUILT_FOR),
            _ => self.row().parent,
        }
    }

    /// The instruction set that it belongs to.
    pub fn architecture(self) -> Architecture {
        self.row().architecture
    }

    /// Whether this build holds kernels that serve it, its own or inherited ones. One for one kind of machine has no other class
    /// than `Monoversioned`, and all others have all but that.
    pub fn is_compiled(self) -> bool {
        (self == Self::Monoversioned) == cfg!(feature = "monoversioned") && self.architecture().is_built()
    }

    /// Whether this build and a machine with `features` can run it.
    pub(super) fn runs_with(self, features: Features) -> bool {
        let needs = match self {
            Self::Monoversioned => Features::OF_BUILD,
            _ => self.row().needs(),
        };
        self.is_compiled() && features.contains(needs)
    }

    const fn row(self) -> &'static Row {
        // Rows are in the order of the numbers, which start at one; a test holds that.
        &ROWS[self as usize - 1]
    }
}

impl fmt::Display for CpuClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for CpuClass {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::parse(name)
    }
}

/// The names of `classes`, comma-separated without spaces.
pub(super) fn names(classes: impl Iterator<Item = CpuClass>) -> String {
    classes.map(CpuClass::name).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_their_numbers_and_names_parse_back() {
        for (position, row) in ROWS.iter().enumerate() {
            assert_eq!(row.class as usize, position + 1);
            assert_eq!(CpuClass::from_number(position as u32 + 1), Some(row.class));
            assert_eq!(CpuClass::parse(row.name).unwrap(), row.class);
            assert_eq!(row.class.to_string(), row.name);
        }
        assert_eq!(ROWS.len(), 18);
        assert_eq!(CpuClass::from_number(0), None);
        assert_eq!(CpuClass::from_number(19), None);
    }

    #[test]
    fn every_line_of_parents_ends_at_serial_within_one_architecture() {
        for class in CpuClass::all() {
            let mut last = class;
            while let Some(parent) = last.parent() {
                assert!(parent < last, "{parent} is not below {last}");
                let within = parent.architecture() == class.architecture() || last == CpuClass::Monoversioned;
                assert!(parent == CpuClass::Serial || within || class == CpuClass::Monoversioned);
                last = parent;
            }
            assert_eq!(last, CpuClass::Serial);
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let error = CpuClass::parse("intel-nehalem").unwrap_err();
        assert_eq!(error.status, crate::base::Status::InvalidArgument);
        assert!(error.message.contains("\"intel-nehalem\"") && error.message.contains("apple-m4"), "{error}");
    }
}
