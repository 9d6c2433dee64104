//! Blocks of texts through a model: the next block is read, and the one before written, while one computes.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use uform::{Deferred, EmbedOptions, Embeddings, On, Report, Status};

use super::failure::{Failure, Outcome};
use super::say;

/// What runs through the pipeline.
pub(crate) struct Pipeline<'call> {
    pub(crate) on: On<'call>,
    pub(crate) options: EmbedOptions,
    /// Texts of a block.
    pub(crate) batch: usize,
    /// Bytes that were read so far, and all there are if that is known.
    pub(crate) read: Rc<Cell<u64>>,
    pub(crate) bytes: Option<u64>,
    /// Set when no further block is to begin, and the one that computes is to stop.
    pub(crate) interrupted: Arc<AtomicBool>,
    /// No progress bar, even on a terminal.
    pub(crate) quiet: bool,
}

/// The block that computes.
struct Running {
    deferred: Deferred<Embeddings>,
    texts: Vec<String>,
    /// Bytes that had been read when the block was complete.
    read: u64,
}

/// What became of the texts.
#[derive(Default)]
pub(crate) struct Count {
    pub(crate) texts: u64,
    pub(crate) failed: usize,
    pub(crate) truncated: usize,
    pub(crate) tokens: u64,
}

impl Pipeline<'_> {
    /// Embeds all texts and hands every block of rows to `write`, with the texts of that block. Whatever goes wrong with
    /// the texts, the blocks before are written.
    pub(crate) fn run(
        &self,
        mut texts: impl Iterator<Item = Outcome<String>>,
        mut write: impl FnMut(Vec<String>, Embeddings) -> Outcome<()>,
    ) -> Outcome<Count> {
        let bar = self.bar();
        let options = self.stoppable();
        let mut count = Count::default();
        let mut running: Option<Running> = None;
        let mut trouble = None;
        loop {
            let block = match trouble {
                None => self.block(&mut texts, &mut trouble),
                Some(_) => Vec::new(),
            };
            let read = self.read.get();
            let done = match running.take() {
                None => None,
                Some(Running { deferred, texts, read }) => match deferred.wait() {
                    Ok(rows) => Some((rows, texts, read)),
                    Err(error) if error.status() == Status::Cancelled && self.stopped() => None,
                    Err(error) => return Err(error.into()),
                },
            };
            let stopped = self.stopped();
            if !block.is_empty() && !stopped {
                match self.on.deferred().embed_texts(block.clone(), options.clone()) {
                    Ok(deferred) => running = Some(Running { deferred, texts: block, read }),
                    Err(error) => trouble = Some(error.into()),
                }
            }
            if let Some((rows, texts, read)) = done {
                count.add(rows.reports(), &bar);
                write(texts, rows)?;
                bar.set_position(if self.bytes.is_some() { read } else { count.texts });
            }
            if running.is_none() {
                bar.finish_and_clear();
                return match trouble {
                    _ if stopped => Err(Failure::Interrupted(count.texts)),
                    Some(failure) => Err(failure),
                    None => Ok(count),
                };
            }
        }
    }

    fn stopped(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// The options, with a progress that ends a block when the program is interrupted.
    fn stoppable(&self) -> EmbedOptions {
        let interrupted = Arc::clone(&self.interrupted);
        let go_on = move |_, _| match interrupted.load(Ordering::SeqCst) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        EmbedOptions { progress: Some(Arc::new(go_on)), ..self.options.clone() }
    }

    /// The next texts, fewer at the end or before one that cannot be read, which is then the trouble.
    fn block(
        &self,
        texts: &mut impl Iterator<Item = Outcome<String>>,
        trouble: &mut Option<Failure>,
    ) -> Vec<String> {
        let mut block = Vec::new();
        while block.len() < self.batch {
            match texts.next() {
                None => break,
                Some(Ok(text)) => block.push(text),
                Some(Err(failure)) => {
                    *trouble = Some(failure);
                    break;
                }
            }
        }
        block
    }

    /// Drawn on stderr, and only if that is a terminal.
    fn bar(&self) -> ProgressBar {
        if self.quiet {
            return ProgressBar::hidden();
        }
        let (bar, template) = match self.bytes {
            Some(bytes) => (
                ProgressBar::new(bytes),
                "{bar:30} {bytes} of {total_bytes} {elapsed_precise} (left {eta}) {msg}",
            ),
            None => (ProgressBar::new_spinner(), "{spinner} {pos} texts {elapsed_precise} {msg}"),
        };
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}

impl Count {
    fn add(&mut self, reports: &[Report], bar: &ProgressBar) {
        for (index, report) in reports.iter().enumerate() {
            if report.status != Status::Ok {
                self.failed += 1;
                let text = self.texts + index as u64;
                let why = format!("uform: text {text}: {} ({} tokens)", report.status, report.tokens_found);
                bar.suspend(|| say::note(&why));
            }
            self.truncated += usize::from(report.truncated);
            self.tokens += report.tokens_kept;
        }
        self.texts += reports.len() as u64;
        let rate = self.texts as f64 / bar.elapsed().as_secs_f64().max(1e-9);
        bar.set_message(format!("{rate:.0} texts/s"));
    }
}
