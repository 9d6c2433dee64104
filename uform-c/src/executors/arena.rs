//! Arenas: memory for outputs, which the caller owns and an executor's threads are near to.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::base::{Dtype, Error, Result, Status};
use crate::system::pages::{ALIGNMENT, Buffer};

use super::Executor;

/// The first block of an arena, and the least by which it grows.
const LEAST_BLOCK: usize = 64 << 10;
/// Blocks double up to this size, so that an arena never reserves much more than it uses.
const MOST_BLOCK: usize = 64 << 20;

/// Where memory is, numbered as the C ABI numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Residency {
    /// In the host's memory.
    Ram = 1,
    /// In a GPU's memory.
    Vram = 2,
}

/// Memory that matrices are placed in, one after the other, until all are given up at once. One thread at a time; it may
/// outlive the executor that it was made for.
pub struct Arena {
    blocks: Vec<Block>,
    /// The block that is being filled; those before it are full, those behind it empty.
    current: usize,
    domains: Vec<i32>,
}

struct Block {
    memory: Buffer,
    used: usize,
}

/// A matrix in an arena. It is valid until the arena is reset or dropped; its contents are whatever was there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaMatrix {
    /// The first byte of the first row, aligned to 64 bytes.
    pub pointer: NonNull<u8>,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Bytes from one row to the next, a multiple of 64.
    pub row_stride: usize,
    /// The type of the elements.
    pub dtype: Dtype,
}

/// What an arena holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaDescription {
    /// Bytes that its matrices take since the last reset, with what alignment adds.
    pub bytes_used: usize,
    /// Bytes that it holds.
    pub bytes_reserved: usize,
    /// Where they are.
    pub residency: Residency,
}

impl Arena {
    /// An empty arena whose memory is placed where `executor` computes, or where it is first touched without one.
    /// `Forked` when the executor was made before this process was forked.
    pub fn new_in(executor: Option<&Arc<Executor>>) -> Result<Self> {
        let domains = executor.map(|executor| executor.placement()).transpose()?;
        Ok(Self { blocks: Vec::new(), current: 0, domains: domains.unwrap_or_default() })
    }

    /// A matrix of `rows` × `columns`, each row aligned to 64 bytes. `OutOfMemory` when it cannot be had; the arena stays as
    /// it was then.
    pub fn allocate(&mut self, rows: usize, columns: usize, dtype: Dtype) -> Result<ArenaMatrix> {
        let too_much = || {
            Error::new(
                Status::OutOfMemory,
                format!("a matrix of {rows} × {columns} {} is too large", dtype.name()),
            )
        };
        // No element is wider than eight bytes, so that the length of a row is safe to compute when this is.
        columns.checked_mul(8).ok_or_else(too_much)?;
        let row_stride = dtype.row_bytes(columns).checked_next_multiple_of(ALIGNMENT).ok_or_else(too_much)?;
        let bytes = rows.checked_mul(row_stride).ok_or_else(too_much)?;
        let pointer = self.take(bytes)?;
        Ok(ArenaMatrix { pointer, rows, columns, row_stride, dtype })
    }

    /// The first of `bytes` free bytes, a multiple of the alignment.
    fn take(&mut self, bytes: usize) -> Result<NonNull<u8>> {
        let fits = |block: &Block| block.memory.bytes() - block.used >= bytes;
        let place = match (self.current..self.blocks.len()).find(|place| fits(&self.blocks[*place])) {
            Some(place) => place,
            None => {
                let last = self.blocks.last().map_or(0, |block| block.memory.bytes());
                let size = last.saturating_mul(2).clamp(LEAST_BLOCK, MOST_BLOCK).max(bytes);
                self.blocks.push(Block { memory: Buffer::new(size, &self.domains)?, used: 0 });
                self.blocks.len() - 1
            }
        };
        self.current = place;
        let block = &mut self.blocks[place];
        // SAFETY: the block has `bytes` bytes behind `used`.
        let pointer = unsafe { block.memory.as_ptr().add(block.used) };
        block.used += bytes;
        Ok(pointer)
    }

    /// Whether a matrix of that place and shape lies wholly in memory that this arena has given out since the last reset.
    pub fn contains(&self, pointer: *const u8, rows: usize, row_stride: usize, row_bytes: usize) -> bool {
        let before_last = rows.saturating_sub(1).checked_mul(row_stride);
        let Some(bytes) = before_last.and_then(|bytes| bytes.checked_add(row_bytes)) else { return false };
        let given = |block: &Block| {
            // A pointer below the block wraps to an offset far behind its end.
            let offset = pointer.addr().wrapping_sub(block.memory.as_ptr().addr().get());
            offset.checked_add(bytes).is_some_and(|end| end <= block.used)
        };
        rows == 0 || row_bytes == 0 || self.blocks.iter().any(given)
    }

    /// Gives up every matrix and keeps the memory for the next ones.
    pub fn reset(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.used = 0);
        self.current = 0;
    }

    /// What it holds.
    pub fn describe(&self) -> ArenaDescription {
        ArenaDescription {
            bytes_used: self.blocks.iter().map(|block| block.used).sum(),
            bytes_reserved: self.blocks.iter().map(|block| block.memory.bytes()).sum(),
            residency: Residency::Ram,
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe().fmt(formatter)
    }
}
