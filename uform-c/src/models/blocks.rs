//! Cutting the rows of a call into blocks of tokens, and giving the blocks to threads.

use std::cmp::Reverse;

use crate::base::Result;
use crate::executors::{Loan, Scratch};

use super::bert::scratch_bytes;

/// How the rows of a call are computed.
pub(super) struct Schedule<'s> {
    /// Rows by block, one block behind the other, those with the longest rows first.
    rows: Loan<'s, usize>,
    /// Where each block ends among them.
    ends: Loan<'s, usize>,
    /// How many blocks there are.
    pub(super) blocks: usize,
    /// Whether all threads work on one block after the other, or each on blocks of its own.
    pub(super) together: bool,
}

impl Schedule<'_> {
    /// The rows of a block.
    pub(super) fn block(&self, number: usize) -> &[usize] {
        let begin = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.rows[begin..self.ends[number]]
    }
}

/// Threads work on blocks of their own where this leaves them waiting at the end for at most 1/4 of the work: splitting
/// every layer over threads costs about that much.
const TOLERATED: (u64, u64) = (5, 4);

/// What rows take, and what a block may.
pub(super) struct Costs<T, W> {
    /// Tokens of a row.
    pub(super) tokens: T,
    /// Work for a row of that many tokens.
    pub(super) work: W,
    /// Tokens of a block at most, unless it is one row.
    pub(super) budget: usize,
}

/// Bytes of scratch that a schedule of that many rows takes: an upper bound.
pub(super) fn schedule_bytes(rows: usize) -> u128 {
    let lists = size_of::<usize>().max(size_of::<u64>()) / size_of::<f32>();
    4 * scratch_bytes(rows, lists)
}

/// Cuts `count` rows into blocks for that many threads. `OutOfMemory` when there is no room for the lists.
pub(super) fn schedule<'s>(
    scratch: &'s Scratch,
    rows: impl Iterator<Item = usize>,
    count: usize,
    costs: &Costs<impl Fn(usize) -> usize, impl Fn(usize) -> u64>,
    threads: usize,
) -> Result<Schedule<'s>> {
    let (mut order, mut ends) = (scratch.take::<usize>(count)?, scratch.take::<usize>(count)?);
    let mut works = scratch.take::<u64>(count)?;
    order.iter_mut().zip(rows).for_each(|(place, row)| *place = row);
    // Long rows first: a thread that ends early then finds short ones. Nothing here changes the bits of a row.
    order.sort_unstable_by_key(|row| (Reverse((costs.tokens)(*row)), *row));
    if threads > 1 {
        let all_tokens: usize = order.iter().map(|row| (costs.tokens)(*row)).sum();
        let total: u64 = order.iter().map(|row| (costs.work)((costs.tokens)(*row))).sum();
        let rounds = all_tokens.div_ceil(costs.budget.saturating_mul(threads)).max(1);
        let target = total.div_ceil((rounds * threads) as u64);
        let blocks = cut(&order, costs, target, &mut ends, &mut works);
        let busiest = busiest_thread(&works[..blocks], scratch.take::<u64>(threads.min(blocks).max(1))?);
        let (most, of) = TOLERATED;
        if busiest * threads as u64 * of <= total * most {
            return Ok(Schedule { rows: order, ends, blocks, together: false });
        }
    }
    let blocks = cut(&order, costs, u64::MAX, &mut ends, &mut works);
    Ok(Schedule { rows: order, ends, blocks, together: true })
}

/// Fills blocks one after the other up to the budget of tokens and about `target` work. Writes where each ends and how much
/// work it is, and answers how many there are.
fn cut(
    rows: &[usize],
    costs: &Costs<impl Fn(usize) -> usize, impl Fn(usize) -> u64>,
    target: u64,
    ends: &mut [usize],
    works: &mut [u64],
) -> usize {
    let (mut blocks, mut tokens_of_last) = (0, 0);
    for (place, row) in rows.iter().enumerate() {
        let tokens = (costs.tokens)(*row);
        let work = (costs.work)(tokens);
        let fits =
            blocks > 0 && tokens_of_last + tokens <= costs.budget && works[blocks - 1] + work / 2 <= target;
        if fits {
            works[blocks - 1] += work;
            tokens_of_last += tokens;
        } else {
            works[blocks] = work;
            tokens_of_last = tokens;
            blocks += 1;
        }
        ends[blocks - 1] = place + 1;
    }
    blocks
}

/// The work of the thread that has most, when each takes the next block as soon as it is free. `loads` has a place for each
/// thread that gets one.
fn busiest_thread(blocks: &[u64], mut loads: Loan<u64>) -> u64 {
    loads.fill(0);
    for work in blocks {
        if let Some(least) = loads.iter_mut().min() {
            *least += work;
        }
    }
    loads.iter().copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_of<'s>(scratch: &'s Scratch, lengths: &[usize], threads: usize, budget: usize) -> Schedule<'s> {
        let costs = Costs { tokens: |row: usize| lengths[row], work: |tokens| tokens as u64, budget };
        let schedule = schedule(scratch, 0..lengths.len(), lengths.len(), &costs, threads).unwrap();
        let blocks = || (0..schedule.blocks).map(|number| schedule.block(number));
        let mut seen: Vec<usize> = blocks().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
        for block in blocks() {
            let tokens: usize = block.iter().map(|row| lengths[*row]).sum();
            assert!(tokens <= budget || block.len() == 1);
        }
        assert!(scratch.high_water() as u128 <= schedule_bytes(lengths.len()));
        schedule
    }

    fn blocks_of(lengths: &[usize], threads: usize, budget: usize) -> (usize, bool) {
        let scratch = Scratch::default();
        let schedule = cut_of(&scratch, lengths, threads, budget);
        (schedule.blocks, schedule.together)
    }

    #[test]
    fn many_rows_are_dealt_and_few_are_shared() {
        assert_eq!(blocks_of(&[20; 32], 2, 512), (2, false));
        assert!(blocks_of(&[20], 2, 512).1);
        assert!(blocks_of(&[256, 5], 2, 512).1);
        assert!(blocks_of(&[20; 3], 2, 512).1);
        assert!(!blocks_of(&[20; 300], 4, 512).1);
        assert_eq!(blocks_of(&[20; 300], 1, 512).0, 12);
        assert_eq!(blocks_of(&[], 4, 512).0, 0);
    }

    #[test]
    fn a_long_row_is_alone_and_first() {
        let mixed: Vec<usize> = (0..64).map(|row| if row == 40 { 600 } else { 10 }).collect();
        let scratch = Scratch::default();
        assert_eq!(cut_of(&scratch, &mixed, 2, 512).block(0), [40]);
    }
}
