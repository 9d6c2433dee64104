//! Products by the outer products of SME, for tiles of seven rows and more: of up to 16 rows by three panels.
//!
//! A tile of ZA takes the sums of as many rows and columns as a streaming vector has words, 16 × 16 at 512 bits, which is a
//! panel; narrower vectors take it in parts. Three tiles of ZA hold sums. The fourth turns rows into columns: a block of
//! each row is read into a row of it, and the words of one step leave it as a column. What is left to do for a step is to read a
//! vector of each panel and to multiply.
//!
//! FMOPA rounds as FMLA does, BFMOPA as BFDOT, and sums of bytes are exact (Arm Architecture Reference Manual for A-profile
//! architecture, FPMulAdd_ZA and BFDotAdd, with FPCR in its default state), and steps are in the same order: bits are
//! those of the tiles of NEON, which serve fewer rows. f16 has the products of NEON alone, as the outer products of SME round
//! the sum of two products at once.
//!
//! Streaming mode begins and ends within one block of assembly, so that no compiled code runs in it. Changing the mode
//! clears the vector and predicate registers, all of which the block says it overwrites. ZA follows the Procedure Call
//! Standard for the Arm 64-bit Architecture: these are private-ZA functions, so that a caller further up may have left ZA to be
//! saved by whoever needs it, which TPIDR2_EL0 points out; that is done before ZA is used. ZA is off when they return. An
//! operating system that offers SME saves all of it on a switch of threads and when a signal arrives.

use std::arch::asm;

use crate::kernels::simd::F32x4;

use super::dot::Floats;
use super::kinds::{self, Gemm, Gemms, Tiles, Unit};
use super::{PANEL, Tile, TileFunction, g2, m2};

/// Words of weights that a block of k takes, for three panels.
const WEIGHTS_BLOCK: usize = 6144;

/// Tiles of ZA that hold sums.
const SUMS: usize = 3;

/// What one block of assembly multiplies: at most a streaming vector's words of rows, by as many columns of each of up to
/// [`SUMS`] groups. Strides are in bytes. The assembly knows the offsets.
#[repr(C)]
struct Block {
    depth: usize,
    input: *const u32,
    input_stride: usize,
    rows: usize,
    /// The first step of each group of columns; a step is [`PANEL`] words.
    panels: [*const u32; SUMS],
    outputs: [*mut u32; SUMS],
    output_stride: usize,
    columns: usize,
    /// Bit 0: there is a second group; bit 1: and a third.
    more: usize,
    accumulate: usize,
}

/// How words are multiplied: tiles of NEON for few rows, and the same products by SME.
trait Outer: 'static {
    /// Up to six rows, by rows and panels.
    const FEW: &'static [&'static [TileFunction]];

    /// Computes a block.
    ///
    /// # Safety
    /// The machine has SME, and the pointers are good for that many rows, groups, columns and steps.
    unsafe fn multiply(block: &Block);

    /// Multiplies registers `count` times four.
    ///
    /// # Safety
    /// The machine has SME.
    unsafe fn multiply_registers(count: usize);
}

/// Words of a streaming vector.
///
/// # Safety
/// The machine has SME.
#[inline(always)]
unsafe fn streaming_words() -> usize {
    let bytes: usize;
    // SAFETY: the caller's promise; the instruction only reads a constant of the machine.
    unsafe {
        asm!(
            ".arch_extension sme",
            "rdsvl {bytes}, #1",
            bytes = out(reg) bytes,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    bytes / size_of::<u32>()
}

/// Saves the ZA that a caller has left to be saved, if one has, and begins streaming mode with ZA on and no bit set in it.
macro_rules! begin {
    () => {
        "
        .arch_extension sme
        mrs x1, tpidr2_el0
        cbz x1, 12f
        ldr x2, [x1]
        ldrh w3, [x1, #8]
        mov w12, wzr
    10: cmp w12, w3
        b.hs 11f
        str za[w12, 0], [x2]
        addsvl x2, x2, #1
        add w12, w12, #1
        b 10b
    11: msr tpidr2_el0, xzr
    12: smstart
        zero {{za}}
        ptrue p0.b
        "
    };
}

/// Reads or writes the rows of sums, by the instruction that `$name` and `$how` spell.
macro_rules! sums {
    ($name:literal, $how:literal) => {
        concat!(
            "
        ldp x9, x10, [x0, #56]
        ldp x11, x16, [x0, #72]
        mov w12, wzr
    20: ",
            $name,
            " {{za0h.s[w12, 0]}}, p1",
            $how,
            ", [x9]
        tbz w8, #0, 21f
        ",
            $name,
            " {{za1h.s[w12, 0]}}, p1",
            $how,
            ", [x10]
        tbz w8, #1, 21f
        ",
            $name,
            " {{za2h.s[w12, 0]}}, p1",
            $how,
            ", [x11]
    21: add x9, x9, x16
        add x10, x10, x16
        add x11, x11, x16
        add w12, w12, #1
        cmp w12, w4
        b.lo 20b
        "
        )
    };
}

/// Implements [`Outer`] by an instruction over elements of that size.
macro_rules! outer {
    ($name:ident, $few:expr, $instruction:literal, $size:literal) => {
        impl Outer for $name {
            const FEW: &'static [&'static [TileFunction]] = $few;

            unsafe fn multiply(block: &Block) {
                // SAFETY: the caller's promise. Of the registers that a C function keeps none is touched but the lower halves of
                // eight vectors, which this says to be overwritten, too.
                unsafe {
                    asm!(
                        begin!(),
                        "ldp x1, x2, [x0]",       // depth, input
                        "ldp x3, x4, [x0, #16]",  // its stride, rows
                        "ldp x5, x6, [x0, #32]",  // panels
                        "ldr x7, [x0, #48]",
                        "ldp x9, x8, [x0, #88]",  // columns, more groups
                        "whilelt p1.s, xzr, x9",
                        "ldr x9, [x0, #104]",
                        "cbz x9, 2f",
                        sums!("ld1w", "/z"),
                        "2: mov x9, xzr",
                        "cntw x11",
                        // A block of each row, as long as a vector, into a row of the fourth tile.
                        "3: whilelt p2.s, x9, x1",
                        "b.none 9f",
                        "add x10, x2, x9, lsl #2",
                        "mov w12, wzr",
                        "4: ld1w {{za3h.s[w12, 0]}}, p2/z, [x10]",
                        "add x10, x10, x3",
                        "add w12, w12, #1",
                        "cmp w12, w4",
                        "b.lo 4b",
                        "sub x10, x1, x9",
                        "cmp x10, x11",
                        "csel x10, x10, x11, lo",
                        // Step after step, a column of that tile times a vector of each panel.
                        "mov w13, wzr",
                        "5: mova z0.s, p0/m, za3v.s[w13, 0]",
                        "ld1w {{z1.s}}, p1/z, [x5]",
                        "add x5, x5, #64",
                        concat!($instruction, " za0.s, p0/m, p0/m, z0.", $size, ", z1.", $size),
                        "tbz w8, #0, 6f",
                        "ld1w {{z2.s}}, p1/z, [x6]",
                        "add x6, x6, #64",
                        concat!($instruction, " za1.s, p0/m, p0/m, z0.", $size, ", z2.", $size),
                        "tbz w8, #1, 6f",
                        "ld1w {{z3.s}}, p1/z, [x7]",
                        "add x7, x7, #64",
                        concat!($instruction, " za2.s, p0/m, p0/m, z0.", $size, ", z3.", $size),
                        "6: add w13, w13, #1",
                        "cmp w13, w10",
                        "b.lo 5b",
                        "add x9, x9, x11",
                        "b 3b",
                        "9:",
                        sums!("st1w", ""),
                        "smstop",
                        inout("x0") std::ptr::from_ref(block) => _,
                        clobber_abi("C"),
                        options(nostack)
                    );
                }
            }

            unsafe fn multiply_registers(count: usize) {
                // SAFETY: as above.
                unsafe {
                    asm!(
                        begin!(),
                        "2: cbz x0, 3f",
                        concat!($instruction, " za0.s, p0/m, p0/m, z0.", $size, ", z1.", $size),
                        concat!($instruction, " za1.s, p0/m, p0/m, z0.", $size, ", z1.", $size),
                        concat!($instruction, " za2.s, p0/m, p0/m, z0.", $size, ", z1.", $size),
                        concat!($instruction, " za3.s, p0/m, p0/m, z0.", $size, ", z1.", $size),
                        "sub x0, x0, #1",
                        "b 2b",
                        "3: smstop",
                        inout("x0") count => _,
                        clobber_abi("C"),
                        options(nostack)
                    );
                }
            }
        }
    };
}

/// A word is an f32.
struct Single;

/// A word is two bf16.
struct Bf16;

/// A word is four bytes, unsigned ones of the input and signed ones of the weights.
struct Bytes;

outer!(Single, g2::tiles::<Floats<F32x4>>().by_rows, "fmopa", "s");
outer!(Bf16, m2::bf16().tiles.by_rows, "bfmopa", "h");
outer!(Bytes, m2::i8().tiles.by_rows, "usmopa", "b");

/// [`TileFunction`] of `ROWS` rows and `PANELS` panels.
///
/// # Safety
/// See [`TileFunction`].
unsafe fn tile<O: Outer, const ROWS: usize, const PANELS: usize>(tile: &Tile) {
    // SAFETY: the caller's promise; rows, groups and columns of the blocks make up those of the tile.
    unsafe {
        let words = streaming_words();
        let columns = words.min(PANEL);
        let per_panel = PANEL / columns;
        let groups = PANELS * per_panel;
        for row in (0..ROWS).step_by(words) {
            for group in (0..groups).step_by(SUMS) {
                let last = SUMS.min(groups - group) - 1;
                // Groups beyond the last are the last once more, and neither read nor written.
                let each = [0, 1, 2].map(|index| group + last.min(index));
                let output = tile.output.add(row * tile.output_stride);
                O::multiply(&Block {
                    depth: tile.depth,
                    input: tile.input.add(row * tile.input_stride),
                    input_stride: tile.input_stride * size_of::<u32>(),
                    rows: words.min(ROWS - row),
                    panels: each.map(|group| {
                        tile.panel.add(group / per_panel * tile.panel_stride + group % per_panel * columns)
                    }),
                    outputs: each.map(|group| output.add(group * columns)),
                    output_stride: tile.output_stride * size_of::<u32>(),
                    columns,
                    more: (1 << last) - 1,
                    accumulate: usize::from(tile.accumulate),
                });
            }
        }
    }
}

/// As many outer products as multiply four times [`PANEL`] rows by as many columns, that many times.
///
/// # Safety
/// The machine has SME.
unsafe fn ceiling<O: Outer>(steps: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let parts = PANEL / streaming_words().min(PANEL);
        O::multiply_registers(steps * parts * parts);
    }
}

/// Tiles of that many rows, by panels.
struct Tall<O, const ROWS: usize>(O);

impl<O: Outer, const ROWS: usize> Tall<O, ROWS> {
    const ALL: &'static [TileFunction] = &[tile::<O, ROWS, 1>, tile::<O, ROWS, 2>, tile::<O, ROWS, 3>];
}

/// Tiles by rows and panels.
struct ByRows<O>(O);

impl<O: Outer> ByRows<O> {
    const ALL: &'static [&'static [TileFunction]] = &[
        O::FEW[0],
        O::FEW[1],
        O::FEW[2],
        O::FEW[3],
        O::FEW[4],
        O::FEW[5],
        Tall::<O, 7>::ALL,
        Tall::<O, 8>::ALL,
        Tall::<O, 9>::ALL,
        Tall::<O, 10>::ALL,
        Tall::<O, 11>::ALL,
        Tall::<O, 12>::ALL,
        Tall::<O, 13>::ALL,
        Tall::<O, 14>::ALL,
        Tall::<O, 15>::ALL,
        Tall::<O, 16>::ALL,
    ];
}

/// The tiles of one way to multiply words.
const fn tiles<O: Outer>() -> Tiles {
    let by_rows = ByRows::<O>::ALL;
    let unit = Unit { rows: 1, steps: 1 };
    Tiles { by_rows, ceiling: ceiling::<O>, ceiling_words: 4 * PANEL * PANEL, unit, registers: None }
}

/// The products of the class: of all types but f16, whose products are those of NEON.
pub(in crate::kernels) const fn gemms() -> Gemms {
    let f32: Gemm = kinds::f32::<F32x4>(tiles::<Single>(), WEIGHTS_BLOCK);
    let bf16 = kinds::bf16::<F32x4>(tiles::<Bf16>(), WEIGHTS_BLOCK);
    let i8 = kinds::i8::<F32x4>(tiles::<Bytes>(), WEIGHTS_BLOCK);
    Gemms { f32, bf16, f16: m2::f16(), i8, attention: Some(bf16) }
}
