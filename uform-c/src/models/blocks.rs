//! Cutting the rows of a call into blocks of tokens, and giving the blocks to threads.

/// How the rows of a call are computed.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Schedule {
    /// Rows by block, the blocks with the longest rows first.
    pub(super) blocks: Vec<Vec<usize>>,
    /// Whether all threads work on one block after the other, or each on blocks of its own.
    pub(super) together: bool,
}

/// Threads work on blocks of their own where this leaves them waiting at the end for at most 1/4 of the work: splitting
/// every layer over threads costs about that much.
const TOLERATED: (u64, u64) = (5, 4);

/// Cuts rows, given as their numbers and tokens, into blocks of at most `budget` tokens (one row may have more), for
/// that many threads. `work` tells how much a row of that many tokens takes.
pub(super) fn schedule(
    mut rows: Vec<(usize, usize)>,
    work: impl Fn(usize) -> u64,
    threads: usize,
    budget: usize,
) -> Schedule {
    // Long rows first: a thread that ends early then finds short ones. Nothing here changes the bits of a row.
    rows.sort_by_key(|(row, tokens)| (std::cmp::Reverse(*tokens), *row));
    let total: u64 = rows.iter().map(|(_, tokens)| work(*tokens)).sum();
    let all_tokens: usize = rows.iter().map(|(_, tokens)| tokens).sum();
    if threads > 1 {
        let rounds = all_tokens.div_ceil(budget.saturating_mul(threads)).max(1);
        let target = total.div_ceil((rounds * threads) as u64);
        let blocks = cut(&rows, &work, budget, target);
        let busiest = busiest_thread(&blocks, threads);
        let (most, of) = TOLERATED;
        if busiest * threads as u64 * of <= total * most {
            return Schedule { blocks: blocks.into_iter().map(|(rows, _)| rows).collect(), together: false };
        }
    }
    let blocks = cut(&rows, &work, budget, u64::MAX);
    Schedule { blocks: blocks.into_iter().map(|(rows, _)| rows).collect(), together: true }
}

/// Fills blocks one after the other up to `budget` tokens and about `target` work.
fn cut(
    rows: &[(usize, usize)],
    work: &impl Fn(usize) -> u64,
    budget: usize,
    target: u64,
) -> Vec<(Vec<usize>, u64)> {
    let mut blocks: Vec<(Vec<usize>, u64)> = Vec::new();
    let mut tokens_of_last = 0;
    for &(row, tokens) in rows {
        let cost = work(tokens);
        match blocks.last_mut() {
            Some((block, sum)) if tokens_of_last + tokens <= budget && *sum + cost / 2 <= target => {
                block.push(row);
                *sum += cost;
                tokens_of_last += tokens;
            }
            _ => {
                blocks.push((vec![row], cost));
                tokens_of_last = tokens;
            }
        }
    }
    blocks
}

/// The work of the thread that has most, when each takes the next block as soon as it is free.
fn busiest_thread(blocks: &[(Vec<usize>, u64)], threads: usize) -> u64 {
    let mut loads = vec![0u64; threads.min(blocks.len()).max(1)];
    for (_, work) in blocks {
        if let Some(least) = loads.iter_mut().min() {
            *least += work;
        }
    }
    loads.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_of(lengths: &[usize], threads: usize, budget: usize) -> Schedule {
        let rows = lengths.iter().copied().enumerate().collect();
        let schedule = schedule(rows, |tokens| tokens as u64, threads, budget);
        let mut seen: Vec<usize> = schedule.blocks.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
        for block in &schedule.blocks {
            let tokens: usize = block.iter().map(|row| lengths[*row]).sum();
            assert!(tokens <= budget || block.len() == 1);
        }
        schedule
    }

    #[test]
    fn many_rows_are_dealt_and_few_are_shared() {
        let even = cut_of(&[20; 32], 2, 512);
        assert_eq!((even.blocks.len(), even.together), (2, false));
        assert!(cut_of(&[20], 2, 512).together);
        assert!(cut_of(&[256, 5], 2, 512).together);
        assert!(cut_of(&[20; 3], 2, 512).together);
        assert!(!cut_of(&[20; 300], 4, 512).together);
        assert_eq!(cut_of(&[20; 300], 1, 512).blocks.len(), 12);
        assert_eq!(cut_of(&[], 4, 512).blocks.len(), 0);
    }

    #[test]
    fn a_long_row_is_alone_and_first() {
        let mixed: Vec<usize> = (0..64).map(|row| if row == 40 { 600 } else { 10 }).collect();
        let schedule = cut_of(&mixed, 2, 512);
        assert_eq!(schedule.blocks[0], [40]);
    }
}
