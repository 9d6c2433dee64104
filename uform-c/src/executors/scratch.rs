//! Memory for activations: one stack of bytes per thread, which grows to the most that was ever lent at once and
//! stays there until it is trimmed.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Mutex;

use crate::base::{Error, Result, Status};

const ALIGNMENT: usize = 64;

/// Plain numbers, for which every bit pattern is a value.
///
/// # Safety
/// The type has no padding, no invalid bit patterns and an alignment of at most 64 bytes.
pub unsafe trait Element: Copy + Send + Sync {}
// SAFETY: numbers have neither padding nor invalid bit patterns.
unsafe impl Element for f32 {}
// SAFETY: as above.
unsafe impl Element for u16 {}
// SAFETY: as above.
unsafe impl Element for i32 {}
// SAFETY: as above.
unsafe impl Element for u32 {}
// SAFETY: as above.
unsafe impl Element for i8 {}
// SAFETY: as above.
unsafe impl Element for u8 {}
// SAFETY: as above.
unsafe impl Element for usize {}

/// The activation memory of one thread of an executor.
#[derive(Default)]
pub struct Scratch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    chunks: Vec<Chunk>,
    in_use: usize,
    high_water: usize,
}

struct Chunk {
    memory: NonNull<u8>,
    capacity: usize,
    used: usize,
}

// SAFETY: a chunk owns its memory.
unsafe impl Send for Chunk {}

/// Memory lent by a [`Scratch`] until it is dropped; its contents are whatever was there before.
pub struct Loan<'scratch, T> {
    scratch: &'scratch Scratch,
    memory: NonNull<T>,
    count: usize,
    bytes: usize,
    lifetime: PhantomData<T>,
}

impl Chunk {
    fn new(capacity: usize) -> Result<Self> {
        let too_much = || Error::new(Status::OutOfMemory, format!("scratch: {capacity} bytes could not be had"));
        let layout = Layout::from_size_align(capacity, ALIGNMENT).map_err(|_| too_much())?;
        // SAFETY: the layout is not empty, as `take` never asks for zero bytes.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(too_much)?;
        Ok(Self { memory, capacity, used: 0 })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, which was valid there.
        unsafe { dealloc(self.memory.as_ptr(), Layout::from_size_align_unchecked(self.capacity, ALIGNMENT)) }
    }
}

impl Scratch {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Lends `count` elements, aligned to 64 bytes. Loans are given back in the reverse order, as locals are dropped.
    pub fn take<T: Element>(&self, count: usize) -> Result<Loan<'_, T>> {
        let bytes = count
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT))
            .ok_or_else(|| Error::new(Status::OutOfMemory, format!("scratch: {count} elements could not be had")))?
            .max(ALIGNMENT);
        let mut state = self.state();
        if state.in_use == 0 && state.chunks.len() > 1 {
            state.chunks.clear();
        }
        if !state.chunks.last().is_some_and(|chunk| chunk.capacity - chunk.used >= bytes) {
            let capacity = bytes.max(if state.in_use == 0 { state.high_water } else { 0 });
            if state.in_use == 0 {
                state.chunks.clear();
            }
            let chunk = Chunk::new(capacity)?;
            state.chunks.push(chunk);
        }
        state.in_use += bytes;
        state.high_water = state.high_water.max(state.in_use);
        let Some(chunk) = state.chunks.last_mut() else { unreachable!("a chunk was just made sure of") };
        // SAFETY: the chunk has `bytes` free bytes behind `used`.
        let memory = unsafe { chunk.memory.add(chunk.used) }.cast::<T>();
        chunk.used += bytes;
        Ok(Loan { scratch: self, memory, count, bytes, lifetime: PhantomData })
    }

    /// Bytes that are kept, lent or not.
    pub fn bytes(&self) -> usize {
        self.state().chunks.iter().map(|chunk| chunk.capacity).sum()
    }

    /// The most bytes that were ever lent at once.
    pub fn high_water(&self) -> usize {
        self.state().high_water
    }

    /// Gives the memory back unless some of it is lent.
    pub fn trim(&self) {
        let mut state = self.state();
        if state.in_use == 0 {
            state.chunks.clear();
        }
    }
}

impl<T> Drop for Loan<'_, T> {
    fn drop(&mut self) {
        let mut state = self.scratch.state();
        state.in_use -= self.bytes;
        let start = self.memory.as_ptr() as usize;
        for chunk in &mut state.chunks {
            let base = chunk.memory.as_ptr() as usize;
            // Loans are returned in reverse order; one that was not is reclaimed with the one below it.
            if (base..base + chunk.capacity).contains(&start) {
                chunk.used = chunk.used.min(start - base);
            }
        }
    }
}

impl<T> Deref for Loan<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: lent to this loan alone, initialized by `alloc_zeroed`, and any bits are a value of an `Element`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.count) }
    }
}

impl<T> DerefMut for Loan<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.count) }
    }
}

// SAFETY: a loan is a unique borrow of plain numbers.
unsafe impl<T: Send> Send for Loan<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Loan<'_, T> {}
