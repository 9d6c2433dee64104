//! The computing half of a call: rows of tokens to rows of numbers, on the threads of the executor.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::base::{Error, Matrix, MatrixMut, Result, Status};
use crate::executors::Context;

use super::bert::{Ragged, scratch_bytes};
use super::blocks::{Costs, Schedule, schedule, schedule_bytes};
use super::embed::{Job, Window};
use super::model::Model;
use super::output::Output;
use super::text::Row;

/// What the threads share that compute a window.
struct Shared<'a> {
    output: &'a Output<'a>,
    window: &'a Window<'a>,
    rows: &'a [Row],
    failures: Mutex<Vec<(usize, Error)>>,
    fault: Mutex<Option<Error>>,
    stopped: AtomicBool,
    done: AtomicUsize,
}

impl Shared<'_> {
    fn stop(&self, error: Error) {
        self.stopped.store(true, Ordering::Release);
        self.fault.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
    }
}

impl Model {
    /// Bytes of scratch that a block of `rows` texts takes on the thread that computes it: an upper bound.
    pub(super) fn scratch(&self, tokens: usize, longest: usize, rows: usize) -> u128 {
        let offsets = size_of::<usize>() / size_of::<u32>();
        let lists = 2 * scratch_bytes(tokens, 1) + scratch_bytes(rows + 1, offsets);
        let encoding = self.encoder.scratch(tokens, longest);
        let states = scratch_bytes(tokens, self.encoder.shape().hidden);
        lists + states + encoding.max(self.finish.scratch(rows))
    }

    /// Makes the leader's scratch as large as the blocks of a call need, at one stroke: grown loan by loan it would take
    /// several pieces of memory, and more than was planned.
    fn reserve_leader(&self, context: &Context, rows: &[Row], budget: usize) -> Result<()> {
        let (mut all, mut longest) = (0, 0);
        for row in rows.iter().filter(|row| row.error.is_none()) {
            let tokens = row.tokens.ids.len();
            all += tokens;
            longest = longest.max(tokens);
        }
        let tokens = budget.max(longest).min(all);
        let block = self.scratch(tokens, longest, rows.len().min(tokens));
        reserve(context, context.thread, block + schedule_bytes(rows.len()))
    }

    /// Does that for the other threads.
    fn reserve_others(&self, context: &Context, schedule: &Schedule, rows: &[Row]) -> Result<()> {
        let (mut most, mut most_tokens, mut longest) = (0, 0, 0);
        for block in (0..schedule.blocks).map(|number| schedule.block(number)) {
            let lengths = || block.iter().map(|row| rows[*row].tokens.ids.len());
            let (tokens, longest_here) = (lengths().sum(), lengths().max().unwrap_or(0));
            most = most.max(self.scratch(tokens, longest_here, block.len()));
            most_tokens = most_tokens.max(tokens);
            longest = longest.max(longest_here);
        }
        let helps = || self.encoder.helper_scratch(most_tokens, longest);
        let bytes = if schedule.together { helps() } else { most };
        let mut others = (0..context.scratch.len()).filter(|thread| *thread != context.thread);
        others.try_for_each(|thread| reserve(context, thread, bytes))
    }

    /// Computes the rows that have tokens, and answers those that failed on the way.
    pub(super) fn compute(
        &self,
        context: &Context,
        job: &Job,
        window: &Window,
        rows: &[Row],
        output: &Output,
    ) -> Result<Vec<(usize, Error)>> {
        let sound = || (0..rows.len()).filter(|row| rows[*row].error.is_none());
        if sound().next().is_none() {
            return Ok(Vec::new());
        }
        self.reserve_leader(context, rows, job.budget)?;
        let costs = Costs {
            tokens: |row: usize| rows[row].tokens.ids.len(),
            work: |tokens| self.encoder.work(tokens),
            budget: job.budget,
        };
        let scratch = &context.scratch[context.thread];
        let schedule = schedule(scratch, sound(), sound().count(), &costs, context.team.threads())?;
        self.reserve_others(context, &schedule, rows)?;
        let shared = Shared {
            output,
            window,
            rows,
            failures: Mutex::default(),
            fault: Mutex::default(),
            stopped: AtomicBool::new(false),
            done: AtomicUsize::new(0),
        };
        let run = |context: &Context, block: &[usize], leads: bool| {
            if shared.stopped.load(Ordering::Acquire) {
                return;
            }
            let result = context.cancel.check().and_then(|()| self.block(context, job, block, &shared));
            let done = shared.done.fetch_add(block.len(), Ordering::Relaxed) + block.len();
            let told = result.and_then(|()| if leads { window.tell(done) } else { Ok(()) });
            if let Err(error) = told {
                shared.stop(error);
            }
        };
        if schedule.together {
            (0..schedule.blocks).for_each(|block| run(context, schedule.block(block), true));
        } else {
            context.team.run(schedule.blocks, &|thread, block| {
                run(&context.part(thread), schedule.block(block), thread == context.thread);
            })?;
        }
        match shared.fault.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(error) => Err(error),
            None => Ok(shared.failures.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())),
        }
    }

    /// Takes one block of rows through the model.
    fn block(&self, context: &Context, job: &Job, block: &[usize], shared: &Shared) -> Result<()> {
        let rows = || block.iter().map(|row| &shared.rows[*row].tokens);
        let (count, hidden) = (rows().map(|row| row.ids.len()).sum::<usize>(), self.encoder.shape().hidden);
        let scratch = &context.scratch[context.thread];
        let mut ids = scratch.take::<u32>(count)?;
        let mut types = scratch.take::<u32>(count)?;
        let mut starts = scratch.take::<usize>(block.len() + 1)?;
        let mut end = 0;
        for (row, place) in rows().zip(starts.iter_mut()) {
            (*place, end) = (end, end + row.ids.len());
            ids[*place..end].copy_from_slice(&row.ids);
            // A model that is not given types has them all zero, if it has any.
            let (given, missing) = types[*place..end].split_at_mut(row.types.len());
            given.copy_from_slice(&row.types);
            missing.fill(0);
        }
        starts[block.len()] = end;
        let tokens = Ragged { ids: &ids, types: &types, starts: &starts };
        let mut states = scratch.take::<f32>(count * hidden)?;
        self.encoder.forward(context, &tokens, MatrixMut::dense(&mut states, count, hidden))?;
        let states = Matrix::dense(&states, count, hidden);
        let vectors = self.finish.run(context, states, &starts, job.choice)?;
        for (index, row) in block.iter().enumerate() {
            let vector = &vectors[index * self.finish.widest()..][..job.choice.dimensions];
            // SAFETY: `check` accepted the shape, and a row is in one block only.
            let finite = unsafe { shared.output.write(shared.window.first + *row, vector, job.scale) };
            let problem = match finite {
                false => "the vector is not finite",
                true if vector.iter().all(|element| *element == 0.0) => "the vector is all zeros",
                true => continue,
            };
            let mut failures = shared.failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            failures.push((*row, Error::new(Status::RowFailed, problem)));
        }
        Ok(())
    }
}

/// Grows the scratch of a thread to that many bytes.
fn reserve(context: &Context, thread: usize, bytes: u128) -> Result<()> {
    // What no address space holds, the scratch refuses.
    context.scratch[thread].take::<u8>(usize::try_from(bytes).unwrap_or(usize::MAX)).map(drop)
}
