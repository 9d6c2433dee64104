//! The caller's matrix: rows of any element type, at any address, with any stride.

use half::{bf16, f16};

use crate::base::{Dtype, Result, err};

/// Where rows are written to: memory of the caller, unaligned and with gaps if need be.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    pointer: *mut u8,
    rows: usize,
    columns: usize,
    row_stride: usize,
    dtype: Dtype,
    lifetime: std::marker::PhantomData<&'a mut [u8]>,
}

// SAFETY: it stands for a unique borrow of plain bytes, and every row is written by one thread only.
unsafe impl Send for Output<'_> {}
// SAFETY: as above.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    /// `rows` rows of `columns` elements of `dtype` from `pointer` on, `row_stride` bytes from one to the next.
    ///
    /// # Safety
    /// That memory may be written to for `'a`, and nothing else touches it meanwhile.
    pub unsafe fn new(
        pointer: *mut u8,
        rows: usize,
        columns: usize,
        row_stride: usize,
        dtype: Dtype,
    ) -> Self {
        Self { pointer, rows, columns, row_stride, dtype, lifetime: std::marker::PhantomData }
    }

    /// Rows of f32 one behind the other.
    pub fn dense(values: &'a mut [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(Some(values.len()), rows.checked_mul(columns), "rows outside their memory");
        let row_stride = columns * size_of::<f32>();
        // SAFETY: the slice has exactly these elements and is borrowed for as long as the view lives.
        unsafe { Self::new(values.as_mut_ptr().cast(), rows, columns, row_stride, Dtype::F32) }
    }

    /// Checks that it takes `rows` rows of `columns` elements.
    pub(super) fn check(&self, rows: usize, columns: usize) -> Result<()> {
        if self.rows < rows {
            return err!(BufferTooSmall, "output: expected {rows} rows, found {}", self.rows);
        }
        if self.rows > rows {
            return err!(InvalidArgument, "output: expected {rows} rows, found {}", self.rows);
        }
        if self.columns != columns {
            let found = self.columns;
            return match found < columns {
                true => err!(BufferTooSmall, "output: expected {columns} columns, found {found}"),
                false => err!(InvalidArgument, "output: expected {columns} columns, found {found}"),
            };
        }
        if rows == 0 {
            return Ok(());
        }
        if self.pointer.is_null() {
            return err!(InvalidArgument, "output: expected memory for {rows} rows, found a null pointer");
        }
        let needed = self.dtype.row_bytes(columns);
        if rows > 1 && self.row_stride < needed {
            let found = self.row_stride;
            return err!(
                InvalidArgument,
                "output: row stride: expected at least {needed} bytes, found {found}"
            );
        }
        let bytes = (rows - 1).checked_mul(self.row_stride).and_then(|bytes| bytes.checked_add(needed));
        match bytes.is_some_and(|bytes| bytes <= isize::MAX as usize) {
            true => Ok(()),
            false => {
                err!(InvalidArgument, "output: row stride: {} bytes lead out of memory", self.row_stride)
            }
        }
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Converts one row. Integers are rounded to even after the multiplication with `scale` and saturate; u8 is the i8
    /// value plus 128; a bit is set where the element is above zero. Answers whether every element that was written is
    /// finite.
    ///
    /// # Safety
    /// [`check`](Self::check) accepted the shape, `row` is inside it, and no other thread writes this row.
    pub(super) unsafe fn write(&self, row: usize, values: &[f32], scale: f32) -> bool {
        let quantized = |value: f32| (value * scale).round_ties_even().clamp(-128.0, 127.0) as i8;
        // SAFETY: the caller promises that the row is inside the memory and ours alone; `check` saw to its bytes.
        let bytes = unsafe {
            let start = self.pointer.add(row * self.row_stride);
            std::slice::from_raw_parts_mut(start, self.dtype.row_bytes(values.len()))
        };
        match self.dtype {
            Dtype::F32 => {
                let elements = bytes.as_chunks_mut().0.iter_mut().zip(values);
                elements.for_each(|(bytes, value)| *bytes = value.to_ne_bytes());
            }
            Dtype::F16 => {
                let mut finite = true;
                for (bytes, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
                    let value = f16::from_f32(*value);
                    finite &= value.is_finite();
                    *bytes = value.to_ne_bytes();
                }
                return finite;
            }
            Dtype::Bf16 => {
                let mut finite = true;
                for (bytes, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
                    let value = bf16::from_f32(*value);
                    finite &= value.is_finite();
                    *bytes = value.to_ne_bytes();
                }
                return finite;
            }
            Dtype::I8 => {
                bytes.iter_mut().zip(values).for_each(|(byte, value)| *byte = quantized(*value) as u8)
            }
            Dtype::U8 => {
                let elements = bytes.iter_mut().zip(values);
                elements.for_each(|(byte, value)| *byte = (quantized(*value) as u8).wrapping_add(128));
            }
            Dtype::B1 => {
                for (byte, eight) in bytes.iter_mut().zip(values.chunks(8)) {
                    let bits =
                        eight.iter().enumerate().map(|(bit, value)| u8::from(*value > 0.0) << (7 - bit));
                    *byte = bits.fold(0, |byte, bit| byte | bit);
                }
            }
        }
        values.iter().all(|value| value.is_finite())
    }

    /// Writes what a row holds that has no vector: NaN in every element, or zero bytes where the type has no NaN.
    ///
    /// # Safety
    /// As for [`write`](Self::write).
    pub(super) unsafe fn write_failed(&self, row: usize) {
        let columns = self.columns;
        match self.dtype {
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => {
                // SAFETY: the caller promises what `write` asks for.
                unsafe { self.write(row, &vec![f32::NAN; columns], 1.0) };
            }
            Dtype::I8 | Dtype::U8 | Dtype::B1 => {
                // SAFETY: the row is inside the memory and ours alone, by the caller's promise.
                unsafe {
                    self.pointer.add(row * self.row_stride).write_bytes(0, self.dtype.row_bytes(columns))
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    fn row(dtype: Dtype, values: &[f32], scale: f32) -> (Vec<u8>, bool) {
        // One byte further on, so that nothing is aligned, and with bytes around that must stay.
        let mut memory = vec![0xaa; dtype.row_bytes(values.len()) + 2];
        // SAFETY: the row lies inside the memory.
        let finite = unsafe {
            let output = Output::new(memory.as_mut_ptr().add(1), 1, values.len(), 0, dtype);
            output.check(1, values.len()).unwrap();
            output.write(0, values, scale)
        };
        assert_eq!((memory[0], *memory.last().unwrap()), (0xaa, 0xaa));
        (memory[1..memory.len() - 1].to_vec(), finite)
    }

    #[test]
    fn integers_round_to_even_and_saturate() {
        let values = [0.5, 1.5, 2.5, -0.5, -1.5, 200.0, -200.0, 0.0];
        let signed = [0i8, 2, 2, 0, -2, 127, -128, 0];
        assert_eq!(row(Dtype::I8, &values, 1.0).0, signed.map(|value| value as u8));
        assert_eq!(row(Dtype::U8, &values, 1.0).0, signed.map(|value| (i16::from(value) + 128) as u8));
        assert_eq!(row(Dtype::I8, &[1.0, -1.0, 0.1], 127.0).0, [127, 129, 13]);
    }

    #[test]
    fn the_first_bit_is_the_highest() {
        let values = [1.0, -1.0, 0.0, 2.0, -0.0, 3.0, -3.0, 1e-30, 1.0, -1.0];
        assert_eq!(row(Dtype::B1, &values, 1.0).0, [0b1001_0101, 0b1000_0000]);
    }

    #[test]
    fn what_overflows_half_is_not_finite() {
        assert!(row(Dtype::F16, &[65504.0, -1.0], 1.0).1);
        assert!(!row(Dtype::F16, &[65536.0], 1.0).1);
        assert!(row(Dtype::Bf16, &[65536.0], 1.0).1);
        assert!(!row(Dtype::F32, &[f32::NAN], 1.0).1);
        assert!(!row(Dtype::I8, &[f32::INFINITY], 1.0).1);
    }

    #[test]
    fn wrong_shapes_are_errors() {
        let mut memory = [0f32; 6];
        let status = |rows, columns, found: Output| found.check(rows, columns).unwrap_err().status;
        assert_eq!(status(3, 3, Output::dense(&mut memory, 2, 3)), Status::BufferTooSmall);
        assert_eq!(status(2, 4, Output::dense(&mut memory, 2, 3)), Status::BufferTooSmall);
        assert_eq!(status(2, 2, Output::dense(&mut memory, 2, 3)), Status::InvalidArgument);
        assert_eq!(status(1, 3, Output::dense(&mut memory, 2, 3)), Status::InvalidArgument);
        let pointer = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: nothing is written through these views.
        unsafe {
            assert_eq!(status(2, 3, Output::new(pointer, 2, 3, 11, Dtype::F32)), Status::InvalidArgument);
            assert_eq!(
                status(2, 3, Output::new(pointer, 2, 3, usize::MAX, Dtype::F32)),
                Status::InvalidArgument
            );
            assert_eq!(
                status(2, 3, Output::new(std::ptr::null_mut(), 2, 3, 12, Dtype::F32)),
                Status::InvalidArgument
            );
            Output::new(std::ptr::null_mut(), 0, 3, 0, Dtype::F32).check(0, 3).unwrap();
        }
    }
}
