//! Structures that carry their size, so that callers and libraries of different age understand each other: what an
//! older caller does not know takes its default, and what a newer caller sets beyond our knowledge is refused.

use crate::base::{Result, err};

/// A structure whose first field is a `usize` with the size that its owner knows.
///
/// # Safety
/// The type is `repr(C)`, begins with that size, all zero bytes are a value of it, and it has no padding that matters.
pub(super) unsafe trait SizedStruct: Copy {
    /// The name in messages.
    const NAME: &'static str;
    /// The sizes that it may have had: up to the end of each field.
    const ENDS: &'static [usize];
}

/// Makes a [`SizedStruct`] of a structure, given all of its fields in their order, `size` being the first.
///
/// To be used only where the structure is `repr(C)` and every field is a number, a pointer, an optional function or made
/// of such, so that all zero bytes are a value.
macro_rules! sized {
    ($structure:ident: size, $($field:ident),+ $(,)?) => {
        // SAFETY: the user of the macro keeps what it asks for.
        unsafe impl crate::abi::options::SizedStruct for $structure {
            const NAME: &'static str = stringify!($structure);
            // Where a field begins, the one before it ends.
            const ENDS: &'static [usize] =
                &[$(std::mem::offset_of!($structure, $field),)+ size_of::<$structure>()];
        }
        // A field that the list lacks does not compile.
        const _: fn($structure) = |$structure { size: _, $($field: _),+ }| ();
    };
}
pub(super) use sized;

/// Reads the caller's options: NULL means all defaults, a shorter structure means defaults for the rest.
///
/// # Safety
/// `pointer` is NULL or addresses as many readable bytes as its first field says.
pub(super) unsafe fn read<T: SizedStruct>(pointer: *const T) -> Result<T> {
    // SAFETY: all zero bytes are a value of the type, by the trait's promise.
    let mut options: T = unsafe { std::mem::zeroed() };
    if pointer.is_null() {
        return Ok(options);
    }
    // SAFETY: every such structure begins with its size.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    check::<T>(size)?;
    let known = size_of::<T>();
    // SAFETY: the caller promised `size` readable bytes, and no more than `known` are written here.
    unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut options).cast::<u8>(), size.min(known))
    };
    for offset in known..size {
        // SAFETY: still within the bytes that the caller promised.
        if unsafe { pointer.cast::<u8>().add(offset).read() } != 0 {
            return err!(
                Unsupported,
                "{}: byte {offset} is set, but this library knows only {known} bytes",
                T::NAME
            );
        }
    }
    Ok(options)
}

/// Writes a description: as many bytes as the caller's structure has, zeros beyond what this library knows.
///
/// # Safety
/// `pointer` is NULL or addresses as many writable bytes as its first field says.
pub(super) unsafe fn write<T: SizedStruct>(pointer: *mut T, value: T) -> Result<()> {
    if pointer.is_null() {
        return err!(InvalidArgument, "{} is NULL", T::NAME);
    }
    // SAFETY: every such structure begins with its size.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    check::<T>(size)?;
    let first = size_of::<usize>();
    let known = size_of::<T>().min(size);
    // SAFETY: the caller promised `size` writable bytes; the size itself stays as the caller set it.
    unsafe {
        let to = pointer.cast::<u8>();
        std::ptr::copy_nonoverlapping(
            (&raw const value).cast::<u8>().add(first),
            to.add(first),
            known - first,
        );
        std::ptr::write_bytes(to.add(known), 0, size - known);
    }
    Ok(())
}

/// Sizes that no version of the structure had, or absurdly large ones, come from memory that was never initialized.
fn check<T: SizedStruct>(size: usize) -> Result<()> {
    let name = T::NAME;
    if size < size_of::<usize>() || size > 1 << 16 {
        return err!(InvalidArgument, "{name}: its size is {size}; set it to sizeof the structure");
    }
    if size < size_of::<T>() && !T::ENDS.contains(&size) {
        return err!(
            InvalidArgument,
            "{name}: its size is {size}, which is inside of a field; set it to sizeof the structure"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Three {
        size: usize,
        first: u64,
        second: u64,
    }
    sized!(Three: size, first, second);

    #[test]
    fn sizes_of_every_age() {
        let read = |words: &[usize]| {
            // SAFETY: no test claims more bytes than it has.
            unsafe { read::<Three>(words.as_ptr().cast()) }.map(|three| (three.first, three.second))
        };
        assert_eq!(read(&[8, 5, 6]), Ok((0, 0)));
        assert_eq!(read(&[16, 5, 6]), Ok((5, 0)));
        assert_eq!(read(&[24, 5, 6]), Ok((5, 6)));
        assert_eq!(read(&[32, 5, 6, 0]), Ok((5, 6)));
        assert_eq!(read(&[32, 5, 6, 7]).unwrap_err().status, Status::Unsupported);
        for size in [0, 7, 9, 15, 17, 23, usize::MAX] {
            let error = read(&[size, 5, 6]).unwrap_err();
            assert_eq!(error.status, Status::InvalidArgument);
            assert!(error.message.contains(&size.to_string()), "{error}");
        }
    }

    #[test]
    fn descriptions_keep_within_the_size() {
        let value = Three { size: 24, first: 5, second: 6 };
        for (size, expected) in [(16, [16, 5, 9, 9]), (24, [24, 5, 6, 9]), (32, [32, 5, 6, 0])] {
            let mut words: [usize; 4] = [size, 9, 9, 9];
            // SAFETY: four words are more than any of the sizes.
            unsafe { write(words.as_mut_ptr().cast(), value) }.unwrap();
            assert_eq!(words, expected);
        }
    }
}
