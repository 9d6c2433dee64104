//! Memory for weights, scratch and outputs: aligned, zeroed, in huge pages where the system has them, and placed in
//! chosen memory domains.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::base::{Error, Result};

/// The alignment of every buffer: a cache line, and the widest vector.
pub const ALIGNMENT: usize = 64;
/// Buffers from this size on are mapped on their own, aligned to it, as it is the size of a huge page on x86 and Arm.
const HUGE: usize = 2 << 20;
/// Mapped buffers end at a multiple of this, the largest page of the systems that we know, and not of a huge one: what is
/// behind the last whole huge page takes ordinary ones.
#[cfg(unix)]
const PAGE: usize = 64 << 10;

/// Zeroed bytes that this value owns.
#[derive(Debug)]
pub struct Buffer {
    memory: NonNull<u8>,
    bytes: usize,
    mapped: bool,
}

// SAFETY: it owns its memory, which is plain bytes.
unsafe impl Send for Buffer {}
// SAFETY: through a shared reference the bytes are only read, or only their address taken.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `bytes` zeroes, aligned to [`ALIGNMENT`], whose pages are spread over `domains` (none: where they are first
    /// touched). Placement is a hint and needs the feature `numa`. `OutOfMemory` when they cannot be had.
    pub fn new(bytes: usize, domains: &[i32]) -> Result<Self> {
        let too_much = || Error::out_of_memory("a buffer", bytes as u128);
        if let Some(memory) = (bytes >= HUGE).then(|| map(bytes)) {
            let buffer = Self { memory: memory.ok_or_else(too_much)?, bytes, mapped: true };
            #[cfg(all(feature = "numa", not(target_family = "wasm")))]
            super::hwloc::bind(buffer.as_slice(), domains);
            #[cfg(not(all(feature = "numa", not(target_family = "wasm"))))]
            let _ = domains;
            return Ok(buffer);
        }
        let layout = Self::layout(bytes).ok_or_else(too_much)?;
        // SAFETY: the layout has at least one byte.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(too_much)?;
        Ok(Self { memory, bytes, mapped: false })
    }

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte, for those who keep track of who writes where.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.memory
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is owned, initialized and `bytes` long.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.bytes) }
    }

    /// All bytes, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes) }
    }

    /// As many floats as its bytes hold.
    pub fn as_floats(&self) -> &[f32] {
        // SAFETY: as above; the memory is aligned for floats, and any bits are one.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.bytes / size_of::<f32>()) }
    }

    /// As many floats as its bytes hold, to write.
    pub fn as_mut_floats(&mut self) -> &mut [f32] {
        let floats = self.bytes / size_of::<f32>();
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().cast(), floats) }
    }

    /// As many words of 32 bits as its bytes hold.
    pub fn as_words(&self) -> &[u32] {
        // SAFETY: as above; words are aligned as floats are.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.bytes / size_of::<u32>()) }
    }

    /// As many words of 32 bits as its bytes hold, to write.
    pub fn as_mut_words(&mut self) -> &mut [u32] {
        let words = self.bytes / size_of::<u32>();
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().cast(), words) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.mapped {
            unmap(self.memory, self.bytes);
        } else if let Some(layout) = Self::layout(self.bytes) {
            // SAFETY: allocated in `new` with this very layout.
            unsafe { dealloc(self.memory.as_ptr(), layout) }
        }
    }
}

/// What [`probe`] asks the system for beside the bytes: allocators take memory in steps of their own, of a megabyte and more.
const STEP: u128 = 2 << 20;
/// Up to this size [`probe`] asks the allocator, which has so much at hand or takes a step of its own for it: no system call
/// in the usual case.
const SMALL: u128 = 1 << 20;

/// `OutOfMemory` unless that many bytes can be had now, for `what`. They are given back at once: to be asked before work whose
/// own small allocations end the process where they fail, as those of the standard library do. What others take meanwhile
/// is not there any more.
pub fn probe(bytes: u128, what: &str) -> Result<()> {
    let there = match usize::try_from(bytes + STEP) {
        Ok(all) if bytes > SMALL => is_there(all),
        Ok(_) => allocator_has(bytes as usize),
        Err(_) => false,
    };
    if there { Ok(()) } else { Err(Error::out_of_memory(what, bytes)) }
}

#[cfg(unix)]
fn is_there(bytes: usize) -> bool {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: asks for new pages at an address that the system chooses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    // SAFETY: the pages were just mapped, and nobody has touched them.
    start != libc::MAP_FAILED && unsafe { libc::munmap(start, bytes) } == 0
}

#[cfg(not(unix))]
fn is_there(bytes: usize) -> bool {
    allocator_has(bytes)
}

fn allocator_has(bytes: usize) -> bool {
    let mut memory = Vec::<u8>::new();
    let had = memory.try_reserve_exact(bytes).is_ok();
    // Compilers leave out an allocation that nobody looks at, and say that it was had.
    std::hint::black_box(&memory);
    had
}

/// Fresh pages of `bytes`, aligned to [`HUGE`], in huge pages if the system likes.
#[cfg(unix)]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let kept = bytes.checked_next_multiple_of(PAGE)?;
    let total = kept.checked_add(HUGE)?;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: asks for new pages at an address that the system chooses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), total, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(HUGE);
    // SAFETY: both parts lie inside the pages that were just mapped, outside of what is kept, and on page boundaries.
    unsafe {
        if before > 0 {
            libc::munmap(start.cast(), before);
        }
        if before < HUGE {
            libc::munmap(start.add(before + kept).cast(), HUGE - before);
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        libc::madvise(start.add(before).cast(), kept, libc::MADV_HUGEPAGE);
        NonNull::new(start.add(before))
    }
}

#[cfg(unix)]
fn unmap(memory: NonNull<u8>, bytes: usize) {
    // SAFETY: `map` left these pages to the buffer, which is being dropped.
    unsafe { libc::munmap(memory.as_ptr().cast(), bytes.next_multiple_of(PAGE)) };
}

#[cfg(not(unix))]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the layout has at least one byte, as only large buffers are mapped.
    NonNull::new(unsafe { alloc_zeroed(Buffer::layout(bytes)?) })
}

#[cfg(not(unix))]
fn unmap(memory: NonNull<u8>, bytes: usize) {
    if let Some(layout) = Buffer::layout(bytes) {
        // SAFETY: allocated in `map` with this very layout.
        unsafe { dealloc(memory.as_ptr(), layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[test]
    fn buffers_are_aligned_zeroed_and_writable_to_their_ends() {
        for bytes in [0, 1, 64, 4097, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE + 12_345] {
            for domains in [&[][..], &[0][..]] {
                let mut buffer = Buffer::new(bytes, domains).unwrap();
                assert_eq!((buffer.bytes(), buffer.as_slice().len()), (bytes, bytes));
                let alignment = if bytes >= HUGE && cfg!(unix) { HUGE } else { ALIGNMENT };
                assert_eq!(buffer.as_ptr().as_ptr().align_offset(alignment), 0);
                assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
                // SAFETY: so many bytes are the buffer's, and nobody else's.
                unsafe { buffer.as_ptr().write_bytes(7, bytes) };
                assert!(buffer.as_slice().iter().all(|byte| *byte == 7));
                buffer.as_mut_floats().fill(1.5);
                assert_eq!(buffer.as_floats(), vec![1.5; bytes / 4]);
            }
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        for bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
            assert_eq!(Buffer::new(bytes, &[]).unwrap_err().status, Status::OutOfMemory);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn dropped_buffers_go_back_to_the_system() {
        let pages = || {
            std::fs::read_to_string("/proc/self/statm")
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let size = 64 << 20;
        drop(Buffer::new(size, &[]).unwrap());
        let before = pages();
        for _ in 0..50 {
            drop(Buffer::new(size, &[]).unwrap());
        }
        // Other tests map as well, but not fifty times as much.
        assert!(pages() < before + 10 * size as u64 / 4096);
    }
}
