//! A model of AMX: what the instructions are documented to do, to the bit, and panics where the processor would raise an
//! exception. Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, "Programming with Intel Advanced Matrix
//! Extensions", and the operation of each instruction in volume 2.

use std::array::from_fn;
use std::cell::RefCell;

use half::{bf16, f16};
use uform_c::kernels::gemm::{Amx, Configuration};

/// Tiles, rows of a tile, and bytes and words of a row, as the first palette has them.
const TILES: usize = 8;
const ROWS: usize = 16;
const ROW_BYTES: usize = 64;
const WORDS: usize = 16;

/// The processor.
pub(crate) struct Model;

#[derive(Clone, Copy)]
struct Tile {
    rows: usize,
    row_bytes: usize,
    words: [[u32; WORDS]; ROWS],
}

/// None where tiles are not configured.
type Registers = Option<[Tile; TILES]>;

thread_local! {
    static REGISTERS: RefCell<Registers> = const { RefCell::new(None) };
}

/// Calls `body` with the tile of that number.
fn with_tile<R>(number: usize, body: impl FnOnce(&mut Tile) -> R) -> R {
    REGISTERS.with_borrow_mut(|registers| {
        let tiles = registers.as_mut().expect("an instruction on tiles that are not configured");
        let tile = &mut tiles[number];
        assert!(tile.rows > 0, "tile {number} has no shape");
        assert!(tile.row_bytes.is_multiple_of(4), "tile {number} has parts of words");
        body(tile)
    })
}

impl Model {
    /// Whether tiles of this thread are as TILERELEASE leaves them.
    pub(crate) fn is_released() -> bool {
        REGISTERS.with_borrow(Option::is_none)
    }

    /// Replaces each sum of a tile by what `sum` makes of it, a row of words of the input and a column of those of the weights.
    fn dot(
        sums: usize,
        input: usize,
        weights: usize,
        sum: impl Fn(u32, &[u32; WORDS], &[u32; WORDS], usize) -> u32,
    ) {
        let [mut into, input, weights] = [sums, input, weights].map(|tile| with_tile(tile, |tile| *tile));
        assert!(into.rows == input.rows, "sums of {} rows, inputs of {}", into.rows, input.rows);
        assert!(
            into.row_bytes == weights.row_bytes,
            "sums of {} bytes, weights of {}",
            into.row_bytes,
            weights.row_bytes
        );
        let steps = input.row_bytes / 4;
        assert!(steps == weights.rows, "inputs of {steps} steps, weights of {}", weights.rows);
        let columns: [[u32; WORDS]; WORDS] = from_fn(|n| from_fn(|k| weights.words[k][n]));
        for (row, into) in into.words.iter_mut().enumerate().take(input.rows) {
            for (into, column) in into.iter_mut().zip(&columns).take(weights.row_bytes / 4) {
                *into = sum(*into, &input.words[row], column, steps);
            }
        }
        with_tile(sums, |tile| *tile = into);
    }

    fn check_apart(sums: usize, input: usize, weights: usize) {
        assert!(sums != input && sums != weights && input != weights, "one tile as two operands");
    }

    /// TDPBF16PS and TDPFP16PS, which differ in how halves of a word are read.
    fn dot_floats(sums: usize, input: usize, weights: usize, widen: fn(u16) -> f32) {
        Self::check_apart(sums, input, weights);
        Self::dot(sums, input, weights, |into, row, column, steps| {
            let (mut first, mut second) = (0.0, 0.0);
            for (a, b) in row.iter().zip(column).take(steps) {
                first = multiply_add(widen(*a as u16), widen(*b as u16), first);
                second = multiply_add(widen((a >> 16) as u16), widen((b >> 16) as u16), second);
            }
            add(f32::from_bits(into), add(first, second)).to_bits()
        });
    }
}

impl Amx for Model {
    unsafe fn configure(configuration: &Configuration) {
        let Configuration { palette, start_row, reserved, row_bytes, rows } = *configuration;
        assert!(palette == 1, "palette {palette}");
        assert!(start_row == 0, "nothing was interrupted in row {start_row}");
        assert!(
            reserved == [0; 14] && row_bytes[TILES..] == [0; 8] && rows[TILES..] == [0; 8],
            "reserved bytes"
        );
        let tile = |tile: usize| {
            let (row_bytes, rows) = (usize::from(row_bytes[tile]), usize::from(rows[tile]));
            assert!(rows <= ROWS && row_bytes <= ROW_BYTES, "a tile of {rows} rows of {row_bytes} bytes");
            assert!((rows == 0) == (row_bytes == 0), "a tile of {rows} rows of {row_bytes} bytes");
            Tile { rows, row_bytes, words: [[0; WORDS]; ROWS] }
        };
        REGISTERS.set(Some(from_fn(tile)));
    }

    unsafe fn release() {
        REGISTERS.set(None);
    }

    unsafe fn zero<const T: usize>() {
        with_tile(T, |tile| tile.words = [[0; WORDS]; ROWS]);
    }

    unsafe fn load<const T: usize>(from: *const u32, stride: usize) {
        with_tile(T, |tile| {
            tile.words = [[0; WORDS]; ROWS];
            for row in 0..tile.rows {
                // SAFETY: the caller's promise; a row has at most as many bytes as the tile.
                unsafe {
                    let to = tile.words[row].as_mut_ptr().cast::<u8>();
                    to.copy_from_nonoverlapping(from.add(row * stride).cast(), tile.row_bytes);
                }
            }
        });
    }

    unsafe fn store<const T: usize>(to: *mut u32, stride: usize) {
        with_tile(T, |tile| {
            for row in 0..tile.rows {
                // SAFETY: as above.
                unsafe {
                    let from = tile.words[row].as_ptr().cast::<u8>();
                    to.add(row * stride).cast::<u8>().copy_from_nonoverlapping(from, tile.row_bytes);
                }
            }
        });
    }

    unsafe fn dot_bf16<const SUM: usize, const INPUT: usize, const WEIGHTS: usize>() {
        Self::dot_floats(SUM, INPUT, WEIGHTS, |half| f32::from_bits(u32::from(half) << 16));
    }

    unsafe fn dot_f16<const SUM: usize, const INPUT: usize, const WEIGHTS: usize>() {
        Self::dot_floats(SUM, INPUT, WEIGHTS, |half| f16::from_bits(half).to_f32_const());
    }

    unsafe fn dot_bytes<const SUM: usize, const INPUT: usize, const WEIGHTS: usize>() {
        Self::check_apart(SUM, INPUT, WEIGHTS);
        Self::dot(SUM, INPUT, WEIGHTS, |into, row, column, steps| {
            let words = row.iter().zip(column).take(steps);
            let products = words.flat_map(|(a, b)| {
                let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
                (0..4).map(move |byte| i32::from(a[byte]) * i32::from(b[byte] as i8))
            });
            products.fold(into as i32, i32::wrapping_add) as u32
        });
    }
}

/// A subnormal number is taken for a zero of its sign.
fn flushed(number: f32) -> f32 {
    if number.is_subnormal() { 0.0f32.copysign(number) } else { number }
}

/// `a * b + c` rounded once, to nearest even, where subnormal numbers are zeros before and after. As everywhere in x86, a
/// result is subnormal where it would be after rounding with any exponent.
pub(crate) fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    let product = f64::from(flushed(a)) * f64::from(flushed(b));
    let addend = f64::from(flushed(c));
    let sum = product + addend;
    if sum == 0.0 || !sum.is_finite() {
        return sum as f32;
    }
    // The product is exact, and so is the sum with its error (Knuth).
    let back = sum - product;
    let error = (product - (sum - back)) + (addend - back);
    // Rounded to odd, it is rounded once more as if it had been exact (Boldo and Melquiond).
    let odd = match sum.to_bits() {
        bits if error == 0.0 || bits & 1 == 1 => sum,
        bits if (error > 0.0) == (sum > 0.0) => f64::from_bits(bits + 1),
        bits => f64::from_bits(bits - 1),
    };
    if odd.abs() >= 1.0 {
        return odd as f32;
    }
    const UP: f32 = (1u128 << 64) as f32;
    let scaled = (odd * f64::from(UP)) as f32;
    if scaled.abs() < f32::MIN_POSITIVE * UP { 0.0f32.copysign(scaled) } else { scaled / UP }
}

/// `a + b` likewise.
pub(crate) fn add(a: f32, b: f32) -> f32 {
    multiply_add(a, 1.0, b)
}

/// One element of a product as AMX sums it: blocks of 32 along the inputs from the first one on.
pub(crate) fn element(row: &[f32], weights: &[f32]) -> f32 {
    row.chunks(32).zip(weights.chunks(32)).fold(0.0, |sum, (row, weights)| {
        let of = |first: usize| {
            let pairs = row.iter().zip(weights).skip(first).step_by(2);
            pairs.fold(0.0, |sum, (a, b)| multiply_add(*a, *b, sum))
        };
        add(sum, add(of(0), of(1)))
    })
}

/// The bits of a pair.
pub(crate) fn pair_bf16([low, high]: [f32; 2]) -> u32 {
    u32::from(bf16::from_f32(low).to_bits()) | u32::from(bf16::from_f32(high).to_bits()) << 16
}

/// The bits of a pair.
pub(crate) fn pair_f16([low, high]: [f32; 2]) -> u32 {
    u32::from(f16::from_f32(low).to_bits()) | u32::from(f16::from_f32(high).to_bits()) << 16
}
