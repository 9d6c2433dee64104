//! Rows of f32 as words of the type that the weights have: rounded to bf16 or f16, or quantized to bytes.
//!
//! A row in bytes stands for scale · (byte - 128), with the scale of its greatest magnitude. One channel far above the others
//! would leave few steps to those, so that rows may first be rotated by a Hadamard matrix within blocks of channels,
//! as the weights are that they meet, which changes no product: after Ashkboos et al., "QuaRot" (2024). A row with a number
//! that is not finite has a scale of NaN, so that all of its products are NaN.
//!
//! Sums and differences of a rotation, and the two roundings of a byte, are the same on every class, and so are the bytes.

use std::marker::PhantomData;

use crate::base::Matrix;
use crate::kernels::simd::{Kernel, Vector, Words, bf16_up};

/// Prepared rows are padded to whole registers of any class.
const PADDED: usize = 16;

/// The byte that stands for zero.
pub(super) const ZERO: i32 = 128;

/// Rows to prepare.
pub(in crate::kernels) struct Prepare<'a> {
    pub(super) input: Matrix<'a, f32>,
    /// Rows of `stride` words.
    pub(super) output: *mut u32,
    pub(super) stride: usize,
    /// Channels that are rotated together before they are quantized, a power of two; one where none are.
    pub(super) rotated: usize,
    /// Memory for the inputs of one row where channels are rotated: then they are a multiple of 16, of every vector.
    pub(super) row: *mut f32,
    /// One per row, written where rows are quantized.
    pub(super) scales: *mut f32,
}

/// Does what its argument says. Callers promise that the machine has the instructions and that the pointers are good for
/// as many rows as the input has.
pub(in crate::kernels) type PrepareFunction = unsafe fn(&Prepare);

/// Words that a prepared row of `columns` elements takes, of which a word holds `per_word`.
pub(in crate::kernels) const fn prepared_stride(columns: usize, per_word: usize) -> usize {
    columns.next_multiple_of(PADDED) / per_word
}

/// Writes rows in a floating point type to `output`, one behind the other with the stride of that type.
///
/// # Safety
/// The machine has the instructions of `prepare`, which makes pairs.
pub(in crate::kernels) unsafe fn prepare_rows(
    prepare: PrepareFunction,
    input: Matrix<f32>,
    output: &mut [u32],
) {
    let stride = prepared_stride(input.columns(), 2);
    assert!(output.len() >= stride * input.rows(), "too little memory for rows");
    let (row, scales) = (std::ptr::null_mut(), std::ptr::null_mut());
    let output = output.as_mut_ptr();
    // SAFETY: the caller's promise; the output was found to be long enough, and pairs need nothing else.
    unsafe { prepare(&Prepare { input, output, stride, rotated: 1, row, scales }) }
}

/// What rows become.
pub(super) trait Form {
    /// Elements of a word.
    const PER_WORD: usize;

    /// Writes one row of the prepared output.
    ///
    /// # Safety
    /// The machine has the instructions of `V`, and the pointers of `prepare` are good.
    unsafe fn row<V: Vector>(prepare: &Prepare, row: usize);
}

/// [`PrepareFunction`] for an instruction set.
///
/// # Safety
/// See [`PrepareFunction`].
pub(super) unsafe fn prepare<V: Vector, F: Form>(prepare: &Prepare) {
    // SAFETY: the caller's promise.
    unsafe { V::run(PrepareKernel::<F>(prepare, PhantomData)) }
}

struct PrepareKernel<'a, F>(&'a Prepare<'a>, PhantomData<F>);

impl<F: Form> Kernel for PrepareKernel<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Prepare { input, output, stride, .. } = *self.0;
        let written = prepared_stride(input.columns(), F::PER_WORD);
        for row in 0..input.rows() {
            // SAFETY: the caller's promise; rows are `stride` words apart.
            unsafe {
                F::row::<V>(self.0, row);
                // Tiles may read more words than are written, and times a weight of zero they have to be zeros.
                output.add(row * stride + written).write_bytes(0, stride - written);
            }
        }
    }
}

/// Calls `write` with every register of a row, the last one filled up with zeros, and its column.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
unsafe fn registers<V: Vector>(row: &[f32], mut write: impl FnMut(usize, V)) {
    // SAFETY: the caller's promise; `column` stays inside the row.
    unsafe {
        let zero = V::splat(0.0);
        for column in (0..row.len()).step_by(V::LANES) {
            write(column, V::load_up_to(row.as_ptr().add(column), row.len() - column, zero));
        }
    }
}

/// Pairs of bf16.
#[allow(dead_code, reason = "not every architecture has products of them")]
pub(super) struct Bf16Pairs;

impl Form for Bf16Pairs {
    const PER_WORD: usize = 2;

    #[inline(always)]
    unsafe fn row<V: Vector>(prepare: &Prepare, row: usize) {
        // SAFETY: the caller's promise; rows of the output are padded to whole registers.
        unsafe {
            let to = prepare.output.add(row * prepare.stride).cast::<u16>();
            registers::<V>(prepare.input.row(row), |column, value| {
                bf16_up(value).high_half_down().store_halves(to.add(column));
            });
        }
    }
}

/// f32 that are rounded to bf16.
pub(super) struct Bf16Floats;

impl Form for Bf16Floats {
    const PER_WORD: usize = 1;

    #[inline(always)]
    unsafe fn row<V: Vector>(prepare: &Prepare, row: usize) {
        // SAFETY: as above.
        unsafe {
            let to = prepare.output.add(row * prepare.stride);
            registers::<V>(prepare.input.row(row), |column, value| bf16_up(value).store(to.add(column)));
        }
    }
}

/// The greatest f16.
const F16_MAX: f32 = 65504.0;

/// The f16 nearest to each lane, one beyond its range to its ends, in the low half of a word.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
unsafe fn to_f16<V: Vector>(value: V) -> V::Words {
    // SAFETY: the caller's promise.
    let (most, least, zero) = unsafe { (V::splat(F16_MAX), V::splat(-F16_MAX), V::splat(0.0)) };
    // An infinity is an error upstream, and has to stay one: times zero it is no number.
    let infinite = (value * zero).is_nan();
    V::select(infinite, value, least.max(most.min(value))).to_f16()
}

/// Pairs of f16.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) struct F16Pairs;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Form for F16Pairs {
    const PER_WORD: usize = 2;

    #[inline(always)]
    unsafe fn row<V: Vector>(prepare: &Prepare, row: usize) {
        // SAFETY: as above.
        unsafe {
            let to = prepare.output.add(row * prepare.stride).cast::<u16>();
            registers::<V>(prepare.input.row(row), |column, value| {
                to_f16(value).store_halves(to.add(column));
            });
        }
    }
}

/// f32 that are rounded to f16.
pub(super) struct F16Floats;

impl Form for F16Floats {
    const PER_WORD: usize = 1;

    #[inline(always)]
    unsafe fn row<V: Vector>(prepare: &Prepare, row: usize) {
        // SAFETY: as above.
        unsafe {
            let to = prepare.output.add(row * prepare.stride);
            registers::<V>(prepare.input.row(row), |column, value| {
                V::widen_f16(to_f16(value)).to_words().store(to.add(column));
            });
        }
    }
}

/// The greatest number of an element in a byte, beside [`ZERO`].
const MOST: f32 = 127.0;

/// Quantizes a row and hands out the bytes, one in each word.
///
/// # Safety
/// As [`Form::row`].
#[inline(always)]
unsafe fn quantize<V: Vector>(prepare: &Prepare, row: usize, mut write: impl FnMut(usize, V::Words)) {
    let mut values = prepare.input.row(row);
    // SAFETY: the caller's promise.
    unsafe {
        let mut greatest = V::Words::splat(0);
        if prepare.rotated > 1 {
            let rotated = std::slice::from_raw_parts_mut(prepare.row, values.len());
            greatest = rotate::<V>(values, prepare.rotated, rotated);
            values = rotated;
        } else {
            registers::<V>(values, |_, value| greatest = value.abs().to_words().max(greatest));
        }
        // Magnitudes compare as their bits do, and what is not finite is above all that is.
        let greatest = f32::from_bits(greatest.greatest());
        let scale = if greatest.is_finite() { greatest / MOST } else { f32::NAN };
        *prepare.scales.add(row) = scale;
        // Of a row too small to be divided by, all bytes stand for zero.
        let inverse = V::splat(if scale >= f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 });
        let offset = V::splat(ZERO as f32);
        // The greatest magnitude rounds to 127 at most, so that nothing has to be clipped.
        registers::<V>(values, |column, value| write(column, (value * inverse + offset).round()));
    }
}

/// Writes each block of `block` channels of a row times a Hadamard matrix, without its factor of 1 / √block. Gives the
/// greatest bits of the magnitudes of each lane.
///
/// # Safety
/// The machine has the instructions of `V`. `block` is a power of two that divides the length of both.
#[inline(always)]
unsafe fn rotate<V: Vector>(from: &[f32], block: usize, to: &mut [f32]) -> V::Words {
    // SAFETY: the caller's promise.
    unsafe {
        match block / V::LANES {
            1 => rotate_blocks::<V, 1>(from, to),
            2 => rotate_blocks::<V, 2>(from, to),
            4 => rotate_blocks::<V, 4>(from, to),
            8 => rotate_blocks::<V, 8>(from, to),
            16 => rotate_blocks::<V, 16>(from, to),
            32 => rotate_blocks::<V, 32>(from, to),
            _ => unreachable!("blocks of channels have 16 to 128"),
        }
    }
}

/// [`rotate`] for blocks of that many registers.
///
/// # Safety
/// As [`rotate`].
#[inline(always)]
unsafe fn rotate_blocks<V: Vector, const REGISTERS: usize>(from: &[f32], to: &mut [f32]) -> V::Words {
    let block = REGISTERS * V::LANES;
    // SAFETY: the caller's promise.
    let mut greatest = unsafe { V::Words::splat(0) };
    for (from, to) in from.chunks_exact(block).zip(to.chunks_exact_mut(block)) {
        // SAFETY: the caller's promise; each block has that many registers.
        unsafe {
            let mut values = [V::splat(0.0); REGISTERS];
            for (index, value) in values.iter_mut().enumerate() {
                *value = V::load(from.as_ptr().add(index * V::LANES)).hadamard();
            }
            let mut distance = 1;
            while distance < REGISTERS {
                for index in 0..REGISTERS {
                    if index & distance == 0 {
                        let (low, high) = (values[index], values[index + distance]);
                        (values[index], values[index + distance]) = (low + high, low - high);
                    }
                }
                distance *= 2;
            }
            for (index, value) in values.iter().enumerate() {
                value.store(to.as_mut_ptr().add(index * V::LANES));
                greatest = value.abs().to_words().max(greatest);
            }
        }
    }
    greatest
}

/// Four unsigned bytes.
pub(super) struct Bytes;

impl Form for Bytes {
    const PER_WORD: usize = 4;

    #[inline(always)]
    unsafe fn row<V: Vector>(prepare: &Prepare, row: usize) {
        // SAFETY: the caller's promise; rows of the output are padded to whole registers.
        unsafe {
            let to = prepare.output.add(row * prepare.stride).cast::<u8>();
            quantize::<V>(prepare, row, |column, bytes| bytes.store_bytes(to.add(column)));
        }
    }
}

/// Pairs of halves that hold bytes: of each four elements the even ones, then the odd ones.
pub(super) struct ByteHalves;

impl Form for ByteHalves {
    const PER_WORD: usize = 2;

    #[inline(always)]
    unsafe fn row<V: Vector>(prepare: &Prepare, row: usize) {
        // SAFETY: the caller's promise; rows are padded to a multiple of 16 elements, so of four.
        unsafe {
            let to = prepare.output.add(row * prepare.stride);
            let mut bytes = [0u32; 16];
            quantize::<V>(prepare, row, |column, words| {
                words.store(bytes.as_mut_ptr());
                for (quad, words) in bytes[..V::LANES].chunks_exact(4).enumerate() {
                    let pair = to.add(column / 2 + 2 * quad);
                    pair.write(words[0] | words[2] << 16);
                    pair.add(1).write(words[1] | words[3] << 16);
                }
            });
        }
    }
}
