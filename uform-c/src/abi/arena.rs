//! Output memory that the caller owns, placed where an executor computes.

use crate::base::{Result, err};
use crate::executors::Arena;

use super::error::{uform_error_t, uform_status_t};
use super::executor::{executor_of, uform_executor_t};
use super::guard::{guard, guard_value};
use super::handle;
use super::options;
use super::values::*;

/// Memory for outputs. Matrices are placed in it one after the other and go all at once.
pub struct uform_arena_t {
    arena: std::cell::RefCell<Arena>,
}

/// What an arena holds. Set `size` to the size of the structure before asking.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_arena_description_t {
    /// Bytes of this structure, set by the caller.
    pub size: usize,
    /// Where the memory lies.
    pub residency: uform_residency_t,
    /// Zero.
    pub reserved: u32,
    /// Bytes of the matrices that were placed since the last reset.
    pub used_bytes: u64,
    /// Bytes that the arena keeps.
    pub reserved_bytes: u64,
}

options::sized!(uform_arena_description_t: size, residency, reserved, used_bytes, reserved_bytes);

/// Makes an empty arena in the memory where `executor` computes; NULL is the null executor. A host arena may outlive
/// its executor.
///
/// Thread safety: any thread, while no other thread uses the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_arena_new_in(
    executor: *const uform_executor_t,
    arena_out: *mut *mut uform_arena_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::give(arena_out, "arena_out", || {
                Ok(uform_arena_t { arena: Arena::new_in(executor_of(executor))?.into() })
            })
        })
    }
}

/// Places a matrix in the arena, its rows aligned to 64 bytes. It lives until the next reset or the end of the arena.
///
/// Thread safety: one thread at a time per arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_arena_allocate(
    arena: *mut uform_arena_t,
    rows: usize,
    columns: usize,
    dtype: uform_dtype_t,
    matrix_out: *mut uform_matrix_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let arena = &handle::borrow(arena, "arena")?.arena;
            let placed = arena.borrow_mut().allocate(rows, columns, dtype_of(dtype)?)?;
            let matrix = uform_matrix_t {
                data: placed.pointer.as_ptr().cast(),
                rows,
                columns,
                row_stride: placed.row_stride,
                dtype,
                reserved: 0,
            };
            handle::write(matrix_out, "matrix_out", matrix)
        })
    }
}

/// Copies a matrix of the arena into host memory of the same shape and type, whatever its row stride.
///
/// Thread safety: one thread at a time per arena; blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_arena_copy_to_host(
    arena: *const uform_arena_t,
    matrix: *const uform_matrix_t,
    host_matrix: *const uform_matrix_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let arena = &handle::borrow(arena, "arena")?.arena;
            let (from, to) = (handle::borrow(matrix, "matrix")?, handle::borrow(host_matrix, "host_matrix")?);
            copy(&arena.borrow(), from, to)
        })
    }
}

/// # Safety
/// `to` addresses memory of its shape that nothing else touches during the call.
unsafe fn copy(arena: &Arena, from: &uform_matrix_t, to: &uform_matrix_t) -> Result<()> {
    if (from.rows, from.columns, from.dtype) != (to.rows, to.columns, to.dtype) {
        return err!(
            InvalidArgument,
            "host_matrix: expected {} × {} of dtype {}, found {} × {} of dtype {}",
            from.rows,
            from.columns,
            from.dtype,
            to.rows,
            to.columns,
            to.dtype
        );
    }
    let ((dtype, from_stride), (_, to_stride)) = (from.layout("matrix")?, to.layout("host_matrix")?);
    let bytes = dtype.row_bytes(from.columns);
    if from.rows == 0 || bytes == 0 {
        return Ok(());
    }
    let span = (from.rows - 1).checked_mul(to_stride).and_then(|last| last.checked_add(bytes));
    if to.data.is_null() || to_stride < bytes || span.is_none_or(|span| span > isize::MAX as usize) {
        return err!(
            InvalidArgument,
            "host_matrix: data is NULL, or row_stride, {to_stride}, is below the {bytes} bytes of a row or leads out \
             of memory"
        );
    }
    if !arena.contains(from.data.cast(), from.rows, from_stride, bytes) {
        return err!(
            InvalidArgument,
            "matrix: it does not lie in what this arena has placed since its last reset"
        );
    }
    for row in 0..from.rows {
        // SAFETY: the arena said that the rows lie in it; the caller promised the same of the host's.
        unsafe {
            let from = from.data.cast::<u8>().add(row * from_stride);
            std::ptr::copy(from, to.data.cast::<u8>().add(row * to_stride), bytes);
        }
    }
    Ok(())
}

/// Forgets every matrix of the arena and keeps the memory for the next ones.
///
/// Thread safety: one thread at a time per arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_arena_reset(
    arena: *mut uform_arena_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::borrow(arena, "arena")?.arena.borrow_mut().reset();
            Ok(())
        })
    }
}

/// Says what the arena holds.
///
/// Thread safety: one thread at a time per arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_arena_describe(
    arena: *const uform_arena_t,
    description_out: *mut uform_arena_description_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let description = handle::borrow(arena, "arena")?.arena.borrow().describe();
            options::write(
                description_out,
                uform_arena_description_t {
                    size: size_of::<uform_arena_description_t>(),
                    residency: UFORM_RESIDENCY_RAM,
                    reserved: 0,
                    used_bytes: description.bytes_used as u64,
                    reserved_bytes: description.bytes_reserved as u64,
                },
            )
        })
    }
}

/// Gives the memory back and ends the handle; every matrix of the arena goes with it. NULL does nothing.
///
/// Thread safety: one thread at a time per arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_arena_free(arena: *mut uform_arena_t) {
    // SAFETY: the handle is used as the C declaration demands of the caller.
    guard_value((), || unsafe { handle::end(arena) });
}
