//! The main job: rows of text to rows of numbers.

use crate::base::{Result, Status, err};
use crate::executors::Context;
use crate::system::pages;

use super::blocks::schedule_bytes;
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

/// Bytes of a row of that many tokens at most: it is in a part of the texts and in the list of all.
fn a_row(tokens: usize) -> u128 {
    3 * size_of::<Row>() as u128 + IDS * tokens as u128
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
pub(super) struct Job<'a> {
    rule: Rule<'a>,
    pub(super) choice: Choice,
    /// Tokens of a block at most.
    pub(super) budget: usize,
    /// What elements are multiplied with before they are rounded to i8 or u8.
    pub(super) scale: f32,
}

/// Some rows of a call, one behind the other.
pub(super) struct Window<'a> {
    /// Where they start among all rows.
    pub(super) first: usize,
    /// Rows of the call.
    all: usize,
    progress: Option<Progress<'a>>,
}

impl Window<'_> {
    /// Tells the caller that `done` of these rows are done, and stops the call where the caller wants that.
    pub(super) fn tell(&self, done: usize) -> Result<()> {
        match self.progress {
            Some(progress) if !progress((self.first + done) as u64, self.all as u64) => {
                err!(Cancelled, "the call was cancelled by its progress callback")
            }
            _ => Ok(()),
        }
    }
}

/// Some texts as the tokens of a model, ready to be embedded.
#[derive(Default)]
pub struct Tokenized {
    pub(super) rows: Vec<Row>,
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
        self.check(texts.len(), &job, &output, reports.as_deref())?;
        if texts.is_empty() {
            return Ok(());
        }
        let (all, progress) = (texts.len(), options.progress);
        for first in (0..all).step_by(ROWS_IN_A_WINDOW) {
            let end = all.min(first + ROWS_IN_A_WINDOW);
            let window = Window { first, all, progress };
            let mut tokenized = self.tokenize_window(context, &job, &window, &texts[first..end])?;
            let reports = reports.as_deref_mut().map(|reports| &mut reports[first..end]);
            self.embed_window(context, &job, &window, &mut tokenized.rows, &output, reports)?;
        }
        Window { first: 0, all, progress }.tell(all)
    }

    /// Tokenizes some of the rows of a call.
    fn tokenize_window(
        &self,
        context: &Context,
        job: &Job,
        window: &Window,
        texts: &[&[u8]],
    ) -> Result<Tokenized> {
        pages::probe(self.lists(context, job, texts), "tokens of the texts")?;
        let told = || window.tell(0);
        let rows = tokenize(context, &self.tokenizer, self.encoder.shape(), &job.rule, texts, &told)?;
        Ok(Tokenized { rows })
    }

    /// Embeds some of the rows of a call.
    fn embed_window(
        &self,
        context: &Context,
        job: &Job,
        window: &Window,
        rows: &mut [Row],
        output: &Output,
        reports: Option<&mut [Report]>,
    ) -> Result<()> {
        if reports.is_none() {
            first_failure(window, rows)?;
        }
        for (row, error) in self.compute(context, job, window, rows, output)? {
            rows[row].error = Some(error);
        }
        for (row, _) in rows.iter().enumerate().filter(|(_, row)| row.error.is_some()) {
            // SAFETY: `check` accepted the shape, the row is inside it, and no other thread is at work any more.
            unsafe { output.write_failed(window.first + row) };
        }
        match reports {
            None => first_failure(window, rows),
            Some(reports) => {
                reports.iter_mut().zip(rows).for_each(|(report, row)| *report = row.report(job));
                Ok(())
            }
        }
    }

    /// The tokens of texts, on the threads of the executor: the first half of [`embed_texts`](Self::embed_texts). A text that
    /// fails says so when it is embedded. Any thread, any number at once.
    pub fn tokenize_texts(
        &self,
        context: &Context,
        texts: &[&[u8]],
        options: &EmbedOptions,
    ) -> Result<Tokenized> {
        let job = self.job(options, &|| context.cancel.check())?;
        let window = Window { first: 0, all: texts.len(), progress: options.progress };
        self.tokenize_window(context, &job, &window, texts)
    }

    /// Embeds texts that were tokenized by this model with the same options: the other half of
    /// [`embed_texts`](Self::embed_texts), with the same output, reports and errors, but all texts at once, however many, and
    /// a row that has failed stays so. Without a prompt, and once scratch has
    /// grown, it allocates nothing, makes no system call and takes no lock.
    pub fn embed_tokenized(
        &self,
        context: &Context,
        texts: &mut Tokenized,
        options: &EmbedOptions,
        output: Output,
        reports: Option<&mut [Report]>,
    ) -> Result<()> {
        let job = self.job(options, &|| context.cancel.check())?;
        self.check(texts.rows.len(), &job, &output, reports.as_deref())?;
        let window = Window { first: 0, all: texts.rows.len(), progress: options.progress };
        self.embed_window(context, &job, &window, &mut texts.rows, &output, reports)
    }

    fn check(&self, rows: usize, job: &Job, output: &Output, reports: Option<&[Report]>) -> Result<()> {
        output.check(rows, job.choice.dimensions)?;
        match reports {
            Some(reports) if reports.len() != rows => {
                err!(InvalidArgument, "reports: expected {rows}, found {}", reports.len())
            }
            _ => Ok(()),
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
        let scratch = match self.scratch(tokens, longest, window.min(tokens)) + schedule_bytes(window) {
            small if small < HUGE_PAGE => small,
            large => large.next_multiple_of(HUGE_PAGE),
        };
        let a_thread = scratch + tokenizer::memory(usize::MAX);
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
        let a_thread = tokenizer::room(longest) + longest as u128;
        rows + context.team.threads().min(texts.len()) as u128 * a_thread
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
