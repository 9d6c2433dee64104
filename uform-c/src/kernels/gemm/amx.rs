//! The instructions of AMX: eight tiles of up to 16 rows of 16 words, and products of them. Kernels are written over [`Amx`],
//! so that the same code runs on the processor and, in tests, over a model of what the instructions are documented to do.
//!
//! Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, "Programming with Intel Advanced Matrix
//! Extensions", and volume 2 for each instruction; TDPFP16PS also in the Intel Architecture Instruction Set Extensions
//! Programming Reference.
//!
//! A product of tiles takes an input of 16 rows × 16 words and weights of 16 steps × 16 columns of words, which is how
//! [`Packed`](super::Packed) holds them: 16 steps of a panel are one tile as they lie in memory. Sums of floats are made
//! within the tile first: the first elements of all words one after another in one sum and the second ones in another, both
//! from zero, each product being added with one rounding; then the two are added, and that to what was there. Subnormal results
//! become zeros, and subnormal bf16 are taken for zeros, subnormal f16 for what they are. Sums of bytes are exact.

use std::arch::asm;

/// Rows of a tile, and words of such a row, which are the columns of a panel.
pub(super) const TILE: usize = 16;

/// What LDTILECFG reads: the shapes of all tiles.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Configuration {
    /// 1 for eight tiles of up to 16 rows of 64 bytes.
    pub palette: u8,
    /// Zero, except where an instruction that was interrupted goes on.
    pub start_row: u8,
    /// Zeros.
    pub reserved: [u8; 14],
    /// Bytes of a row of each tile; zeros from the ninth on.
    pub row_bytes: [u16; 16],
    /// Rows of each tile; zeros from the ninth on.
    pub rows: [u8; 16],
}

/// The instructions of AMX that products use. Tiles are registers of the thread, numbered from 0 to 7; instructions that read or
/// write them may be executed between [`configure`](Amx::configure) and [`release`](Amx::release) alone.
pub trait Amx: 'static {
    /// LDTILECFG: gives all tiles their shapes and fills them with zeros.
    ///
    /// # Safety
    /// The machine has AMX, and the system lends it to this process. The configuration is as its fields say.
    unsafe fn configure(configuration: &Configuration);

    /// TILERELEASE: tiles have no shape and no content any more, so that the system has nothing to save.
    ///
    /// # Safety
    /// The machine has AMX, and the system lends it to this process.
    unsafe fn release();

    /// TILEZERO.
    ///
    /// # Safety
    /// The tile has a shape.
    unsafe fn zero<const T: usize>();

    /// TILELOADD: fills a tile from rows that begin `stride` words apart.
    ///
    /// # Safety
    /// The tile has a shape, and rows of that shape can be read.
    unsafe fn load<const T: usize>(from: *const u32, stride: usize);

    /// TILESTORED: writes a tile as rows that begin `stride` words apart.
    ///
    /// # Safety
    /// The tile has a shape, and rows of that shape can be written.
    unsafe fn store<const T: usize>(to: *mut u32, stride: usize);

    /// TDPBF16PS: adds the products of pairs of bf16 to sums in f32.
    ///
    /// # Safety
    /// The three tiles are different, and their shapes belong together: rows × columns, rows × steps, steps × columns.
    unsafe fn dot_bf16<const SUM: usize, const INPUT: usize, const WEIGHTS: usize>();

    /// TDPFP16PS: adds the products of pairs of f16 to sums in f32.
    ///
    /// # Safety
    /// As [`dot_bf16`](Amx::dot_bf16), and the machine has AMX-FP16.
    unsafe fn dot_f16<const SUM: usize, const INPUT: usize, const WEIGHTS: usize>();

    /// TDPBUSD: adds the products of unsigned bytes of the input and signed bytes of the weights to sums in i32.
    ///
    /// # Safety
    /// As [`dot_bf16`](Amx::dot_bf16).
    unsafe fn dot_bytes<const SUM: usize, const INPUT: usize, const WEIGHTS: usize>();
}

/// The instructions of the processor. What one of them leaves in a tile is there for the next one: no function enables AMX for the
/// compiler, which so has no use of its own for these registers. Calls may change them, and kernels make none while tiles hold
/// something; their shapes outlive calls of our own functions, none of which touches them.
pub(in crate::kernels) struct Instructions;

/// `asm!` that may write any tile. Numbers of tiles are parameters, and a clobber cannot be one.
macro_rules! tiles {
    ($instruction:literal, $($operands:tt)*) => {
        asm!(
            $instruction,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            $($operands)*
        )
    };
}

impl Amx for Instructions {
    #[inline(always)]
    unsafe fn configure(configuration: &Configuration) {
        // SAFETY: the caller's promise; 64 bytes are read, as many as a configuration has.
        unsafe {
            tiles!("ldtilecfg [{from}]", from = in(reg) configuration, options(nostack, preserves_flags, readonly));
        }
    }

    #[inline(always)]
    unsafe fn release() {
        // SAFETY: the caller's promise.
        unsafe { tiles!("tilerelease", options(nostack, preserves_flags, nomem)) }
    }

    #[inline(always)]
    unsafe fn zero<const T: usize>() {
        // SAFETY: the caller's promise.
        unsafe { tiles!("tilezero tmm{tile}", tile = const T, options(nostack, preserves_flags, nomem)) }
    }

    #[inline(always)]
    unsafe fn load<const T: usize>(from: *const u32, stride: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            tiles!(
                "tileloadd tmm{tile}, [{from} + {stride}]",
                tile = const T,
                from = in(reg) from,
                stride = in(reg) stride * size_of::<u32>(),
                options(nostack, preserves_flags, readonly)
            );
        }
    }

    #[inline(always)]
    unsafe fn store<const T: usize>(to: *mut u32, stride: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            tiles!(
                "tilestored [{to} + {stride}], tmm{tile}",
                tile = const T,
                to = in(reg) to,
                stride = in(reg) stride * size_of::<u32>(),
                options(nostack, preserves_flags)
            );
        }
    }

    #[inline(always)]
    unsafe fn dot_bf16<const SUM: usize, const INPUT: usize, const WEIGHTS: usize>() {
        // SAFETY: the caller's promise.
        unsafe {
            tiles!(
                "tdpbf16ps tmm{sum}, tmm{input}, tmm{weights}",
                sum = const SUM, input = const INPUT, weights = const WEIGHTS,
                options(nostack, preserves_flags, nomem)
            );
        }
    }

    #[inline(always)]
    unsafe fn dot_f16<const SUM: usize, const INPUT: usize, const WEIGHTS: usize>() {
        // SAFETY: the caller's promise.
        unsafe {
            tiles!(
                "tdpfp16ps tmm{sum}, tmm{input}, tmm{weights}",
                sum = const SUM, input = const INPUT, weights = const WEIGHTS,
                options(nostack, preserves_flags, nomem)
            );
        }
    }

    #[inline(always)]
    unsafe fn dot_bytes<const SUM: usize, const INPUT: usize, const WEIGHTS: usize>() {
        // SAFETY: the caller's promise.
        unsafe {
            tiles!(
                "tdpbusd tmm{sum}, tmm{input}, tmm{weights}",
                sum = const SUM, input = const INPUT, weights = const WEIGHTS,
                options(nostack, preserves_flags, nomem)
            );
        }
    }
}
