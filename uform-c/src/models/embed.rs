//! The main job: rows of text to rows of numbers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::base::{Error, Matrix, MatrixMut, Result, Status, err};
use crate::executors::Context;
use crate::system::pages;

use super::bert::{Ragged, scratch_bytes};
use super::blocks::{Schedule, schedule};
use super::finish::Choice;
use super::model::Model;
use super::output::Output;
use super::prompts::{Prompt, Role};
use super::text::{Row, Rule, tokenize};
use super::tokenizer::{self, Check, Token, utf8};

/// Tokens of a block where the caller names no budget: enough for the weights to be read once for many rows, few
/// enough for the activations of a layer to stay in the cache.
const TOKENS_IN_A_BLOCK: usize = 512;

/// Rows that are tokenized before they are computed: enough to sort them well by length, few enough for their tokens
/// to stay small beside the caller's texts. Nothing of it shows in the bits of a row.
const ROWS_IN_A_WINDOW: usize = 4096;

/// Memory of this size and above comes in multiples of it, as huge pages do.
const HUGE_PAGE: u128 = 2 << 20;

/// Bytes of the number and the type of a token.
const IDS: u128 = 2 * size_of::<u32>() as u128;

/// Bytes of a row of that many tokens at most: it is in a part of the texts, in the list of all, in the schedule and in a
/// block, where its tokens stand once more.
fn a_row(tokens: usize) -> u128 {
    (3 * size_of::<Row>() + 16 * size_of::<usize>()) as u128 + IDS * tokens as u128
}

/// Whether the vectors have length one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Normalize {
    /// As the model's modules say.
    #[default]
    Model = 0,
    /// Length one.
    Yes = 1,
    /// Without the normalization at the end of the model's modules.
    No = 2,
}

impl Normalize {
    /// The choice of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Model, Self::Yes, Self::No].into_iter().find(|choice| *choice as u32 == number)
    }
}

/// What happens to a text with more tokens than the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Length {
    /// It is cut to the limit, its special tokens kept, and reported as truncated.
    #[default]
    Truncate = 0,
    /// Its row fails with `InvalidArgument`.
    Refuse = 1,
}

impl Length {
    /// The choice of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Truncate, Self::Refuse].into_iter().find(|choice| *choice as u32 == number)
    }
}

/// Told how many of how many rows are done; an answer of false cancels the call.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// How texts are embedded. The default is what the model says, in everything.
#[derive(Clone, Copy, Default)]
pub struct EmbedOptions<'a> {
    /// What the texts are for.
    pub role: Role,
    /// What is put before each of them.
    pub prompt: Prompt<'a>,
    /// Elements that are kept of every vector, which is normalized again where the model normalizes; zero for all, or
    /// for the model's own `truncate_dim`.
    pub dimensions: usize,
    /// Whether the vectors have length one.
    pub normalize: Normalize,
    /// What happens to a text that is too long.
    pub length: Length,
    /// The most tokens of a text, where that is fewer than the model's limit; zero for the model's.
    pub token_limit: usize,
    /// The most tokens that a thread computes at once, a longer text aside; zero for the engine's choice. It bounds
    /// memory and sets how soon a cancel takes effect; it does not change a bit of the result.
    pub token_budget: usize,
    /// Whether the same bits are wanted on every class. In f32 a class has one road, and this changes nothing yet.
    pub reproducible: bool,
    /// What elements are multiplied with before they are rounded to i8 or u8; zero for 127.
    pub output_scale: f32,
    /// Called now and then on the thread that makes the call, with rows done and rows in all.
    pub progress: Option<Progress<'a>>,
}

/// What became of one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// `Ok`; `InvalidArgument` for a text that is no UTF-8 or was refused; `RowFailed` for a vector that is not finite
    /// or all zeros; `CorruptData` where tokenizer and weights contradict each other.
    pub status: Status,
    /// Whether the text was cut.
    pub truncated: bool,
    /// Tokens of the text, its prompt and the special ones.
    pub tokens_found: u64,
    /// Tokens that the model was given.
    pub tokens_kept: u64,
}

/// The options of a call against the facts of the model.
struct Job<'a> {
    rule: Rule<'a>,
    choice: Choice,
    budget: usize,
    scale: f32,
}

/// Some rows of a call, one behind the other.
struct Window<'a> {
    /// Where they start among all rows.
    first: usize,
    texts: &'a [&'a [u8]],
    /// Rows of the call.
    all: usize,
    progress: Option<Progress<'a>>,
}

impl Window<'_> {
    /// Tells the caller that `done` of these rows are done, and stops the call where the caller wants that.
    fn tell(&self, done: usize) -> Result<()> {
        match self.progress {
            Some(progress) if !progress((self.first + done) as u64, self.all as u64) => {
                err!(Cancelled, "the call was cancelled by its progress callback")
            }
            _ => Ok(()),
        }
    }
}

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
    /// Embeds every text into its row of `output`, which has a row for each and as many columns as
    /// [`dimensions`](Self::dimensions) says.
    ///
    /// With `reports`, one for each text, a row that fails says so in its report, is NaN (all zero bytes for integers
    /// and bits), and costs the others nothing. Without them the first such row makes the call `RowFailed`. Unless the
    /// call succeeds, the output is unspecified. Any thread, any number at once.
    pub fn embed_texts(
        &self,
        context: &Context,
        texts: &[&[u8]],
        options: &EmbedOptions,
        output: Output,
        mut reports: Option<&mut [Report]>,
    ) -> Result<()> {
        let job = self.job(options, &|| context.cancel.check())?;
        output.check(texts.len(), job.choice.dimensions)?;
        if let Some(reports) = &reports
            && reports.len() != texts.len()
        {
            return err!(InvalidArgument, "reports: expected {}, found {}", texts.len(), reports.len());
        }
        if texts.is_empty() {
            return Ok(());
        }
        for first in (0..texts.len()).step_by(ROWS_IN_A_WINDOW) {
            let end = texts.len().min(first + ROWS_IN_A_WINDOW);
            let window =
                Window { first, texts: &texts[first..end], all: texts.len(), progress: options.progress };
            let reports = reports.as_deref_mut().map(|reports| &mut reports[first..end]);
            self.window(context, &job, &window, &output, reports)?;
        }
        Window { first: 0, texts, all: texts.len(), progress: options.progress }.tell(texts.len())
    }

    /// Tokenizes and computes some of the rows of a call.
    fn window(
        &self,
        context: &Context,
        job: &Job,
        window: &Window,
        output: &Output,
        reports: Option<&mut [Report]>,
    ) -> Result<()> {
        let shape = self.encoder.shape();
        pages::probe(self.lists(context, job, window.texts), "tokens of the texts")?;
        let told = || window.tell(0);
        let mut rows = tokenize(context, &self.tokenizer, shape, &job.rule, window.texts, &told)?;
        if reports.is_none() {
            first_failure(window, &rows)?;
        }
        for (row, error) in self.compute(context, job, window, &rows, output)? {
            rows[row].error = Some(error);
        }
        for (row, _) in rows.iter().enumerate().filter(|(_, row)| row.error.is_some()) {
            // SAFETY: `check` accepted the shape, the row is inside it, and no other thread is at work any more.
            unsafe { output.write_failed(window.first + row) };
        }
        match reports {
            None => first_failure(window, &rows),
            Some(reports) => {
                reports.iter_mut().zip(&rows).for_each(|(report, row)| *report = row.report(job));
                Ok(())
            }
        }
    }

    fn job<'o>(&'o self, options: &EmbedOptions<'o>, check: Check) -> Result<Job<'o>> {
        let prompt = self.prompts.find(options.role, options.prompt)?;
        let limit = self.effective_limit(options)?;
        let scale = match options.output_scale {
            0.0 => 127.0,
            scale if scale.is_finite() && scale > 0.0 => scale,
            scale => return err!(InvalidArgument, "output scale: expected a number above 0, found {scale}"),
        };
        if !prompt.is_empty() {
            let tokens = self.tokenizer.most_tokens(prompt.len()).min(limit);
            pages::probe(tokenizer::room(prompt.len()) + a_row(tokens), "tokens of the prompt")?;
        }
        let skipped = match self.finish.pooling.include_prompt || prompt.is_empty() {
            true => 0,
            false => self.tokenizer.prompt_tokens(prompt, limit, check)?,
        };
        let normalize = match options.normalize {
            Normalize::Model => None,
            Normalize::Yes => Some(true),
            Normalize::No => Some(false),
        };
        let opening = self.tokenizer.opening(prompt, limit, check)?;
        Ok(Job {
            rule: Rule { opening, limit, refuse: options.length == Length::Refuse },
            choice: Choice { dimensions: self.dimensions(options.dimensions)?, normalize, skipped },
            budget: if options.token_budget == 0 { TOKENS_IN_A_BLOCK } else { options.token_budget },
            scale,
        })
    }

    /// The tokens of one text as the model is given them: after the prompt that the options choose, cut at their limit, or
    /// `InvalidArgument` above it where they refuse such a text. Any thread.
    pub fn tokenize(&self, text: &[u8], options: &EmbedOptions) -> Result<Vec<Token>> {
        let limit = self.effective_limit(options)?;
        let prompt = self.prompts.find(options.role, options.prompt)?;
        let (tokens, found) = self.tokenizer.spans(prompt, utf8(text)?, limit)?;
        match options.length {
            Length::Refuse if found > limit => {
                err!(InvalidArgument, "expected at most {limit} tokens, found {found}")
            }
            _ => Ok(tokens),
        }
    }

    /// Columns of an output for this wish: zero means all that the model gives.
    pub fn dimensions(&self, wanted: usize) -> Result<usize> {
        let native = self.finish.dimensions();
        match wanted {
            0 => Ok(self.default_dimensions),
            wanted if wanted <= native => Ok(wanted),
            wanted => {
                err!(InvalidArgument, "dimensions: expected at most the model's {native}, found {wanted}")
            }
        }
    }

    fn effective_limit(&self, options: &EmbedOptions) -> Result<usize> {
        let (limit, around) = (self.tokenizer.limit, self.tokenizer.around());
        match options.token_limit {
            0 => Ok(limit),
            wanted if wanted > around => Ok(wanted.min(limit)),
            wanted => err!(
                InvalidArgument,
                "token limit: expected more than {around} special tokens, found {wanted}"
            ),
        }
    }

    /// Bytes that a call over `rows` texts of at most `tokens` tokens each (zero: the limit) needs at the same time on
    /// that many threads, beside the weights and the output: an upper bound.
    ///
    /// It counts what the tokenizer library takes for a piece of a text on each thread. It leaves out what that takes more
    /// for texts that `pieces.rs` cannot cut, hundreds of times their size above some kilobytes; what tokenizers take more
    /// whose own steps make texts longer; and copies of texts, one a thread, behind a prompt.
    pub fn plan(&self, threads: usize, rows: usize, tokens: usize, options: &EmbedOptions) -> Result<u64> {
        let job = self.job(options, &|| Ok(()))?;
        let longest = if tokens == 0 { job.rule.limit } else { tokens.min(job.rule.limit) };
        let window = rows.min(ROWS_IN_A_WINDOW);
        let tokens = job.budget.max(longest).min(longest.saturating_mul(window));
        let scratch = match self.scratch(tokens, longest, window.min(tokens)) {
            small if small < HUGE_PAGE => small,
            large => large.next_multiple_of(HUGE_PAGE),
        };
        let a_thread = scratch + IDS * tokens as u128 + tokenizer::memory(usize::MAX);
        // The caller's lists of texts and reports are made for all rows.
        let lists = (size_of::<&[u8]>() + size_of::<Report>()) as u128;
        let bytes = threads.max(1) as u128 * a_thread
            + window as u128 * a_row(longest)
            + rows as u128 * lists
            + IDS * job.rule.limit as u128;
        match u64::try_from(bytes) {
            Ok(bytes) => Ok(bytes),
            Err(_) => {
                err!(InvalidArgument, "{rows} rows on {threads} threads: expected fewer than 2^64 bytes")
            }
        }
    }

    /// Bytes for the tokens of these texts, beside scratch, while they are tokenized and computed: an upper bound, apart
    /// from what [`plan`](Self::plan) leaves out.
    fn lists(&self, context: &Context, job: &Job, texts: &[&[u8]]) -> u128 {
        let opening = job.rule.opening.bytes();
        let most = |text: &&[u8]| self.tokenizer.most_tokens(opening + text.len()).min(job.rule.limit);
        let rows: u128 = texts.iter().map(|text| a_row(most(text))).sum();
        let longest = texts.iter().map(|text| opening + text.len()).max().unwrap_or(0);
        let tokens = job.budget.max(job.rule.limit).min(texts.iter().map(most).sum());
        let a_thread = IDS * tokens as u128 + tokenizer::room(longest) + longest as u128;
        rows + context.team.threads().min(texts.len()) as u128 * a_thread
    }

    /// Bytes of scratch that a block of `rows` texts takes on the thread that computes it: an upper bound.
    fn scratch(&self, tokens: usize, longest: usize, rows: usize) -> u128 {
        let encoding = self.encoder.scratch(tokens, longest);
        scratch_bytes(tokens, self.encoder.shape().hidden) + encoding.max(self.finish.scratch(rows))
    }

    /// Makes every scratch as large as the blocks of a call need, at one stroke: grown loan by loan it would take several
    /// pieces of memory, and more than was planned. Sees to it that there is memory for the tokens of blocks beside it.
    fn reserve(&self, context: &Context, schedule: &Schedule, rows: &[Row]) -> Result<()> {
        let (mut most, mut most_tokens, mut longest) = (0, 0, 0);
        for block in &schedule.blocks {
            let lengths = || block.iter().map(|row| rows[*row].tokens.ids.len());
            let (tokens, longest_here) = (lengths().sum(), lengths().max().unwrap_or(0));
            most = most.max(self.scratch(tokens, longest_here, block.len()));
            most_tokens = most_tokens.max(tokens);
            longest = longest.max(longest_here);
        }
        if schedule.blocks.is_empty() {
            return Ok(());
        }
        for (thread, scratch) in context.scratch.iter().enumerate() {
            let helps = schedule.together && thread != context.thread;
            let bytes = if helps { self.encoder.helper_scratch(most_tokens, longest) } else { most };
            // What no address space holds, the scratch refuses.
            drop(scratch.take::<u8>(usize::try_from(bytes).unwrap_or(usize::MAX))?);
        }
        // Scratch may have taken what was there for them when the texts were tokenized.
        pages::probe(IDS * most_tokens as u128 * context.scratch.len() as u128, "tokens of the blocks")
    }

    /// Computes the rows that have tokens, and answers those that failed on the way.
    fn compute(
        &self,
        context: &Context,
        job: &Job,
        window: &Window,
        rows: &[Row],
        output: &Output,
    ) -> Result<Vec<(usize, Error)>> {
        let sound = rows.iter().enumerate().filter(|(_, row)| row.error.is_none());
        let lengths = sound.map(|(index, row)| (index, row.tokens.ids.len())).collect();
        let schedule =
            schedule(lengths, |tokens| self.encoder.work(tokens), context.team.threads(), job.budget);
        self.reserve(context, &schedule, rows)?;
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
            schedule.blocks.iter().for_each(|block| run(context, block, true));
        } else {
            context.team.run(schedule.blocks.len(), &|thread, block| {
                run(&context.part(thread), &schedule.blocks[block], thread == context.thread);
            })?;
        }
        match shared.fault.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(error) => Err(error),
            None => Ok(shared.failures.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())),
        }
    }

    /// Takes one block of rows through the model.
    fn block(&self, context: &Context, job: &Job, block: &[usize], shared: &Shared) -> Result<()> {
        let (count, hidden) = (
            block.iter().map(|row| shared.rows[*row].tokens.ids.len()).sum::<usize>(),
            self.encoder.shape().hidden,
        );
        let mut tokens = Ragged {
            ids: Vec::with_capacity(count),
            types: Vec::with_capacity(count),
            starts: Vec::with_capacity(block.len() + 1),
        };
        tokens.starts.push(0);
        for row in block {
            let row = &shared.rows[*row].tokens;
            tokens.ids.extend_from_slice(&row.ids);
            tokens.types.extend_from_slice(&row.types);
            // A model that is not given types has them all zero, if it has any.
            tokens.types.resize(tokens.ids.len(), 0);
            tokens.starts.push(tokens.ids.len());
        }
        let mut states = context.scratch[context.thread].take::<f32>(count * hidden)?;
        self.encoder.forward(context, &tokens, MatrixMut::dense(&mut states, count, hidden))?;
        let states = Matrix::dense(&states, count, hidden);
        let vectors = self.finish.run(context, states, &tokens.starts, job.choice)?;
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

impl Row {
    fn report(&self, job: &Job) -> Report {
        let refused = job.rule.refuse && self.tokens.found > job.rule.limit;
        let kept = if refused { 0 } else { self.tokens.ids.len() };
        Report {
            status: self.error.as_ref().map_or(Status::Ok, |error| error.status),
            truncated: !refused && self.tokens.found > kept,
            tokens_found: self.tokens.found as u64,
            tokens_kept: kept as u64,
        }
    }
}

/// The error of a call without reports, in which rows failed.
fn first_failure(window: &Window, rows: &[Row]) -> Result<()> {
    match rows.iter().enumerate().find_map(|(row, found)| Some((row, found.error.as_ref()?))) {
        Some((row, error)) => err!(RowFailed, "row {}: {error}", window.first + row),
        None => Ok(()),
    }
}
