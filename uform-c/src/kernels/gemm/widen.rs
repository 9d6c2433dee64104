//! Weights of a narrow type as words that the instructions of a class multiply, for classes without instructions of that
//! type. Each word becomes two; a block of weights is widened once and then multiplies all rows of a block of the input.

use crate::kernels::simd::{Kernel, Vector, Words};

use super::PANEL;

/// Lines of 16 words to widen, and memory for twice as many lines.
#[derive(Clone, Copy)]
pub(super) struct Widen {
    pub(super) from: *const u32,
    pub(super) lines: usize,
    pub(super) to: *mut u32,
}

/// Does what its argument says. Callers promise that the machine has the instructions and that the pointers are good.
pub(super) type WidenFunction = unsafe fn(&Widen);

/// How a word becomes two, in the order of the inputs' words that they meet.
pub(super) trait Pair {
    /// # Safety
    /// The machine has the instructions of `V`.
    unsafe fn of<V: Vector>(word: V::Words) -> [V::Words; 2];
}

/// Two bf16 become two f32.
pub(super) struct FromBf16;

impl Pair for FromBf16 {
    #[inline(always)]
    unsafe fn of<V: Vector>(word: V::Words) -> [V::Words; 2] {
        // SAFETY: the caller's promise.
        let high = unsafe { V::Words::splat(0xffff_0000) };
        [word.low_half_up(), word.and(high)]
    }
}

/// Two f16 become two f32.
pub(super) struct FromF16;

impl Pair for FromF16 {
    #[inline(always)]
    unsafe fn of<V: Vector>(word: V::Words) -> [V::Words; 2] {
        // SAFETY: the caller's promise.
        let low = unsafe { V::Words::splat(0xffff) };
        [V::widen_f16(word.and(low)).to_words(), V::widen_f16(word.high_half_down()).to_words()]
    }
}

/// Four signed bytes become two pairs of signed halves: the even ones, then the odd ones.
pub(super) struct FromBytes;

impl Pair for FromBytes {
    #[inline(always)]
    unsafe fn of<V: Vector>(word: V::Words) -> [V::Words; 2] {
        [word.even_bytes(), word.odd_bytes()]
    }
}

/// [`WidenFunction`] for an instruction set.
///
/// # Safety
/// See [`WidenFunction`].
pub(super) unsafe fn widen<V: Vector, P: Pair>(widen: &Widen) {
    // SAFETY: the caller's promise.
    unsafe { V::run(WidenKernel::<P>(*widen, std::marker::PhantomData)) }
}

struct WidenKernel<P>(Widen, std::marker::PhantomData<P>);

impl<P: Pair> Kernel for WidenKernel<P> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Widen { from, lines, to } = self.0;
        // SAFETY: 16 is a multiple of the lanes, so that all offsets stay inside the lines.
        unsafe {
            for line in 0..lines {
                for lane in (0..PANEL).step_by(V::LANES) {
                    let words = V::Words::load(from.add(line * PANEL + lane));
                    let [first, second] = P::of::<V>(words);
                    first.store(to.add(2 * line * PANEL + lane));
                    second.store(to.add((2 * line + 1) * PANEL + lane));
                }
            }
        }
    }
}
