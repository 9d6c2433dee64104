//! What this machine's vector units can do at most: multiplications and additions per second, two for each product that is added,
//! from a loop of instructions that do not wait for one another and touch no memory. x86-64 only; tile units are not counted.

use std::sync::Barrier;
use std::time::Instant;

const ACCUMULATORS: u64 = 13;
const ROUNDS: u64 = 4_000_000;
/// The best of these counts, so that what else the machine does hardly matters.
const TRIES: usize = 12;

/// A loop of one instruction, `d = a · b + d` in some type, on 13 registers in turn.
#[cfg(target_arch = "x86_64")]
macro_rules! kernel {
    ($name:ident, $instruction:literal, $register:literal, $ones:literal) => {
        /// SAFETY: the caller has checked that the processor knows the instruction and the registers.
        unsafe fn $name(rounds: u64) {
            macro_rules! each {
                ($number:literal) => {
                    concat!($instruction, " ", $register, $number, ", ", $register, "14, ", $register, "15")
                };
            }
            let ones: u32 = $ones;
            // SAFETY: it writes to no memory, and every register that it changes is named.
            unsafe {
                core::arch::asm!(
                    "vmovd xmm13, {ones:e}",
                    concat!("vpbroadcastd ", $register, "14, xmm13"),
                    concat!("vpbroadcastd ", $register, "15, xmm13"),
                    "2:",
                    each!("0"), each!("1"), each!("2"), each!("3"), each!("4"), each!("5"), each!("6"),
                    each!("7"), each!("8"), each!("9"), each!("10"), each!("11"), each!("12"),
                    "dec {rounds}",
                    "jnz 2b",
                    "vzeroupper",
                    rounds = inout(reg) rounds => _,
                    ones = in(reg) ones,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                    out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                    options(nomem, nostack),
                );
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod kernels {
    kernel!(f32_512, "vfmadd231ps", "zmm", 0x3f80_0000);
    kernel!(f32_256, "vfmadd231ps", "ymm", 0x3f80_0000);
    kernel!(bf16_512, "vdpbf16ps", "zmm", 0x3f80_3f80);
    kernel!(i8_512, "vpdpbusd", "zmm", 0x0101_0101);
    kernel!(i8_256, "{{vex}} vpdpbusd", "ymm", 0x0101_0101);

    /// A loop, and the operations of one of its instructions.
    pub(super) type Kernel = (unsafe fn(u64), u64);

    pub(super) fn best() -> [(&'static str, Option<Kernel>); 3] {
        let wide = is_x86_feature_detected!("avx512f");
        let first =
            |choices: [(bool, Kernel); 2]| choices.into_iter().find(|choice| choice.0).map(|choice| choice.1);
        [
            ("f32", first([(wide, (f32_512, 32)), (is_x86_feature_detected!("fma"), (f32_256, 16))])),
            ("bf16", (wide && is_x86_feature_detected!("avx512bf16")).then_some((bf16_512, 64))),
            (
                "i8",
                first([
                    (wide && is_x86_feature_detected!("avx512vnni"), (i8_512, 128)),
                    (is_x86_feature_detected!("avxvnni"), (i8_256, 64)),
                ]),
            ),
        ]
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod kernels {
    pub(super) type Kernel = (unsafe fn(u64), u64);

    pub(super) fn best() -> [(&'static str, Option<Kernel>); 3] {
        [("f32", None), ("bf16", None), ("i8", None)]
    }
}

/// Operations per second of all threads together.
fn measure_kernel((kernel, operations): kernels::Kernel, threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let slowest = std::thread::scope(|scope| {
        let run = || {
            barrier.wait();
            let start = Instant::now();
            // SAFETY: `best` gives only what the processor has.
            unsafe { kernel(ROUNDS) };
            start.elapsed().as_secs_f64()
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no panic in a loop of instructions"))
            .fold(0.0, f64::max)
    });
    (threads as u64 * ROUNDS * ACCUMULATORS * operations) as f64 / slowest
}

/// The most operations per second of so many threads in "f32", "bf16" or "i8"; `None` where the processor has no such instruction.
pub(crate) fn measure(name: &str, threads: usize) -> Option<f64> {
    let (_, kernel) = kernels::best().into_iter().find(|(known, _)| *known == name)?;
    kernel.map(|kernel| (0..TRIES).map(|_| measure_kernel(kernel, threads)).fold(0.0, f64::max))
}
