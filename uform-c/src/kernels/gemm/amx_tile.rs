//! Tiles of a product in the tiles of AMX: up to 32 rows × 2 panels, or 16 rows × 4 panels, in four tiles of sums.
//!
//! Four sums do not wait for each other, which hides the latency of their products, and each tile that is loaded meets two
//! others. All tiles have full rows of 16 words, as inputs are padded to that, and as many rows as a product has, up to 16. What
//! is left of k beyond whole tiles is copied and filled up with steps of zeros; of a tile with more rows than are there, these alone
//! are copied. So every element is the same sum whatever stands beside it: blocks of 16 words of k from the first one on.
//!
//! Why few rows take the same road: TDPBF16PS and VDPBF16PS sum in different orders, and tiles ask for weights about as fast as
//! memory beyond the first-level cache gives them. Why shapes are set once a product and not for its last rows:
//! LDTILECFG empties all tiles.

use std::mem::MaybeUninit;

use super::amx::{Amx, Configuration, TILE};
use super::ceiling::CeilingFunction;
use super::kinds::{Registers, Tiles, Unit};
use super::{PANEL, Tile, TileFunction};

const _: () = assert!(TILE == PANEL);

/// Tiles that hold sums, from the first on; then two of inputs and two of weights.
const SUMS: usize = 4;
const INPUT: usize = SUMS;
const SECOND_INPUT: usize = SUMS + 1;
const WEIGHTS: usize = SUMS + 2;
const MORE_WEIGHTS: usize = SUMS + 3;

/// Words of a tile.
const WORDS: usize = TILE * TILE;

/// What words are, as the product of three tiles takes them.
pub(super) trait Element: 'static {
    /// Adds the products of a tile of inputs and one of weights to a tile of sums.
    ///
    /// # Safety
    /// As [`Amx::dot_bf16`], and the machine has the instruction.
    unsafe fn dot<A: Amx, const S: usize, const I: usize, const W: usize>();
}

/// Pairs of bf16.
pub(super) struct Bf16;

impl Element for Bf16 {
    #[inline(always)]
    unsafe fn dot<A: Amx, const S: usize, const I: usize, const W: usize>() {
        // SAFETY: the caller's promise.
        unsafe { A::dot_bf16::<S, I, W>() }
    }
}

/// Pairs of f16.
pub(super) struct F16;

impl Element for F16 {
    #[inline(always)]
    unsafe fn dot<A: Amx, const S: usize, const I: usize, const W: usize>() {
        // SAFETY: the caller's promise.
        unsafe { A::dot_f16::<S, I, W>() }
    }
}

/// Four bytes, unsigned ones of the input and signed ones of the weights.
pub(super) struct Bytes;

impl Element for Bytes {
    #[inline(always)]
    unsafe fn dot<A: Amx, const S: usize, const I: usize, const W: usize>() {
        // SAFETY: the caller's promise.
        unsafe { A::dot_bytes::<S, I, W>() }
    }
}

/// Gives all tiles the shape that products of `rows` rows take, which are not zero.
///
/// # Safety
/// As [`Amx::configure`].
unsafe fn configure<A: Amx>(rows: usize) {
    let mut configuration =
        Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    for tile in 0..=MORE_WEIGHTS {
        configuration.row_bytes[tile] = (TILE * size_of::<u32>()) as u16;
        configuration.rows[tile] = if tile < WEIGHTS { rows.min(TILE) as u8 } else { TILE as u8 };
    }
    // SAFETY: the caller's promise; 16 rows of 64 bytes are within the first palette.
    unsafe { A::configure(&configuration) }
}

/// Which rows and panel a tile of sums is for, where there is such a one.
const fn place<const ROWS: usize, const PANELS: usize>(sum: usize) -> Option<(usize, usize)> {
    let (rows, panel) = if ROWS == 2 { (sum / 2, sum % 2) } else { (0, sum) };
    if rows < ROWS && panel < PANELS { Some((rows, panel)) } else { None }
}

/// Where the sums of a tile are in memory: in the output, or beside it where not all of its rows are there.
struct Memory<'a, const ROWS: usize, const PANELS: usize> {
    tile: &'a Tile,
    /// Rows of the last tile where those are fewer than 16, else none.
    rest: usize,
    beside: [MaybeUninit<[u32; WORDS]>; PANELS],
}

impl<'a, const ROWS: usize, const PANELS: usize> Memory<'a, ROWS, PANELS> {
    fn new(tile: &'a Tile) -> Self {
        Self { tile, rest: tile.rows % TILE, beside: [const { MaybeUninit::uninit() }; PANELS] }
    }

    /// The first word of 16 rows of a panel, and the words from one row to the next.
    ///
    /// # Safety
    /// The output is good for rows and panels of that number.
    #[inline(always)]
    unsafe fn of(&mut self, rows: usize, panel: usize) -> (*mut u32, usize) {
        if rows + 1 == ROWS && self.rest > 0 {
            return (self.beside[panel].as_mut_ptr().cast(), TILE);
        }
        let offset = rows * TILE * self.tile.output_stride + panel * PANEL;
        // SAFETY: the caller's promise.
        (unsafe { self.tile.output.add(offset) }, self.tile.output_stride)
    }

    /// Calls `copy` with each row of which the sums are beside the output, there and in the output.
    ///
    /// # Safety
    /// The output is good for all rows and panels.
    unsafe fn each_row_beside(&mut self, copy: impl Fn(*mut u32, *mut u32)) {
        for (panel, beside) in self.beside.iter_mut().enumerate() {
            for row in 0..self.rest {
                let offset = ((ROWS - 1) * TILE + row) * self.tile.output_stride + panel * PANEL;
                // SAFETY: the caller's promise; `row` is below 16.
                unsafe {
                    copy(beside.as_mut_ptr().cast::<u32>().add(row * TILE), self.tile.output.add(offset))
                }
            }
        }
    }

    /// Fills a tile of sums with what the output holds, or with zeros.
    ///
    /// # Safety
    /// As [`TileFunction`]; what belongs beside the output is there.
    #[inline(always)]
    unsafe fn begin<A: Amx, const SUM: usize>(&mut self) {
        let Some((rows, panel)) = place::<ROWS, PANELS>(SUM) else { return };
        // SAFETY: the caller's promise.
        unsafe {
            if self.tile.accumulate {
                let (from, stride) = self.of(rows, panel);
                A::load::<SUM>(from, stride);
            } else {
                A::zero::<SUM>();
            }
        }
    }

    /// Writes a tile of sums to its place.
    ///
    /// # Safety
    /// As [`TileFunction`].
    #[inline(always)]
    unsafe fn end<A: Amx, const SUM: usize>(&mut self) {
        let Some((rows, panel)) = place::<ROWS, PANELS>(SUM) else { return };
        // SAFETY: the caller's promise.
        unsafe {
            let (to, stride) = self.of(rows, panel);
            A::store::<SUM>(to, stride);
        }
    }
}

/// Adds the products of 16 words of k to all sums.
///
/// # Safety
/// As [`TileFunction`]; that many words can be read from all rows and panels.
#[inline(always)]
unsafe fn step<A: Amx, E: Element, const ROWS: usize, const PANELS: usize>(
    input: *const u32,
    input_stride: usize,
    panel: *const u32,
    panel_stride: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        A::load::<WEIGHTS>(panel, PANEL);
        A::load::<INPUT>(input, input_stride);
        E::dot::<A, 0, INPUT, WEIGHTS>();
        if PANELS > 1 {
            A::load::<MORE_WEIGHTS>(panel.add(panel_stride), PANEL);
            E::dot::<A, 1, INPUT, MORE_WEIGHTS>();
        }
        if ROWS > 1 {
            A::load::<SECOND_INPUT>(input.add(TILE * input_stride), input_stride);
            E::dot::<A, 2, SECOND_INPUT, WEIGHTS>();
            if PANELS > 1 {
                E::dot::<A, 3, SECOND_INPUT, MORE_WEIGHTS>();
            }
        }
        if PANELS > 2 {
            A::load::<WEIGHTS>(panel.add(2 * panel_stride), PANEL);
            E::dot::<A, 2, INPUT, WEIGHTS>();
        }
        if PANELS > 3 {
            A::load::<MORE_WEIGHTS>(panel.add(3 * panel_stride), PANEL);
            E::dot::<A, 3, INPUT, MORE_WEIGHTS>();
        }
    }
}

/// [`TileFunction`] of up to `ROWS` tiles of rows and exactly `PANELS` panels. Inputs can be read up to whole tiles.
///
/// # Safety
/// See [`TileFunction`]; tiles have the shape for a product of at least as many rows.
unsafe fn tile<A: Amx, E: Element, const ROWS: usize, const PANELS: usize>(tile: &Tile) {
    let Tile { depth, mut input, input_stride, mut panel, panel_stride, .. } = *tile;
    let (whole, rest) = (depth / TILE, depth % TILE);
    let mut memory = Memory::<ROWS, PANELS>::new(tile);
    let mut last = [const { MaybeUninit::<[u32; WORDS]>::uninit() }; PANELS];
    // SAFETY: the pointers are good for `ROWS` tiles of rows, `PANELS` panels and `depth` steps.
    unsafe {
        if rest > 0 {
            for (index, last) in last.iter_mut().enumerate() {
                let from = panel.add(index * panel_stride + whole * WORDS);
                let to = last.as_mut_ptr().cast::<u32>();
                to.copy_from_nonoverlapping(from, rest * PANEL);
                to.add(rest * PANEL).write_bytes(0, (TILE - rest) * PANEL);
            }
        }
        if tile.accumulate && memory.rest > 0 {
            memory.beside.iter_mut().for_each(|beside| _ = beside.write([0; WORDS]));
            memory.each_row_beside(|beside, output| beside.copy_from_nonoverlapping(output, PANEL));
        }
        // From here on tiles hold something, and nothing is called.
        memory.begin::<A, 0>();
        memory.begin::<A, 1>();
        memory.begin::<A, 2>();
        memory.begin::<A, 3>();
        for _ in 0..whole {
            step::<A, E, ROWS, PANELS>(input, input_stride, panel, panel_stride);
            (input, panel) = (input.add(TILE), panel.add(WORDS));
        }
        if rest > 0 {
            step::<A, E, ROWS, PANELS>(input, input_stride, last.as_ptr().cast(), WORDS);
        }
        memory.end::<A, 0>();
        memory.end::<A, 1>();
        memory.end::<A, 2>();
        memory.end::<A, 3>();
        memory.each_row_beside(|beside, output| output.copy_from_nonoverlapping(beside, PANEL));
    }
}

/// [`CeilingFunction`] of tiles: as many independent products as there are sums.
///
/// # Safety
/// See [`CeilingFunction`].
unsafe fn ceiling<A: Amx, E: Element>(steps: usize) {
    // SAFETY: the caller's promise; all tiles have the same shape.
    unsafe {
        configure::<A>(TILE);
        for _ in 0..steps {
            E::dot::<A, 0, INPUT, WEIGHTS>();
            E::dot::<A, 1, INPUT, MORE_WEIGHTS>();
            E::dot::<A, 2, SECOND_INPUT, WEIGHTS>();
            E::dot::<A, 3, SECOND_INPUT, MORE_WEIGHTS>();
        }
        A::release();
    }
}

/// Tiles by rows and panels.
struct ByRows<A, E>(A, E);

impl<A: Amx, E: Element> ByRows<A, E> {
    const LOW: &[TileFunction] =
        &[tile::<A, E, 1, 1>, tile::<A, E, 1, 2>, tile::<A, E, 1, 3>, tile::<A, E, 1, 4>];
    const HIGH: &[TileFunction] = &[tile::<A, E, 2, 1>, tile::<A, E, 2, 2>];
    const ALL: &[&[TileFunction]] = &{
        let mut all = [Self::HIGH; 2 * TILE];
        let mut rows = 0;
        while rows < TILE {
            all[rows] = Self::LOW;
            rows += 1;
        }
        all
    };
    const CEILING: CeilingFunction = ceiling::<A, E>;
}

/// The tiles of one way to multiply words.
pub(super) const fn tiles<A: Amx, E: Element>() -> Tiles {
    Tiles {
        by_rows: ByRows::<A, E>::ALL,
        ceiling: ByRows::<A, E>::CEILING,
        ceiling_words: SUMS * TILE * WORDS,
        unit: Unit { rows: TILE, steps: TILE },
        registers: Some(Registers { configure: configure::<A>, release: A::release }),
    }
}
