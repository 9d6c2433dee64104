//! What benches of one thread share: its clock, the machine's limit, and numbers.

#![allow(dead_code, reason = "every bench uses a part of this")]

use uform_c::base::Dtype;
use uform_c::executors::Team;
use uform_c::kernels::Kernels;

/// The calling thread alone.
pub(crate) struct Alone;

impl Team for Alone {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) -> uform_c::base::Result<()> {
        (0..tasks).for_each(|task| body(0, task));
        Ok(())
    }
}

/// Seconds that this thread has computed for, so not those that other programs had its core.
pub(crate) fn seconds() -> f64 {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid clock and a valid place for its time.
        let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        assert!(status == 0, "a clock of the thread");
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    }
    #[cfg(not(unix))]
    {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed().as_secs_f64()
    }
}

/// Seconds of the fastest of several rounds, as other programs can only slow one down.
pub(crate) fn fastest(mut body: impl FnMut()) -> f64 {
    body();
    let start = seconds();
    body();
    let calls = (1e-4 / (seconds() - start).max(1e-9)).ceil() as usize;
    let round = |_| {
        let start = seconds();
        (0..calls).for_each(|_| body());
        (seconds() - start) / calls as f64
    };
    (0..200).map(round).fold(f64::INFINITY, f64::min)
}

pub(crate) fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 2_654_435_761) % 2_001) as f32 / 1_000.0 - 1.0).collect()
}

/// Steps of the loop that only multiplies and adds.
const STEPS: usize = 5_000;

/// Operations per second of the instructions for that type, in thousands of millions.
pub(crate) fn ceiling(kernels: &Kernels, dtype: Dtype) -> f64 {
    let mut operations = 0;
    let seconds = fastest(|| operations = kernels.multiply_registers(dtype, STEPS));
    operations as f64 / seconds / 1e9
}
