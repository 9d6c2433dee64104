//! Strided views of matrices. Kernels and ops take and give these; they never own what they show.

use std::marker::PhantomData;

/// A matrix that is only read: rows of `columns` consecutive elements, `stride` elements from one row to the next.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T> {
    pointer: *const T,
    rows: usize,
    columns: usize,
    stride: usize,
    lifetime: PhantomData<&'a [T]>,
}

/// A matrix that is written: rows of `columns` consecutive elements, `stride` elements from one row to the next.
#[derive(Debug)]
pub struct MatrixMut<'a, T> {
    pointer: *mut T,
    rows: usize,
    columns: usize,
    stride: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: a view is a borrow of plain elements, so it crosses threads as `&[T]` does.
unsafe impl<T: Sync> Send for Matrix<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Matrix<'_, T> {}
// SAFETY: a unique view crosses threads as `&mut [T]` does.
unsafe impl<T: Send> Send for MatrixMut<'_, T> {}
// SAFETY: a shared reference to it only reads the shape; writing through it is an `unsafe` promise of disjointness.
unsafe impl<T: Send> Sync for MatrixMut<'_, T> {}

/// Whether rows of that shape do not overlap and end within `elements` elements.
fn fits(rows: usize, columns: usize, stride: usize, elements: usize) -> bool {
    let span = match rows {
        0 => Some(0),
        _ => (rows - 1).checked_mul(stride).and_then(|before_last| before_last.checked_add(columns)),
    };
    stride >= columns && span.is_some_and(|span| span <= elements)
}

/// Whether `count` places from `first` on are among `all`.
fn within(first: usize, count: usize, all: usize) -> bool {
    first.checked_add(count).is_some_and(|end| end <= all)
}

impl<'a, T> Matrix<'a, T> {
    /// Views `data` as `rows` × `columns` with `stride` elements between the starts of rows.
    /// Panics when the data is shorter than that or rows overlap: a shape is computed by us, never by users.
    pub fn new(data: &'a [T], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(fits(rows, columns, stride, data.len()), "matrix outside its data");
        Self { pointer: data.as_ptr(), rows, columns, stride, lifetime: PhantomData }
    }

    /// Views `data` as `rows` × `columns` without gaps.
    pub fn dense(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self::new(data, rows, columns, columns)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The first element.
    pub fn as_ptr(&self) -> *const T {
        self.pointer
    }

    /// One row.
    pub fn row(&self, row: usize) -> &'a [T] {
        assert!(row < self.rows);
        // SAFETY: the constructor checked that every row lies inside the borrowed data.
        unsafe { std::slice::from_raw_parts(self.pointer.add(row * self.stride), self.columns) }
    }

    /// The part of it that starts at (`row`, `column`) and has `rows` × `columns`.
    pub fn block(&self, row: usize, column: usize, rows: usize, columns: usize) -> Self {
        let inside = within(row, rows, self.rows) && within(column, columns, self.columns);
        assert!(inside, "block outside the matrix");
        let offset = if rows == 0 || columns == 0 { 0 } else { row * self.stride + column };
        // SAFETY: the block was just checked to lie inside the matrix.
        Self { pointer: unsafe { self.pointer.add(offset) }, rows, columns, ..*self }
    }
}

impl<'a, T> MatrixMut<'a, T> {
    /// Views `data` as `rows` × `columns` with `stride` elements between the starts of rows.
    /// Panics when the data is shorter than that or rows overlap: a shape is computed by us, never by users.
    pub fn new(data: &'a mut [T], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(fits(rows, columns, stride, data.len()), "matrix outside its data");
        Self { pointer: data.as_mut_ptr(), rows, columns, stride, lifetime: PhantomData }
    }

    /// Views `data` as `rows` × `columns` without gaps.
    pub fn dense(data: &'a mut [T], rows: usize, columns: usize) -> Self {
        Self::new(data, rows, columns, columns)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The first element.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.pointer
    }

    /// One row to write.
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows);
        // SAFETY: the constructor checked that every row lies inside the data, which this view borrows uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(row * self.stride), self.columns) }
    }

    /// What is there now, only to be read.
    pub fn as_matrix(&self) -> Matrix<'_, T> {
        Matrix {
            pointer: self.pointer,
            rows: self.rows,
            columns: self.columns,
            stride: self.stride,
            lifetime: PhantomData,
        }
    }

    /// The part of it that starts at (`row`, `column`) and has `rows` × `columns`.
    pub fn block_mut(&mut self, row: usize, column: usize, rows: usize, columns: usize) -> MatrixMut<'_, T> {
        // SAFETY: the unique borrow of `self` keeps every other access away.
        unsafe { self.shared_block(row, column, rows, columns) }
    }

    /// A block through a shared reference, for threads that write different parts of one matrix.
    ///
    /// # Safety
    /// No other view that is alive may touch the elements of this block.
    pub unsafe fn shared_block(
        &self,
        row: usize,
        column: usize,
        rows: usize,
        columns: usize,
    ) -> MatrixMut<'_, T> {
        let inside = within(row, rows, self.rows) && within(column, columns, self.columns);
        assert!(inside, "block outside the matrix");
        let offset = if rows == 0 || columns == 0 { 0 } else { row * self.stride + column };
        // SAFETY: the block was just checked to lie inside the matrix.
        let pointer = unsafe { self.pointer.add(offset) };
        MatrixMut { pointer, rows, columns, stride: self.stride, lifetime: PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn shapes_whose_sizes_overflow_are_outside() {
        let data = [0.0f32; 12];
        for (rows, columns, stride) in [(2, 1, usize::MAX), (usize::MAX, 2, 2), (3, 4, usize::MAX / 2 + 1)] {
            assert!(catch_unwind(|| Matrix::new(&data, rows, columns, stride)).is_err());
        }
        for (row, column, rows, columns) in [(1, 0, usize::MAX, 1), (0, 2, 1, usize::MAX - 1)] {
            assert!(catch_unwind(|| Matrix::dense(&data, 3, 4).block(row, column, rows, columns)).is_err());
        }
        assert_eq!(Matrix::dense(&data, 3, 4).block(1, 1, 2, 3).row(1).len(), 3);
    }
}
