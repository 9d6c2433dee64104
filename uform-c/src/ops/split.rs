//! How work is cut into parts for the threads of a team: by rows and columns of results, never along a sum, so that the
//! bits of a result do not depend on the number of threads.

use std::ops::Range;
use std::sync::Mutex;

use crate::base::Result;
use crate::executors::{Context, Scratch};

/// Parts per thread at most; more than one let a thread that is disturbed do less.
const PARTS_PER_THREAD: usize = 4;

/// Calls `body(scratch of the thread, part)` for every part below `parts` and returns the first error.
pub(super) fn run(
    context: &Context,
    parts: usize,
    body: impl Fn(&Scratch, usize) -> Result<()> + Sync,
) -> Result<()> {
    if parts <= 1 || context.team.threads() == 1 {
        return (0..parts).try_for_each(|part| body(&context.scratch[context.thread], part));
    }
    let failure = Mutex::new(None);
    context.team.run(parts, &|thread, part| {
        if let Err(error) = body(&context.scratch[thread], part) {
            failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
        }
    })?;
    failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(()), Err)
}

/// How many parts suit work of `units`, of which `least` are worth a thread's attention.
pub(super) fn parts(context: &Context, units: usize, least: usize) -> usize {
    match context.team.threads() {
        1 => 1,
        threads => {
            let worth = units / least.max(1);
            let rounds = (worth / threads).clamp(1, PARTS_PER_THREAD);
            worth.clamp(1, threads * rounds)
        }
    }
}

/// Part number `part` of `parts` almost equal ranges below `count`.
pub(super) fn range(count: usize, parts: usize, part: usize) -> Range<usize> {
    count * part / parts..count * (part + 1) / parts
}

/// Cuts rows × columns into a grid of about `parts` blocks: `(parts of the rows, parts of the columns)`. A block costs its
/// area, and as much again as `column_cost` more rows would for the columns that it has to look up.
pub(super) fn grid(rows: usize, columns: usize, parts: usize, column_cost: usize) -> (usize, usize) {
    let cost = |(row_parts, column_parts): (usize, usize)| {
        let rounds = (row_parts * column_parts).div_ceil(parts);
        rounds * (rows.div_ceil(row_parts) + column_cost) * columns.div_ceil(column_parts)
    };
    (1..=parts.min(rows.max(1)))
        .map(|row_parts| (row_parts, (parts / row_parts).clamp(1, columns.max(1))))
        .min_by_key(|&cut| cost(cut))
        .unwrap_or((1, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_everything_once() {
        for (count, parts) in [(0, 1), (1, 3), (7, 2), (100, 7), (5, 5)] {
            let ends: Vec<_> = (0..parts).map(|part| range(count, parts, part)).collect();
            assert_eq!((ends[0].start, ends[parts - 1].end), (0, count));
            assert!(ends.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }

    #[test]
    fn few_rows_are_cut_by_columns() {
        assert_eq!(grid(14, 24, 2, 4), (1, 2));
        assert_eq!(grid(1, 96, 16, 4), (1, 16));
        assert_eq!(grid(1000, 1, 4, 4), (4, 1));
        assert_eq!(grid(0, 0, 4, 4), (1, 1));
    }
}
