//! What the parity tests share: classes to test, tolerances, numbers, guarded memory and teams.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

use uform_c::base::{Matrix, MatrixMut, Result};
use uform_c::executors::{Cancel, Context, Scratch, Team};
#[cfg(target_arch = "x86_64")]
use uform_c::kernels::simd::Portable;
use uform_c::kernels::{Kernels, for_class};
use uform_c::system::cpu::{self, BUILT_FOR, CpuClass};

#[cfg(target_arch = "x86_64")]
use crate::amx_model::Model;

/// The greatest error that a family may have against f64. Sums: relative to the sum of the magnitudes that were added;
/// others: absolute plus relative. Serial rounds twice where others round once.
pub(crate) struct Tolerance {
    pub(crate) family: &'static str,
    pub(crate) serial: f64,
    pub(crate) others: f64,
}

pub(crate) const TOLERANCES: &[Tolerance] = &[
    Tolerance { family: "gemm", serial: 1.5e-6, others: 1e-6 },
    Tolerance { family: "attention", serial: 2e-6, others: 2e-6 },
    // Weights that sum to one and values within ±2, all with relative errors of 2⁻⁹, and scores with those of their sums.
    Tolerance { family: "attention in bf16", serial: 4e-2, others: 4e-2 },
    Tolerance { family: "layer norm", serial: 2e-6, others: 2e-6 },
    Tolerance { family: "rms norm", serial: 1e-6, others: 1e-6 },
    Tolerance { family: "rotary", serial: 1.5e-7, others: 1.2e-7 },
    Tolerance { family: "normalize", serial: 4e-7, others: 4e-7 },
    Tolerance { family: "softmax", serial: 1.5e-6, others: 1.5e-6 },
    Tolerance { family: "pool", serial: 1e-6, others: 1e-6 },
    Tolerance { family: "gelu", serial: 2.5e-7, others: 1.5e-7 },
    Tolerance { family: "gelu coarse", serial: 1e-4, others: 1e-4 },
    Tolerance { family: "gelu tanh", serial: 5e-7, others: 5e-7 },
    Tolerance { family: "tanh", serial: 5e-7, others: 4e-7 },
    Tolerance { family: "sigmoid", serial: 3e-7, others: 3e-7 },
];

/// Kernels with a name for messages.
#[derive(Clone, Copy)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) kernels: &'static Kernels,
}

impl Class {
    pub(crate) fn tolerance(&self, family: &str) -> f64 {
        let row = TOLERANCES.iter().find(|row| row.family == family).expect("a row of the table");
        let serial = match self.kernels.class {
            CpuClass::Monoversioned => BUILT_FOR == CpuClass::Serial,
            class => class == CpuClass::Serial,
        };
        if serial { row.serial } else { row.others }
    }
}

/// All classes with kernels of their own that can be tested here, or the one that `UFORM_CPU_CLASS` names. Says on the terminal
/// which could not run for real.
pub(crate) fn classes() -> Vec<Class> {
    #[cfg(target_arch = "x86_64")]
    static MODELS: OnceLock<[Kernels; 2]> = OnceLock::new();
    static SIERRA: OnceLock<Option<Kernels>> = OnceLock::new();
    static SAID: Once = Once::new();
    let own = [
        CpuClass::Serial,
        CpuClass::IntelHaswell,
        CpuClass::IntelSkylake,
        CpuClass::IntelIcelake,
        CpuClass::AmdGenoa,
        CpuClass::IntelSapphire,
        CpuClass::IntelGranite,
        CpuClass::AwsG2,
        CpuClass::AppleM2,
        CpuClass::AppleM4,
        CpuClass::Monoversioned,
        CpuClass::Wasm32V128,
    ];
    let (found, missing): (Vec<_>, Vec<_>) = own
        .into_iter()
        .filter(|class| class.is_compiled())
        .map(|class| (class, for_class(class)))
        .partition(|(_, kernels)| kernels.is_ok());
    let mut classes: Vec<_> = found
        .into_iter()
        .flat_map(|(class, kernels)| Some(Class { name: class.name(), kernels: kernels.ok()? }))
        .collect();
    // More machines have the instructions that its products use than are of that class.
    let sierra = SIERRA.get_or_init(Kernels::sierra).as_ref();
    classes.extend(sierra.map(|kernels| Class { name: CpuClass::IntelSierra.name(), kernels }));
    SAID.call_once(|| {
        let sierra = Some(CpuClass::IntelSierra).filter(|class| class.is_compiled() && sierra.is_none());
        for class in missing.into_iter().map(|(class, _)| class).chain(sierra) {
            // Straight to the terminal, as the test harness hides what passing tests print.
            let line = format!("NOT RUN on this machine: {}\n", class.name());
            std::io::stderr().write_all(line.as_bytes()).expect("a terminal");
        }
    });
    // They stand for classes of x86, and are tested once for all machines there.
    #[cfg(target_arch = "x86_64")]
    {
        type Lanes = Portable<16, true>;
        // SAFETY: neither portable vectors nor the model of AMX need special instructions.
        let models = MODELS
            .get_or_init(|| unsafe { [Kernels::skylake::<Lanes>(), Kernels::granite::<Lanes, Model>()] });
        let names = ["intel-skylake's software model", "intel-granite's software model"];
        classes.extend(names.into_iter().zip(models).map(|(name, kernels)| Class { name, kernels }));
    }
    match std::env::var(cpu::CLASS_VARIABLE) {
        Ok(only) => vec![named(classes, &only)],
        Err(_) => classes,
    }
}

/// The class of that name, with kernels of its own or inherited ones.
fn named(classes: Vec<Class>, name: &str) -> Class {
    let class = CpuClass::parse(name).expect("a class");
    let inherited =
        || Class { name: class.name(), kernels: for_class(class).expect("a class that runs here") };
    classes.into_iter().find(|class| class.name == name).unwrap_or_else(inherited)
}

/// Numbers between -2 and 2 that depend on `seed` alone.
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 22) as f32 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

/// A matrix with gaps between its rows and around it, whose start is not aligned to more than a float.
pub(crate) struct Guarded {
    data: Vec<f32>,
    rows: usize,
    columns: usize,
    stride: usize,
}

const GUARD: f32 = 12_345.678;
const MARGIN: usize = 33;

impl Guarded {
    pub(crate) fn new(rows: usize, columns: usize, gap: usize) -> Self {
        let stride = columns + gap;
        Self { data: vec![GUARD; MARGIN * 2 + rows * stride], rows, columns, stride }
    }

    pub(crate) fn filled(seed: u64, rows: usize, columns: usize, gap: usize) -> Self {
        let mut this = Self::new(rows, columns, gap);
        let values = numbers(seed, rows * columns);
        for row in 0..rows {
            this.view_mut().row_mut(row).copy_from_slice(&values[row * columns..][..columns]);
        }
        this
    }

    pub(crate) fn view(&self) -> Matrix<'_, f32> {
        Matrix::new(&self.data[MARGIN..], self.rows, self.columns, self.stride)
    }

    pub(crate) fn view_mut(&mut self) -> MatrixMut<'_, f32> {
        MatrixMut::new(&mut self.data[MARGIN..], self.rows, self.columns, self.stride)
    }

    /// Panics when something beside the elements was written.
    pub(crate) fn check(&self, what: &str) {
        for (index, value) in self.data.iter().enumerate() {
            let inside = index.checked_sub(MARGIN).is_some_and(|offset| {
                offset / self.stride.max(1) < self.rows && offset % self.stride.max(1) < self.columns
            });
            assert!(inside || *value == GUARD, "{what}: wrote outside, at {index}");
        }
    }
}

/// The bits of all elements.
pub(crate) fn bits(matrix: Matrix<f32>) -> Vec<u32> {
    (0..matrix.rows()).flat_map(|row| matrix.row(row).iter().map(|value| value.to_bits())).collect()
}

/// A team of threads that live as long as one task. One thread is the caller alone.
pub(crate) struct Threads(pub(crate) usize);

impl Team for Threads {
    fn threads(&self) -> usize {
        self.0
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) -> Result<()> {
        if cfg!(target_family = "wasm") {
            // Modules have no threads, but tasks can be spread and their order turned round.
            (0..tasks).rev().for_each(|task| body(task % self.0, task));
            return Ok(());
        }
        let next = AtomicUsize::new(0);
        let work = |thread| {
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    return;
                }
                body(thread, task);
            }
        };
        std::thread::scope(|scope| {
            for thread in 1..self.0 {
                scope.spawn(move || work(thread));
            }
            work(0);
        });
        Ok(())
    }
}

/// Runs `body` with a context of that many threads.
pub(crate) fn with_context<R>(
    kernels: &'static Kernels,
    threads: usize,
    body: impl FnOnce(&Context) -> R,
) -> R {
    let scratch: Vec<Scratch> = (0..threads).map(|_| Scratch::default()).collect();
    let cancel = Cancel::default();
    body(&Context { kernels, team: &Threads(threads), scratch: &scratch, thread: 0, cancel: &cancel })
}

#[test]
fn a_class_that_the_machine_lacks_is_unsupported() {
    for class in CpuClass::all() {
        match for_class(class) {
            Ok(kernels) => assert!(cpu::runnable().contains(&class) && kernels.class == class),
            Err(error) => {
                assert!(!cpu::runnable().contains(&class));
                assert_eq!(error.status, uform_c::base::Status::Unsupported);
                assert!(error.message.contains(cpu::runnable()[0].name()), "{}", error.message);
            }
        }
    }
}
