//! What a class brings for products of one element type: tiles, and how inputs, weights and sums reach and leave them.

use crate::kernels::simd::Vector;

use super::TileFunction;
use super::ceiling::{COLUMNS, CeilingFunction, ceiling, words_per_step};
use super::dot::Dot;
use super::epilogue::{EpilogueFunction, Plain, Scaled, epilogue};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::prepare::F16Pairs;
use super::prepare::{Bf16Floats, Bf16Pairs, ByteHalves, Bytes, F16Floats, PrepareFunction, prepare};
use super::widen::{FromBf16, FromBytes, FromF16, WidenFunction, widen};

/// Products of one element type.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Gemm {
    pub(super) tiles: Tiles,
    /// Words of weights that a block of k may take, as tiles read them.
    pub(super) weights_block: usize,
    pub(super) epilogue: EpilogueFunction,
    /// Brings inputs into the form that tiles read; they read f32 in place.
    pub(super) prepare: Option<PrepareFunction>,
    /// Brings weights into that form, two words for one, where the class has no instructions for the packed form.
    pub(super) widen: Option<WidenFunction>,
}

/// The tiles of one way to multiply words, with what is known of it.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    pub(super) by_rows: &'static [&'static [TileFunction]],
    pub(super) ceiling: CeilingFunction,
    /// Words that a step of `ceiling` multiplies.
    pub(super) ceiling_words: usize,
    /// What tiles take at once.
    pub(super) unit: Unit,
    /// Of classes whose tiles are in registers that have to be set up.
    pub(super) registers: Option<Registers>,
}

/// Heights of tiles are multiples of these rows where there are as many; prepared inputs can be read, and blocks of k end, at
/// multiples of these many rows and words.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) rows: usize,
    pub(super) steps: usize,
}

/// Registers that a thread sets up before tiles run, and gives back behind them. Callers promise that the machine has them.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    /// For a product of that many rows, which are not zero.
    pub(super) configure: unsafe fn(usize),
    pub(super) release: unsafe fn(),
}

impl Tiles {
    /// `by_rows[r - 1][p - 1]` computes r rows of p panels. Every list has at least one panel.
    pub(super) const fn of<D: Dot>(by_rows: &'static [&'static [TileFunction]]) -> Self {
        let (ceiling, ceiling_words) = (ceiling::<D, COLUMNS>, words_per_step::<D, COLUMNS>());
        Self { by_rows, ceiling, ceiling_words, unit: Unit { rows: 1, steps: 1 }, registers: None }
    }
}

/// Tiles of f32.
pub(super) const fn f32<V: Vector>(tiles: Tiles, weights_block: usize) -> Gemm {
    Gemm { tiles, weights_block, epilogue: epilogue::<V, Plain>, prepare: None, widen: None }
}

/// bf16 by tiles of f32.
const fn bf16_widened<V: Vector>(tiles: Tiles, weights_block: usize) -> Gemm {
    Gemm {
        prepare: Some(prepare::<V, Bf16Floats>),
        widen: Some(widen::<V, FromBf16>),
        ..f32::<V>(tiles, weights_block)
    }
}

/// f16 by tiles of f32.
const fn f16_widened<V: Vector>(tiles: Tiles, weights_block: usize) -> Gemm {
    Gemm {
        prepare: Some(prepare::<V, F16Floats>),
        widen: Some(widen::<V, FromF16>),
        ..f32::<V>(tiles, weights_block)
    }
}

/// Tiles of pairs of bf16.
#[allow(dead_code, reason = "not every architecture has such products")]
pub(super) const fn bf16<V: Vector>(tiles: Tiles, weights_block: usize) -> Gemm {
    Gemm { prepare: Some(prepare::<V, Bf16Pairs>), ..f32::<V>(tiles, weights_block) }
}

/// Tiles of pairs of f16.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) const fn f16<V: Vector>(tiles: Tiles, weights_block: usize) -> Gemm {
    Gemm { prepare: Some(prepare::<V, F16Pairs>), ..f32::<V>(tiles, weights_block) }
}

/// Tiles of unsigned bytes by signed bytes.
pub(super) const fn i8<V: Vector>(tiles: Tiles, weights_block: usize) -> Gemm {
    Gemm {
        tiles,
        weights_block,
        epilogue: epilogue::<V, Scaled>,
        prepare: Some(prepare::<V, Bytes>),
        widen: None,
    }
}

/// Bytes by tiles of pairs of signed halves.
const fn i8_widened<V: Vector>(tiles: Tiles, weights_block: usize) -> Gemm {
    Gemm {
        prepare: Some(prepare::<V, ByteHalves>),
        widen: Some(widen::<V, FromBytes>),
        ..i8::<V>(tiles, weights_block)
    }
}

/// The products of a class, one of each type that weights are packed in.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Gemms {
    pub(in crate::kernels) f32: Gemm,
    pub(in crate::kernels) bf16: Gemm,
    pub(in crate::kernels) f16: Gemm,
    pub(in crate::kernels) i8: Gemm,
    /// Of the queries, keys and values of attention in bf16, by tiles of any rows and steps; without it, attention is in f32.
    pub(in crate::kernels) attention: Option<Gemm>,
}

impl Gemms {
    /// These, with products of bf16 by instructions of that type, in attention too.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(in crate::kernels) const fn with_bf16(self, bf16: Gemm) -> Self {
        Self { bf16, attention: Some(bf16), ..self }
    }
}

/// The products of a class that has tiles of f32 and of pairs of signed halves, and widens what is narrower.
pub(super) const fn by_widening<V: Vector>(floats: Tiles, halves: Tiles, weights_block: usize) -> Gemms {
    Gemms {
        f32: f32::<V>(floats, weights_block),
        bf16: bf16_widened::<V>(floats, weights_block),
        f16: f16_widened::<V>(floats, weights_block),
        i8: i8_widened::<V>(halves, weights_block),
        attention: None,
    }
}
