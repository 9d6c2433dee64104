//! Arenas and the matrices in them.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use napi::bindgen_prelude::{ArrayBuffer, FromNapiValue, Uint8ArraySlice};
use napi::{Env, sys};
use napi_derive::napi;
use uform::{Arena, RawMatrix, Status};

use crate::errors::{Result, failed, failure, freed, refused};
use crate::executor::{CompiledExecutor, on_executor};
use crate::options::{count, dtype};

/// An arena, kept by its handle, its matrices and their views.
struct ArenaMemory {
    arena: Mutex<Arena>,
    /// Matrices whose memory something may still touch.
    alive: AtomicUsize,
}

/// The memory of a matrix, kept by its handle, its views and the deferred calls that write into it.
pub(crate) struct MatrixMemory {
    arena: Arc<ArenaMemory>,
    /// Where it is.
    pub(crate) raw: RawMatrix,
}

impl MatrixMemory {
    fn row_bytes(&self) -> usize {
        self.raw.dtype.row_bytes(self.raw.columns).unwrap_or(0)
    }

    /// Bytes from the first element to the last.
    fn extent(&self) -> usize {
        match self.raw.rows {
            0 => 0,
            rows => (rows - 1) * self.raw.row_stride + self.row_bytes(),
        }
    }
}

impl Drop for MatrixMemory {
    fn drop(&mut self) {
        self.arena.alive.fetch_sub(1, Ordering::Release);
    }
}

/// The handle of an arena.
#[napi]
pub struct CompiledArena {
    memory: RefCell<Option<Arc<ArenaMemory>>>,
}

/// What an arena holds.
#[napi(object, object_from_js = false)]
pub struct ArenaDescription {
    /// Where the memory lies.
    pub residency: String,
    /// Bytes of the matrices.
    pub used_bytes: f64,
    /// Bytes that it keeps.
    pub reserved_bytes: f64,
}

/// Makes an empty arena.
#[napi]
pub fn arena_new_in(executor: &CompiledExecutor) -> Result<CompiledArena> {
    let arena = on_executor(Some(&*executor.cell()?), Arena::new_in)?;
    let memory = ArenaMemory { arena: Mutex::new(arena), alive: AtomicUsize::new(0) };
    Ok(CompiledArena { memory: RefCell::new(Some(Arc::new(memory))) })
}

impl CompiledArena {
    fn memory(&self) -> Result<Arc<ArenaMemory>> {
        self.memory.borrow().clone().ok_or_else(|| freed("arena"))
    }
}

#[napi]
impl CompiledArena {
    /// Places a matrix of zeros.
    #[napi]
    pub fn allocate(&self, rows: f64, columns: f64, dtype_number: i32) -> Result<CompiledMatrix> {
        let memory = self.memory()?;
        let dtype = dtype(dtype_number)?;
        let raw = {
            let arena = memory.arena.lock().unwrap_or_else(PoisonError::into_inner);
            arena.allocate_raw(count(rows), count(columns), dtype).map_err(failed)?
        };
        memory.alive.fetch_add(1, Ordering::Relaxed);
        let matrix = MatrixMemory { arena: memory, raw };
        if matrix.extent() > 0 {
            // SAFETY: the arena has just given these bytes to this matrix alone. Gaps lie between its rows.
            unsafe { ptr::write_bytes(raw.pointer, 0, matrix.extent()) };
        }
        Ok(CompiledMatrix { memory: RefCell::new(Some(Arc::new(matrix))), view: RefCell::default() })
    }

    /// Keeps the memory for the next matrices.
    #[napi]
    pub fn reset(&self) -> Result<()> {
        let memory = self.memory()?;
        let mut arena = memory.arena.lock().unwrap_or_else(PoisonError::into_inner);
        match memory.alive.load(Ordering::Acquire) {
            0 => arena.reset().map_err(failed),
            alive => Err(failure(
                Status::Contended,
                format!("matrices of the arena that are in use: {alive}; it can be reset when all are freed"),
            )),
        }
    }

    /// Says what the arena holds.
    #[napi]
    pub fn describe(&self) -> Result<ArenaDescription> {
        let memory = self.memory()?;
        let description =
            memory.arena.lock().unwrap_or_else(PoisonError::into_inner).describe().map_err(failed)?;
        Ok(ArenaDescription {
            residency: description.residency.to_string(),
            used_bytes: description.used_bytes as f64,
            reserved_bytes: description.reserved_bytes as f64,
        })
    }

    /// Ends the handle.
    #[napi]
    pub fn free(&self) {
        self.memory.take();
    }
}

/// What a view keeps: the memory, until the view is detached or the engine has finalized it.
type ViewHold = Mutex<Option<Arc<MatrixMemory>>>;

/// The handle of a matrix.
#[napi]
pub struct CompiledMatrix {
    memory: RefCell<Option<Arc<MatrixMemory>>>,
    view: RefCell<Weak<ViewHold>>,
}

impl CompiledMatrix {
    /// The memory, unless the matrix has been freed.
    pub(crate) fn memory(&self) -> Result<Arc<MatrixMemory>> {
        self.memory.borrow().clone().ok_or_else(|| freed("matrix"))
    }
}

#[napi]
impl CompiledMatrix {
    /// Rows.
    #[napi(getter)]
    pub fn rows(&self) -> Result<f64> {
        Ok(self.memory()?.raw.rows as f64)
    }

    /// Dimensions of a row.
    #[napi(getter)]
    pub fn columns(&self) -> Result<f64> {
        Ok(self.memory()?.raw.columns as f64)
    }

    /// Bytes from the start of one row to the start of the next.
    #[napi(getter)]
    pub fn row_stride(&self) -> Result<f64> {
        Ok(self.memory()?.raw.row_stride as f64)
    }

    /// The memory itself, which the buffer keeps alive.
    #[napi]
    pub fn view<'env>(&self, env: &'env Env) -> Result<ArrayBuffer<'env>> {
        let memory = self.memory()?;
        let length = memory.extent();
        if length == 0 {
            return ArrayBuffer::copy_from(env, []).map_err(refused);
        }
        let pointer = memory.raw.pointer.cast();
        let hold: Arc<ViewHold> = Arc::new(Mutex::new(Some(memory)));
        self.view.replace(Arc::downgrade(&hold));
        let hint = Arc::into_raw(hold).cast_mut().cast();
        let mut value = ptr::null_mut();
        // SAFETY: the bytes live for as long as the hold in `hint`, which `release_view` gives back, is not emptied;
        // `free` empties it once no JavaScript can reach the bytes.
        let status = unsafe {
            sys::napi_create_external_arraybuffer(
                env.raw(),
                pointer,
                length,
                Some(release_view),
                hint,
                &mut value,
            )
        };
        if status == sys::Status::napi_ok {
            // SAFETY: the engine has just made this value, an ArrayBuffer of the environment.
            return unsafe { ArrayBuffer::from_napi_value(env.raw(), value) }.map_err(refused);
        }
        // SAFETY: the engine did not take the hold, which came from `into_raw`.
        drop(unsafe { Arc::from_raw(hint.cast::<ViewHold>().cast_const()) });
        Err(match status {
            sys::Status::napi_no_external_buffers_allowed => failure(
                Status::Unsupported,
                "this engine of JavaScript does not show memory of others; copy the matrix instead",
            ),
            other => {
                failure(Status::Internal, format!("no view of the matrix: {}", napi::Status::from(other)))
            }
        })
    }

    /// Copies the rows without gaps.
    #[napi]
    pub fn copy(&self, mut target: Uint8ArraySlice<'_>) -> Result<()> {
        let memory = self.memory()?;
        let expected = memory.row_bytes() * memory.raw.rows;
        if target.len() != expected {
            let message = format!("expected room for {expected} bytes, found {}", target.len());
            return Err(failure(Status::InvalidArgument, message));
        }
        if expected == 0 {
            return Ok(());
        }
        // SAFETY: only the address is taken; JavaScript does not run before this function returns.
        let pointer = unsafe { target.as_mut() }.as_mut_ptr();
        let host = RawMatrix { pointer, row_stride: 0, ..memory.raw };
        let arena = memory.arena.arena.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the target is as large as the matrix without gaps.
        unsafe { arena.copy_to_host_raw(memory.raw, host) }.map_err(failed)
    }

    /// Ends the handle and, where it has one, the view: it becomes empty. A view that was moved elsewhere keeps the
    /// memory until it is collected.
    #[napi]
    pub fn free(&self, view: Option<ArrayBuffer<'_>>) -> Result<()> {
        self.memory.take();
        if let Some(view) = view
            && !view.is_empty()
        {
            view.detach().map_err(refused)?;
            if let Some(hold) = self.view.take().upgrade() {
                hold.lock().unwrap_or_else(PoisonError::into_inner).take();
            }
        }
        Ok(())
    }
}

/// Gives back what a view holds. May run on any thread, long after the view was detached.
unsafe extern "C" fn release_view(_env: sys::napi_env, _data: *mut c_void, hint: *mut c_void) {
    // SAFETY: `hint` is what `Arc::into_raw` made for this view, which the engine finalizes once.
    drop(unsafe { Arc::from_raw(hint.cast::<ViewHold>().cast_const()) });
}
