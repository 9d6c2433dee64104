//! Memory that is only read any more: bytes of our own, or a part of a mapped file.

#[cfg(not(target_family = "wasm"))]
use std::ops::Range;
#[cfg(not(target_family = "wasm"))]
use std::sync::Arc;

use super::pages::Buffer;

/// Bytes that nobody writes to, and that live as long as this value. Any thread.
#[derive(Debug)]
pub enum Memory {
    /// Aligned to [`ALIGNMENT`](super::pages::ALIGNMENT).
    Owned(Buffer),
    /// Made by [`Memory::mapped`] alone.
    #[cfg(not(target_family = "wasm"))]
    Mapped(Part),
}

/// Some bytes of a mapped file.
#[cfg(not(target_family = "wasm"))]
#[derive(Debug)]
pub struct Part {
    map: Arc<memmap2::Mmap>,
    /// Inside the map, and at an address for words.
    range: Range<usize>,
}

impl From<Buffer> for Memory {
    fn from(buffer: Buffer) -> Self {
        Self::Owned(buffer)
    }
}

impl Memory {
    /// A part of a mapped file that holds little-endian words, or nothing where it does not begin at a multiple of
    /// `alignment`, at least that of words, is not inside the file, or words are of another order here.
    #[cfg(not(target_family = "wasm"))]
    pub fn mapped(map: &Arc<memmap2::Mmap>, offset: u64, bytes: usize, alignment: usize) -> Option<Self> {
        let start = usize::try_from(offset).ok()?;
        let range = start..start.checked_add(bytes)?;
        let address = map.get(range.clone())?.as_ptr().addr();
        let serves = address.is_multiple_of(alignment.max(align_of::<u32>()));
        (serves && cfg!(target_endian = "little")).then(|| Self::Mapped(Part { map: Arc::clone(map), range }))
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(buffer) => buffer.as_slice(),
            #[cfg(not(target_family = "wasm"))]
            Self::Mapped(part) => &part.map[part.range.clone()],
        }
    }

    /// As many floats as its bytes hold.
    pub fn as_floats(&self) -> &[f32] {
        let bytes = self.as_slice();
        // SAFETY: both kinds of memory are aligned for words, as floats are, and any bits are one.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<f32>()) }
    }

    /// As many words of 32 bits as its bytes hold.
    pub fn as_words(&self) -> &[u32] {
        let bytes = self.as_slice();
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<u32>()) }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.as_slice().len()
    }
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use super::*;
    use crate::system::pages::ALIGNMENT;

    #[test]
    fn parts_of_a_map_serve_where_they_are_aligned_and_inside() {
        let path = std::env::temp_dir().join(format!("uform-map-{}", std::process::id()));
        let values: Vec<u8> = (0u32..64).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &values).unwrap();
        // SAFETY: nobody else knows the file.
        let map = Arc::new(unsafe { memmap2::Mmap::map(&std::fs::File::open(&path).unwrap()) }.unwrap());
        let part = |offset, bytes, alignment| Memory::mapped(&map, offset, bytes, alignment);
        assert_eq!(part(128, 8, ALIGNMENT).unwrap().as_words(), [32, 33]);
        assert_eq!(part(8, 4, 1).unwrap().as_floats()[0].to_bits(), 2);
        assert!(part(8, 8, ALIGNMENT).is_none() && part(2, 4, 1).is_none());
        assert!(part(0, 257, 1).is_none() && part(u64::MAX, 4, 1).is_none() && part(256, 4, 1).is_none());
        std::fs::remove_file(&path).unwrap();
    }
}
