//! Embeddings: sums of rows of tables.

use crate::base::{Matrix, MatrixMut, Result, err};
use crate::executors::Context;

use super::norm::LEAST_ELEMENTS;
use super::split;

/// Writes to row i the sum of the rows `ids[i]` of all tables, added in the order of the list, so the order of the list is
/// that of the reference's additions. Each table: any number of rows × width; each list of ids and the output: one row
/// per token. `InvalidArgument` when an id is outside its table. Panics when shapes contradict each other.
pub fn embed(context: &Context, tables: &[(Matrix<f32>, &[u32])], output: MatrixMut<f32>) -> Result<()> {
    let (count, width) = (output.rows(), output.columns());
    for (table, ids) in tables {
        assert!(table.columns() == width && ids.len() == count, "embedding of another shape");
        if let Some(id) = ids.iter().find(|&&id| id as usize >= table.rows()) {
            return err!(InvalidArgument, "embedding: expected an id below {}, found {id}", table.rows());
        }
    }
    let parts = split::parts(context, count * width, LEAST_ELEMENTS);
    split::run(context, parts, |_, part| {
        let rows = split::range(count, parts, part);
        // SAFETY: the blocks of different parts do not overlap.
        let mut block = unsafe { output.shared_block(rows.start, 0, rows.len(), width) };
        for (row, token) in rows.enumerate() {
            let sum = block.row_mut(row);
            sum.fill(0.0);
            for (number, (table, ids)) in tables.iter().enumerate() {
                let entry = table.row(ids[token] as usize);
                match number {
                    0 => sum.copy_from_slice(entry),
                    _ => sum.iter_mut().zip(entry).for_each(|(sum, value)| *sum += value),
                }
            }
        }
        Ok(())
    })
}
