//! Memory for activations: one stack of bytes per thread, which grows to the most that was ever lent at once and
//! stays there until it is trimmed.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::base::{Error, Result, Status};
use crate::system::pages::{ALIGNMENT, Buffer};

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
unsafe impl Element for u64 {}
// SAFETY: as above.
unsafe impl Element for i8 {}
// SAFETY: as above.
unsafe impl Element for u8 {}
// SAFETY: as above.
unsafe impl Element for usize {}

/// The activation memory of one thread of an executor. Loans are taken and given back by one thread at a time, which
/// finds that out without a lock; its sizes can be asked for at any time.
#[derive(Default)]
pub struct Scratch {
    state: UnsafeCell<State>,
    /// Whether some thread is inside `state`.
    entered: AtomicBool,
    bytes: AtomicUsize,
    high_water: AtomicUsize,
    /// The memory domains that its pages are spread over; none: where they are first touched.
    domains: Vec<i32>,
}

// SAFETY: `with_state` lets one thread at a time at the state; all else is atomic or does not change.
unsafe impl Sync for Scratch {}

#[derive(Default)]
struct State {
    chunks: Vec<Chunk>,
    loans: usize,
    high_water: usize,
}

/// Memory of which the first `used` bytes are lent, or were lent below something that still is.
struct Chunk {
    memory: Buffer,
    used: usize,
}

/// Memory lent by a [`Scratch`] until it is dropped; its contents are whatever was there before.
pub struct Loan<'scratch, T> {
    scratch: &'scratch Scratch,
    memory: NonNull<T>,
    count: usize,
    bytes: usize,
    lifetime: PhantomData<T>,
}

/// Clears the flag of a scratch when it is dropped, also where the body panics.
struct Entered<'scratch>(&'scratch AtomicBool);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Scratch {
    /// Calls `body` on the state. Panics when another thread, or `body` itself, is at it: a scratch belongs to the thread that
    /// computes with it.
    fn with_state<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        assert!(!self.entered.swap(true, Ordering::Acquire), "two threads use one scratch");
        let _entered = Entered(&self.entered);
        // SAFETY: the flag was not set, so that nobody else has a reference until it is cleared.
        let state = unsafe { &mut *self.state.get() };
        let result = body(state);
        let bytes = state.chunks.iter().map(|chunk| chunk.memory.bytes()).sum();
        self.bytes.store(bytes, Ordering::Relaxed);
        self.high_water.store(state.high_water, Ordering::Relaxed);
        result
    }

    /// Scratch whose pages are spread over those memory domains.
    pub fn in_domains(domains: Vec<i32>) -> Self {
        Self { domains, ..Self::default() }
    }

    /// Lends `count` elements, aligned to 64 bytes, with whatever they held before. Loans are best given back in the
    /// reverse order, as locals are dropped; memory below a loan that is still out is not lent again before that is back.
    pub fn take<T: Element>(&self, count: usize) -> Result<Loan<'_, T>> {
        let bytes = count
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT))
            .ok_or_else(|| {
                Error::new(Status::OutOfMemory, format!("scratch: {count} elements could not be had"))
            })?
            .max(ALIGNMENT);
        let memory = self.with_state(|state| state.lend(bytes, &self.domains))?.cast::<T>();
        Ok(Loan { scratch: self, memory, count, bytes, lifetime: PhantomData })
    }

    /// Bytes that are kept, lent or not. Any thread.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that were ever lent at once. Any thread.
    pub fn high_water(&self) -> usize {
        self.high_water.load(Ordering::Relaxed)
    }

    /// Gives the memory back unless some of it is lent.
    pub fn trim(&self) {
        self.with_state(|state| {
            if state.loans == 0 {
                state.chunks.clear();
            }
        });
    }
}

impl State {
    /// The first of `bytes` bytes, a multiple of the alignment, that are lent from here on.
    fn lend(&mut self, bytes: usize, domains: &[i32]) -> Result<NonNull<u8>> {
        if self.chunks.last().is_none_or(|chunk| chunk.memory.bytes() - chunk.used < bytes) {
            let capacity = match self.loans {
                // What was lent in several chunks before will fit in one from now on.
                0 => {
                    self.chunks.clear();
                    bytes.max(self.high_water)
                }
                _ => bytes,
            };
            let memory = Buffer::new(capacity, domains)?;
            self.chunks.push(Chunk { memory, used: 0 });
        }
        let Some(chunk) = self.chunks.last_mut() else { unreachable!("a chunk was just made sure of") };
        // SAFETY: the chunk has `bytes` free bytes behind `used`.
        let memory = unsafe { chunk.memory.as_ptr().add(chunk.used) };
        chunk.used += bytes;
        self.loans += 1;
        self.high_water = self.high_water.max(self.chunks.iter().map(|chunk| chunk.used).sum());
        Ok(memory)
    }

    /// Takes back the `bytes` bytes lent at `start`.
    fn take_back(&mut self, start: usize, bytes: usize) {
        self.loans -= 1;
        if self.loans == 0 {
            // All but the last chunk were there before it grew; the next loan finds one that holds everything.
            if self.chunks.len() > 1 {
                self.chunks.clear();
            }
            self.chunks.iter_mut().for_each(|chunk| chunk.used = 0);
            return;
        }
        for chunk in &mut self.chunks {
            let base = chunk.memory.as_ptr().as_ptr().addr();
            // A loan that something lies above stays taken until all are back.
            if start >= base && start + bytes == base + chunk.used {
                chunk.used = start - base;
            }
        }
    }
}

impl<T> Drop for Loan<'_, T> {
    fn drop(&mut self) {
        let (start, bytes) = (self.memory.as_ptr().addr(), self.bytes);
        self.scratch.with_state(|state| state.take_back(start, bytes));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loans_are_aligned_and_apart() {
        let scratch = Scratch::default();
        let mut loans: Vec<Loan<'_, f32>> = (0..50).map(|count| scratch.take(count * 37).unwrap()).collect();
        for (number, loan) in loans.iter_mut().enumerate() {
            assert_eq!((loan.len(), loan.as_ptr().align_offset(64)), (number * 37, 0));
            loan.fill(number as f32);
        }
        for (number, loan) in loans.iter().enumerate() {
            assert!(loan.iter().all(|value| *value == number as f32));
        }
    }

    #[test]
    fn loans_given_back_out_of_order_are_not_lent_twice() {
        let scratch = Scratch::default();
        let _whole = scratch.take::<u8>(1 << 16);
        drop(_whole);
        let below = scratch.take::<u8>(100).unwrap();
        let mut above = scratch.take::<u8>(100).unwrap();
        above.fill(1);
        drop(below);
        let mut others: Vec<_> = (0..5).map(|_| scratch.take::<u8>(100).unwrap()).collect();
        others.iter_mut().for_each(|other| other.fill(2));
        assert!(above.iter().all(|byte| *byte == 1));
        drop((above, others));
        assert_eq!(scratch.take::<u8>(1 << 16).unwrap().len(), 1 << 16);
        assert_eq!(scratch.bytes(), 1 << 16);
    }

    #[test]
    fn memory_grows_to_the_high_water_mark_and_stays_there() {
        let scratch = Scratch::default();
        let call = || {
            let _first = scratch.take::<f32>(1000).unwrap();
            let inner = scratch.take::<u8>(5000).unwrap();
            drop(inner);
            let _second = scratch.take::<f32>(3000).unwrap();
        };
        call();
        let most = 4032 + 12_032;
        assert_eq!(scratch.high_water(), most);
        call();
        let kept = scratch.bytes();
        assert_eq!(kept, most);
        for _ in 0..100 {
            call();
            assert_eq!((scratch.bytes(), scratch.high_water()), (kept, most));
        }
    }

    #[test]
    fn trimming_gives_back_what_is_not_lent() {
        let scratch = Scratch::default();
        let loan = scratch.take::<f32>(1 << 20).unwrap();
        scratch.trim();
        assert_eq!(scratch.bytes(), 4 << 20);
        drop(loan);
        scratch.trim();
        assert_eq!((scratch.bytes(), scratch.high_water()), (0, 4 << 20));
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let scratch = Scratch::default();
        for count in [usize::MAX, usize::MAX / 4, 1 << 58] {
            assert_eq!(scratch.take::<f32>(count).err().map(|error| error.status), Some(Status::OutOfMemory));
        }
        assert_eq!(scratch.take::<f32>(0).unwrap().len(), 0);
    }
}
