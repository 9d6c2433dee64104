//! What the processor offers and the operating system saves on a switch of threads.
//!
//! An instruction may be used when its CPUID bit is set and the system saves the registers that it touches (XCR0). The
//! tiles of AMX besides need the leave of Linux, which is asked for here.

/// A set of things that a class may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Features(u32);

impl Features {
    pub(super) const NONE: Self = Self(0);
    pub(super) const AVX2: Self = Self(1 << 0);
    pub(super) const FMA: Self = Self(1 << 1);
    pub(super) const F16C: Self = Self(1 << 2);
    /// BMI1, BMI2, LZCNT and POPCNT.
    pub(super) const BMI: Self = Self(1 << 3);
    pub(super) const AVX_VNNI: Self = Self(1 << 4);
    pub(super) const AVX_VNNI_INT8: Self = Self(1 << 5);
    pub(super) const AVX_NE_CONVERT: Self = Self(1 << 6);
    pub(super) const AVX_IFMA: Self = Self(1 << 7);
    /// AVX-512 F, CD, BW, DQ and VL.
    pub(super) const AVX512: Self = Self(1 << 8);
    pub(super) const AVX512_VNNI: Self = Self(1 << 9);
    /// AVX-512 IFMA, VBMI, VBMI2, BITALG and VPOPCNTDQ.
    pub(super) const AVX512_BITS: Self = Self(1 << 10);
    pub(super) const AVX512_BF16: Self = Self(1 << 11);
    pub(super) const AVX512_FP16: Self = Self(1 << 12);
    /// AMX tiles with bf16 and i8 products.
    pub(super) const AMX: Self = Self(1 << 13);
    pub(super) const AMX_FP16: Self = Self(1 << 14);
    pub(super) const AVX10_2: Self = Self(1 << 15);
    pub(super) const NEON: Self = Self(1 << 16);
    pub(super) const DOT_PRODUCT: Self = Self(1 << 17);
    pub(super) const I8MM: Self = Self(1 << 18);
    pub(super) const BF16: Self = Self(1 << 19);
    /// Arithmetic on f16 and its multiply-add into f32.
    pub(super) const FP16: Self = Self(1 << 20);
    pub(super) const SME: Self = Self(1 << 21);
    pub(super) const SVE2: Self = Self(1 << 22);
    pub(super) const FP8_DOT: Self = Self(1 << 23);
    /// V, Zvfhmin and Zvbb.
    pub(super) const RVA23_VECTORS: Self = Self(1 << 24);

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn contains(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    const fn of(found: &[(bool, Self)]) -> Self {
        let (mut all, mut position) = (Self::NONE, 0);
        while position < found.len() {
            if found[position].0 {
                all = all.with(found[position].1);
            }
            position += 1;
        }
        all
    }

    /// What the compiler may use wherever it likes in this build: its target features. Those that Rust does not tell of yet, as
    /// AMX and SME, are not among them.
    pub(super) const OF_BUILD: Self = Self::of(&[
        (cfg!(target_feature = "avx2"), Self::AVX2),
        (cfg!(target_feature = "fma"), Self::FMA),
        (cfg!(target_feature = "f16c"), Self::F16C),
        (
            cfg!(all(
                target_feature = "bmi1",
                target_feature = "bmi2",
                target_feature = "lzcnt",
                target_feature = "popcnt"
            )),
            Self::BMI,
        ),
        (cfg!(target_feature = "avxvnni"), Self::AVX_VNNI),
        (cfg!(target_feature = "avxvnniint8"), Self::AVX_VNNI_INT8),
        (cfg!(target_feature = "avxneconvert"), Self::AVX_NE_CONVERT),
        (cfg!(target_feature = "avxifma"), Self::AVX_IFMA),
        (
            cfg!(all(
                target_feature = "avx512f",
                target_feature = "avx512cd",
                target_feature = "avx512bw",
                target_feature = "avx512dq",
                target_feature = "avx512vl"
            )),
            Self::AVX512,
        ),
        (cfg!(target_feature = "avx512vnni"), Self::AVX512_VNNI),
        (
            cfg!(all(
                target_feature = "avx512ifma",
                target_feature = "avx512vbmi",
                target_feature = "avx512vbmi2",
                target_feature = "avx512bitalg",
                target_feature = "avx512vpopcntdq"
            )),
            Self::AVX512_BITS,
        ),
        (cfg!(target_feature = "avx512bf16"), Self::AVX512_BF16),
        (cfg!(target_feature = "avx512fp16"), Self::AVX512_FP16),
        (cfg!(target_feature = "neon"), Self::NEON),
        (cfg!(target_feature = "dotprod"), Self::DOT_PRODUCT),
        (cfg!(target_feature = "i8mm"), Self::I8MM),
        (cfg!(target_feature = "bf16"), Self::BF16),
        (cfg!(all(target_feature = "fp16", target_feature = "fhm")), Self::FP16),
        (cfg!(target_feature = "sve2"), Self::SVE2),
    ]);

    /// What this machine offers.
    pub(super) fn of_machine() -> Self {
        machine()
    }
}

/// One answer of the instruction CPUID.
#[derive(Clone, Copy, Default)]
#[cfg_attr(not(any(target_arch = "x86_64", test)), allow(dead_code))]
struct Leaf {
    eax: u32,
    ebx: u32,
    ecx: u32,
    edx: u32,
}

/// What an x86 offers, from CPUID (`leaf`, `subleaf`), from XCR0, which `xcr0` reads where the processor has it, and
/// from whether the system lends the tiles of AMX, asked only when all else is there.
/// Bits as in the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID, and the
/// Intel Advanced Vector Extensions 10.2 Architecture Specification.
#[cfg_attr(not(any(target_arch = "x86_64", test)), allow(dead_code))]
fn x86(
    cpuid: impl Fn(u32, u32) -> Leaf,
    xcr0: impl FnOnce() -> u64,
    tiles: impl FnOnce() -> bool,
) -> Features {
    let bit = |register: u32, position: u32| register >> position & 1 == 1;
    let bits = |register: u32, positions: &[u32]| positions.iter().all(|position| bit(register, *position));
    let highest = cpuid(0, 0).eax;
    let at = |leaf: u32, subleaf: u32| if leaf <= highest { cpuid(leaf, subleaf) } else { Leaf::default() };
    let one = at(1, 0);
    let seven = at(7, 0);
    let seven_one = if seven.eax >= 1 { at(7, 1) } else { Leaf::default() };
    let extended =
        if cpuid(0x8000_0000, 0).eax >= 0x8000_0001 { cpuid(0x8000_0001, 0) } else { Leaf::default() };
    let saved = if bit(one.ecx, 27) { xcr0() } else { 0 };
    let avx = saved & 0x6 == 0x6 && bit(one.ecx, 28);
    let avx512 = avx && saved & 0xe0 == 0xe0 && bits(seven.ebx, &[16, 17, 28, 30, 31]);
    let (palette, products) = (at(0x1d, 1), at(0x1e, 0).ebx);
    // Eight tiles of 16 rows of 64 bytes, and products of tiles as large.
    let large = palette.ebx >> 16 >= 8 && palette.ebx & 0xffff >= 64 && palette.ecx & 0xffff >= 16;
    let large = large && products & 0xff >= 16 && products >> 8 & 0xffff >= 64;
    let amx = saved & 0x6_0000 == 0x6_0000 && bits(seven.edx, &[22, 24, 25]) && large && tiles();
    let avx10 = bit(seven_one.edx, 19) && at(0x24, 0).ebx & 0xff >= 2;
    Features::of(&[
        (avx && bit(seven.ebx, 5), Features::AVX2),
        (avx && bit(one.ecx, 12), Features::FMA),
        (avx && bit(one.ecx, 29), Features::F16C),
        (bits(seven.ebx, &[3, 8]) && bit(one.ecx, 23) && bit(extended.ecx, 5), Features::BMI),
        (avx && bit(seven_one.eax, 4), Features::AVX_VNNI),
        (avx && bit(seven_one.edx, 4), Features::AVX_VNNI_INT8),
        (avx && bit(seven_one.edx, 5), Features::AVX_NE_CONVERT),
        (avx && bit(seven_one.eax, 23), Features::AVX_IFMA),
        (avx512, Features::AVX512),
        (avx512 && bit(seven.ecx, 11), Features::AVX512_VNNI),
        (avx512 && bit(seven.ebx, 21) && bits(seven.ecx, &[1, 6, 12, 14]), Features::AVX512_BITS),
        (avx512 && bit(seven_one.eax, 5), Features::AVX512_BF16),
        (avx512 && bit(seven.edx, 23), Features::AVX512_FP16),
        (amx, Features::AMX),
        (amx && bit(seven_one.eax, 21), Features::AMX_FP16),
        (avx512 && avx10, Features::AVX10_2),
    ])
}

#[cfg(target_arch = "x86_64")]
fn machine() -> Features {
    use std::arch::x86_64::{__cpuid_count, _xgetbv};

    #[target_feature(enable = "xsave")]
    fn xcr0() -> u64 {
        // SAFETY: register 0 exists wherever the instruction does.
        unsafe { _xgetbv(0) }
    }
    let cpuid = |leaf, subleaf| {
        let answer = __cpuid_count(leaf, subleaf);
        Leaf { eax: answer.eax, ebx: answer.ebx, ecx: answer.ecx, edx: answer.edx }
    };
    // SAFETY: `x86` calls it only when CPUID says that the system has switched the instruction on (OSXSAVE).
    // A build for one kind of machine has no kernels that use them.
    x86(cpuid, || unsafe { xcr0() }, || cfg!(not(feature = "monoversioned")) && tiles_are_lent())
}

/// Asks Linux to save the data of AMX tiles for this process, without which their first use is an illegal instruction
/// (Documentation/arch/x86/xstate). All its threads have it from then on, also those that run already, and the processes
/// that it forks. A thread that has a stack for signals which is too small for the tiles is a reason to refuse.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn ask_for_tiles() -> std::io::Result<()> {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    match unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether the system lends the tiles of AMX. A refusal is a warning in the log.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn tiles_are_lent() -> bool {
    let answer = ask_for_tiles();
    if let Err(error) = &answer {
        crate::base::log::warn(&format!(
            "Linux does not lend the tiles of AMX to this process, so that classes from intel-sapphire on cannot run: {error}"
        ));
    }
    answer.is_ok()
}

/// Elsewhere the tiles need no leave: what XCR0 shows may be used. Windows makes room for them where a thread first uses them
/// (EnableProcessOptionalXStateFeatures, which only does so at once).
#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn tiles_are_lent() -> bool {
    true
}

#[cfg(target_arch = "aarch64")]
fn machine() -> Features {
    use std::arch::is_aarch64_feature_detected as has;
    let says = |word, position, name, otherwise| arm_system_says(word, position, name).unwrap_or(otherwise);
    let half = says(1, 10, c"hw.optional.arm.FEAT_FP16", has!("fp16"));
    Features::of(&[
        // Every 64-bit Arm that Rust builds for has it.
        (cfg!(target_feature = "neon"), Features::NEON),
        (says(1, 20, c"hw.optional.arm.FEAT_DotProd", has!("dotprod")), Features::DOT_PRODUCT),
        (says(2, 13, c"hw.optional.arm.FEAT_I8MM", has!("i8mm")), Features::I8MM),
        (says(2, 14, c"hw.optional.arm.FEAT_BF16", has!("bf16")), Features::BF16),
        (half && says(1, 23, c"hw.optional.arm.FEAT_FHM", has!("fhm")), Features::FP16),
        (says(2, 1, c"hw.optional.arm.FEAT_SVE2", has!("sve2")), Features::SVE2),
        (says(2, 23, c"hw.optional.arm.FEAT_SME", false), Features::SME),
        (says(2, 53, c"hw.optional.arm.FEAT_FP8DOT4", false), Features::FP8_DOT),
    ])
}

/// Whether bit `position` of AT_HWCAP or, for `word` two, of AT_HWCAP2 is set (arch/arm64/include/uapi/asm/hwcap.h in Linux);
/// on macOS, whether the system variable `name` is one; nothing elsewhere. The standard library does not know all of them,
/// and takes for granted what the build may use.
#[cfg(target_arch = "aarch64")]
#[allow(unused_variables, reason = "each system has its own question")]
fn arm_system_says(word: u32, position: u32, name: &std::ffi::CStr) -> Option<bool> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let word = if word == 2 { libc::AT_HWCAP2 } else { libc::AT_HWCAP };
        // SAFETY: reads the vector that the kernel handed to this process.
        Some(unsafe { libc::getauxval(word) } >> position & 1 == 1)
    }
    #[cfg(target_vendor = "apple")]
    {
        let mut value: libc::c_int = 0;
        let mut size = size_of::<libc::c_int>();
        let value_pointer = std::ptr::from_mut(&mut value).cast();
        // SAFETY: the value and its size are ours, and the name ends in a NUL.
        let status =
            unsafe { libc::sysctlbyname(name.as_ptr(), value_pointer, &mut size, std::ptr::null_mut(), 0) };
        Some(status == 0 && value == 1)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    {
        None
    }
}

/// Asks Linux by `riscv_hwprobe` (Documentation/arch/riscv/hwprobe), key IMA_EXT_0.
#[cfg(all(target_arch = "riscv64", target_os = "linux"))]
fn machine() -> Features {
    const RISCV_HWPROBE: libc::c_long = 258;
    const IMA_EXT_0: i64 = 4;
    const NEEDED: u64 = 1 << 2 | 1 << 17 | 1 << 31;
    let mut pair: [i64; 2] = [IMA_EXT_0, 0];
    // SAFETY: one pair of key and value that the kernel fills; no CPU set means all CPUs.
    let status = unsafe { libc::syscall(RISCV_HWPROBE, pair.as_mut_ptr(), 1usize, 0usize, 0usize, 0u32) };
    Features::of(&[(
        status == 0 && pair[0] == IMA_EXT_0 && pair[1] as u64 & NEEDED == NEEDED,
        Features::RVA23_VECTORS,
    )])
}

#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    all(target_arch = "riscv64", target_os = "linux")
)))]
fn machine() -> Features {
    Features::NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUID of an imagined processor that has every bit set which `x86` reads.
    fn everything(leaf: u32, _subleaf: u32) -> Leaf {
        let all = Leaf { eax: u32::MAX, ebx: u32::MAX, ecx: u32::MAX, edx: u32::MAX };
        match leaf {
            0 => Leaf { eax: 0x24, ..all },
            0x24 => Leaf { ebx: 2, ..all },
            _ => all,
        }
    }

    #[test]
    fn registers_that_the_system_does_not_save_hide_their_instructions() {
        let with = |xcr0| x86(everything, || xcr0, || true);
        assert!(with(0x6_00e6).contains(Features::AVX10_2.with(Features::AMX_FP16).with(Features::AVX512)));
        let without_tiles = with(0xe6);
        assert!(without_tiles.contains(Features::AVX512_FP16) && !without_tiles.contains(Features::AMX));
        let without_wide = with(0x6_0006);
        assert!(without_wide.contains(Features::AVX2) && !without_wide.contains(Features::AVX512));
        assert!(!without_wide.contains(Features::AVX10_2));
        let bare = with(0x2);
        assert!(
            !bare.contains(Features::AVX2)
                && !bare.contains(Features::FMA)
                && !bare.contains(Features::AVX_VNNI)
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn classes_with_tiles_need_a_system_that_saves_and_lends_them() {
        use super::super::cpu_class::CpuClass;
        let widest = |xcr0, lent| {
            let features = x86(everything, || xcr0, || lent);
            CpuClass::all().filter(|class| class.runs_with(features)).last()
        };
        assert_eq!(widest(0x6_00e6, true), Some(CpuClass::IntelDiamond));
        for (xcr0, lent) in [(0x6_00e6, false), (0x4_00e6, true), (0x2_00e6, true), (0xe6, true)] {
            assert_eq!(widest(xcr0, lent), Some(CpuClass::AmdGenoa), "{xcr0:x}, lent: {lent}");
        }
        x86(everything, || 0x2_00e6, || panic!("asked for tiles that the system does not save"));
    }

    #[test]
    fn tiles_that_are_smaller_than_kernels_need_are_not_there() {
        let with = |palette: Leaf, products| {
            let cpuid = |leaf, subleaf| match (leaf, subleaf) {
                (0x1d, 1) => palette,
                (0x1e, 0) => Leaf { ebx: products, ..Leaf::default() },
                _ => everything(leaf, subleaf),
            };
            x86(cpuid, || 0x6_00e6, || true).contains(Features::AMX)
        };
        // As Sapphire Rapids has them.
        let palette = Leaf { eax: 0x0400_2000, ebx: 0x0008_0040, ecx: 16, edx: 0 };
        assert!(with(palette, 0x4010));
        for fewer in [Leaf { ebx: 0x0004_0040, ..palette }, Leaf { ebx: 0x0008_0020, ..palette }] {
            assert!(!with(fewer, 0x4010));
        }
        assert!(
            !with(Leaf { ecx: 8, ..palette }, 0x4010) && !with(palette, 0x2010) && !with(palette, 0x4008)
        );
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[test]
    fn where_there_are_no_tiles_asking_for_them_is_an_error() {
        let bits = std::arch::x86_64::__cpuid_count(7, 0).edx;
        if bits & (1 << 24) == 0 {
            assert!(ask_for_tiles().is_err() && !tiles_are_lent());
        }
    }

    #[test]
    fn without_osxsave_nothing_is_read_from_xcr0() {
        let cpuid = |leaf, subleaf| match (leaf, everything(leaf, subleaf)) {
            (1, one) => Leaf { ecx: one.ecx & !(1 << 27), ..one },
            (_, other) => other,
        };
        let found = x86(cpuid, || panic!("XGETBV would be an illegal instruction"), || true);
        assert!(!found.contains(Features::AVX2) && found.contains(Features::BMI));
    }

    #[test]
    fn leaves_beyond_the_highest_are_not_asked() {
        let cpuid = |leaf: u32, subleaf| match leaf {
            0 => Leaf { eax: 1, ..Leaf::default() },
            7 | 0x24 => panic!("leaf {leaf} is not there"),
            _ => everything(leaf, subleaf),
        };
        assert!(!x86(cpuid, || 0xe6, || true).contains(Features::AVX2));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_machine_is_found_as_the_standard_library_finds_it() {
        let found = Features::of_machine();
        assert_eq!(found.contains(Features::AVX2), is_x86_feature_detected!("avx2"));
        assert_eq!(found.contains(Features::FMA), is_x86_feature_detected!("fma"));
        assert_eq!(found.contains(Features::F16C), is_x86_feature_detected!("f16c"));
        assert_eq!(found.contains(Features::AVX_VNNI), is_x86_feature_detected!("avxvnni"));
        assert_eq!(found.contains(Features::AVX512_VNNI), is_x86_feature_detected!("avx512vnni"));
        assert_eq!(found.contains(Features::AVX512_BF16), is_x86_feature_detected!("avx512bf16"));
        assert_eq!(found.contains(Features::AVX512_FP16), is_x86_feature_detected!("avx512fp16"));
    }
}
