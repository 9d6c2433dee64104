//! The floating-point state of a thread: how results are rounded, and whether tiny ones become zero.
//!
//! Programs that are built with fast floating-point flags, and some drivers, have threads flush subnormal numbers to
//! zero or round in another way, which changes the bits of every sum. Compiled Rust code besides assumes the default.

use register::{DEFAULT, State, get, is_default, set};

/// Lets the calling thread compute in the default state of IEEE 754 until it is dropped: results round to nearest even,
/// subnormal numbers stay, and nothing traps. Where there is no such state to set, it does nothing.
#[derive(Debug)]
pub struct DefaultState {
    before: State,
    /// It belongs to the thread that made it.
    stays: std::marker::PhantomData<*const ()>,
}

impl DefaultState {
    /// Sets the state of this thread, and remembers the one that it had.
    pub fn enter() -> Self {
        let before = get();
        if !is_default(before) {
            set(DEFAULT);
        }
        Self { before, stays: std::marker::PhantomData }
    }
}

impl Drop for DefaultState {
    fn drop(&mut self) {
        if !is_default(self.before) {
            set(self.before);
        }
    }
}

/// Sets the state of this thread for good.
pub fn set_default() {
    set(DEFAULT);
}

/// MXCSR. Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 10.2.3.
#[cfg(target_arch = "x86_64")]
mod register {
    pub(super) type State = u32;

    /// All exceptions are masked, nothing else is set.
    pub(super) const DEFAULT: State = 0x1f80;

    pub(super) fn is_default(state: State) -> bool {
        // The lowest six bits only note what has happened.
        state & !0x3f == DEFAULT
    }

    pub(super) fn get() -> State {
        let mut state: State = 0;
        // SAFETY: writes the register to four bytes of ours.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut state, options(nostack, preserves_flags));
        }
        state
    }

    pub(super) fn set(state: State) {
        // SAFETY: the state is the default or was read from the register, so that no reserved bit is set.
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const state, options(nostack, readonly));
        }
    }
}

/// FPCR. Arm Architecture Reference Manual for A-profile architecture, C5.2.
#[cfg(target_arch = "aarch64")]
mod register {
    pub(super) type State = u64;

    /// Rounds to nearest even, flushes nothing and traps nothing.
    pub(super) const DEFAULT: State = 0;

    pub(super) fn is_default(state: State) -> bool {
        state == DEFAULT
    }

    pub(super) fn get() -> State {
        let state: State;
        // SAFETY: reads a register that every program may read.
        unsafe {
            std::arch::asm!("mrs {}, fpcr", out(reg) state, options(nomem, nostack, preserves_flags));
        }
        state
    }

    pub(super) fn set(state: State) {
        // SAFETY: the state is the default or was read from the register, so that no reserved bit is set.
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) state, options(nomem, nostack));
        }
    }
}

/// Nothing to set.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    #[derive(Clone, Copy, Debug)]
    pub(super) struct State;

    pub(super) const DEFAULT: State = State;

    pub(super) fn is_default(_state: State) -> bool {
        true
    }

    pub(super) fn get() -> State {
        State
    }

    pub(super) fn set(_state: State) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn subnormal_numbers_stay_inside_and_the_caller_has_its_state_back() {
        #[cfg(target_arch = "x86_64")]
        let flushing = DEFAULT | 1 << 15 | 1 << 6;
        #[cfg(target_arch = "aarch64")]
        let flushing = DEFAULT | 1 << 24;
        let half = || black_box(f32::MIN_POSITIVE) * black_box(0.5);
        // A thread of its own, as the state outlives a failed test.
        std::thread::spawn(move || {
            set(flushing);
            assert_eq!(half(), 0.0);
            let inside = DefaultState::enter();
            assert_eq!(half().to_bits(), 1 << 22);
            drop(inside);
            assert_eq!(half(), 0.0);
            set_default();
            assert_eq!(half().to_bits(), 1 << 22);
        })
        .join()
        .unwrap();
    }
}
