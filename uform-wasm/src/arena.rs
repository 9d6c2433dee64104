//! Arenas and the matrices in them.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::slice;

use js_sys::{ArrayBuffer, Uint8Array};
use uform::{Arena, RawMatrix, Status};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::errors::{Result, failed, failure, freed};
use crate::executor::CompiledExecutor;
use crate::objects::object;
use crate::options::{count, dtype};

/// An arena, kept by its handle and its matrices.
struct ArenaMemory {
    arena: RefCell<Arena>,
    /// Matrices whose memory something may still touch.
    alive: Cell<usize>,
}

/// The memory of a matrix, kept by its handle and the deferred calls that write into it.
pub(crate) struct MatrixMemory {
    arena: Rc<ArenaMemory>,
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

    /// All of those bytes.
    fn bytes(&self) -> &[u8] {
        match self.extent() {
            0 => &[],
            // SAFETY: the arena has given these bytes to this matrix alone, they were zeroed when it was made, and no
            // kernel writes to them while this thread, the only one, is here.
            extent => unsafe { slice::from_raw_parts(self.raw.pointer, extent) },
        }
    }
}

impl Drop for MatrixMemory {
    fn drop(&mut self) {
        self.arena.alive.update(|alive| alive - 1);
    }
}

/// The handle of an arena.
#[wasm_bindgen]
pub struct CompiledArena {
    memory: RefCell<Option<Rc<ArenaMemory>>>,
}

/// Makes an empty arena.
#[wasm_bindgen(js_name = arenaNewIn)]
pub fn arena_new_in(executor: &CompiledExecutor) -> Result<CompiledArena> {
    let arena = Arena::new_in(&*executor.executor()?).map_err(failed)?;
    let memory = ArenaMemory { arena: RefCell::new(arena), alive: Cell::new(0) };
    Ok(CompiledArena { memory: RefCell::new(Some(Rc::new(memory))) })
}

impl CompiledArena {
    fn memory(&self) -> Result<Rc<ArenaMemory>> {
        self.memory.borrow().clone().ok_or_else(|| freed("arena"))
    }
}

#[wasm_bindgen]
impl CompiledArena {
    /// Places a matrix of zeros.
    pub fn allocate(&self, rows: f64, columns: f64, dtype_number: i32) -> Result<CompiledMatrix> {
        let memory = self.memory()?;
        let dtype = dtype(dtype_number)?;
        let raw = memory.arena.borrow().allocate_raw(count(rows), count(columns), dtype).map_err(failed)?;
        memory.alive.update(|alive| alive + 1);
        let matrix = MatrixMemory { arena: memory, raw };
        if matrix.extent() > 0 {
            // SAFETY: the arena has just given these bytes to this matrix alone. Gaps lie between its rows.
            unsafe { ptr::write_bytes(raw.pointer, 0, matrix.extent()) };
        }
        Ok(CompiledMatrix { memory: RefCell::new(Some(Rc::new(matrix))) })
    }

    /// Keeps the memory for the next matrices.
    pub fn reset(&self) -> Result<()> {
        let memory = self.memory()?;
        match memory.alive.get() {
            0 => memory.arena.borrow_mut().reset().map_err(failed),
            alive => Err(failure(
                Status::Contended,
                &format!(
                    "matrices of the arena that are in use: {alive}; it can be reset when all are freed"
                ),
            )),
        }
    }

    /// Says what the arena holds.
    pub fn describe(&self) -> Result<JsValue> {
        let description = self.memory()?.arena.borrow().describe().map_err(failed)?;
        Ok(object([
            ("residency", description.residency.to_string().into()),
            ("usedBytes", (description.used_bytes as f64).into()),
            ("reservedBytes", (description.reserved_bytes as f64).into()),
        ]))
    }

    /// Ends the handle.
    pub fn end(&self) {
        self.memory.take();
    }
}

/// The handle of a matrix.
#[wasm_bindgen]
pub struct CompiledMatrix {
    memory: RefCell<Option<Rc<MatrixMemory>>>,
}

impl CompiledMatrix {
    /// The memory, unless the matrix has been freed.
    pub(crate) fn memory(&self) -> Result<Rc<MatrixMemory>> {
        self.memory.borrow().clone().ok_or_else(|| freed("matrix"))
    }
}

#[wasm_bindgen]
impl CompiledMatrix {
    /// Rows.
    #[wasm_bindgen(getter)]
    pub fn rows(&self) -> Result<f64> {
        Ok(self.memory()?.raw.rows as f64)
    }

    /// Dimensions of a row.
    #[wasm_bindgen(getter)]
    pub fn columns(&self) -> Result<f64> {
        Ok(self.memory()?.raw.columns as f64)
    }

    /// Bytes from the start of one row to the start of the next.
    #[wasm_bindgen(getter, js_name = rowStride)]
    pub fn row_stride(&self) -> Result<f64> {
        Ok(self.memory()?.raw.row_stride as f64)
    }

    /// A copy of the matrix with its gaps: the memory of a module moves when it grows.
    pub fn view(&self) -> Result<ArrayBuffer> {
        Ok(Uint8Array::from(self.memory()?.bytes()).buffer())
    }

    /// Copies the rows without gaps.
    pub fn copy(&self, target: &Uint8Array) -> Result<()> {
        let memory = self.memory()?;
        let width = memory.row_bytes();
        let expected = width * memory.raw.rows;
        if target.length() as usize != expected {
            let message = format!("expected room for {expected} bytes, found {}", target.length());
            return Err(failure(Status::InvalidArgument, &message));
        }
        if width > 0 {
            for (row, bytes) in memory.bytes().chunks(memory.raw.row_stride.max(1)).enumerate() {
                let start = (row * width) as u32;
                target.subarray(start, start + width as u32).copy_from(&bytes[..width]);
            }
        }
        Ok(())
    }

    /// Ends the handle.
    pub fn end(&self) {
        self.memory.take();
    }
}
