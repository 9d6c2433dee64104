//! Arenas: output memory that is reused. While Python sees some of it, it is not reset.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use uform::Dtype;

use crate::errors::{self, OrRaise};
use crate::executor::{Executor, Lent};
use crate::matrix::{Matrix, Storage};
use crate::wait::{Origin, lock};

/// What an arena and the matrices in it share. No code of Python runs while the state is locked: it might let another thread
/// take the interpreter, which then waits for the lock.
struct Ground {
    state: Mutex<State>,
    origin: Origin,
}

struct State {
    arena: uform::Arena,
    /// Counts resets: matrices of before are gone.
    generation: u64,
    views: usize,
}

/// Where a matrix lies: in which arena, and since which reset.
pub(crate) struct Place {
    ground: Arc<Ground>,
    generation: u64,
}

impl Place {
    /// Counts as a view of the arena until it is dropped.
    pub(crate) fn view(&self, py: Python<'_>) -> PyResult<View> {
        self.ground.origin.check(py, "the arena")?;
        let is_there = {
            let mut state = lock(&self.ground.state);
            let is_there = state.generation == self.generation;
            state.views += usize::from(is_there);
            is_there
        };
        match is_there {
            true => Ok(View(self.ground.clone())),
            false => Err(errors::invalid(py, "the arena was reset since the matrix was allocated")),
        }
    }
}

/// Someone who sees memory of an arena.
pub(crate) struct View(Arc<Ground>);

impl Drop for View {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever, and the arena there is never reset.
        if self.0.origin.is_here() {
            lock(&self.0.state).views -= 1;
        }
    }
}

/// Zeros the rows of a new matrix, which may hold what was there before a reset.
fn clear(raw: &uform::RawMatrix, row_bytes: usize) {
    // Rows without elements take no memory, and there may be more of them than anyone can count.
    let rows = if row_bytes == 0 { 0 } else { raw.rows };
    for row in 0..rows {
        // SAFETY: the arena has just given these rows to the caller alone.
        unsafe { raw.pointer.add(row * raw.row_stride).write_bytes(0, row_bytes) };
    }
}

/// Output memory in the place where an executor computes.
#[pyclass(frozen, module = "uform._uform")]
pub(crate) struct Arena(Arc<Ground>);

#[pymethods]
impl Arena {
    #[new]
    fn new_in(py: Python<'_>, executor: Option<&Bound<'_, Executor>>) -> PyResult<Self> {
        let lent = executor.map_or_else(|| Ok(Lent::null()), |executor| executor.get().lend(py))?;
        let arena = uform::Arena::new_in(&lent).or_raise(py)?;
        let state = Mutex::new(State { arena, generation: 0, views: 0 });
        Ok(Self(Arc::new(Ground { state, origin: Origin::here() })))
    }

    fn allocate(&self, py: Python<'_>, rows: usize, columns: usize, dtype: i32) -> PyResult<Matrix> {
        self.0.origin.check(py, "the arena")?;
        let dtype = Dtype::from_number(dtype).unwrap_or_default();
        let (placed, generation) = {
            let state = lock(&self.0.state);
            let placed = state.arena.allocate_raw(rows, columns, dtype);
            // Under the lock, so that no reset gives the memory to others meanwhile.
            _ = placed.as_ref().map(|raw| clear(raw, dtype.row_bytes(columns).unwrap_or(0)));
            (placed, state.generation)
        };
        let raw = placed.or_raise(py)?;
        let place = Arc::new(Place { ground: self.0.clone(), generation });
        let first = raw.pointer.expose_provenance();
        Ok(Matrix::of(Storage::Arena(place), first, rows, columns, raw.row_stride, dtype))
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.0.origin.check(py, "the arena")?;
        let (views, result) = {
            let mut state = lock(&self.0.state);
            let views = state.views;
            let result = if views == 0 { state.arena.reset() } else { Ok(()) };
            if views == 0 && result.is_ok() {
                state.generation += 1;
            }
            (views, result)
        };
        if views > 0 {
            let message = format!("{views} views of the arena's memory are alive");
            return Err(errors::exception(py, uform::Status::Contended, &message));
        }
        result.or_raise(py)
    }

    /// Residency, bytes used and bytes kept.
    fn describe(&self, py: Python<'_>) -> PyResult<(i32, u64, u64)> {
        self.0.origin.check(py, "the arena")?;
        let found = lock(&self.0.state).arena.describe();
        let found = found.or_raise(py)?;
        Ok((found.residency.number(), found.used_bytes, found.reserved_bytes))
    }
}
