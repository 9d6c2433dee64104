//! `uform nearest`.

use std::cell::Cell;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use clap::Args;
use uform::{EmbedOptions, Normalize};

use super::failure::{Failure, Outcome};
use super::pipeline::Pipeline;
use super::setup::{Place, interruption};
use super::{read, say};

/// Embed a collection of texts and print those nearest to each query
///
/// Compares every query with every text by cosine: a demonstration, not an index.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The model
    model: PathBuf,
    /// A file with one text a line; "-" is stdin
    corpus: PathBuf,
    /// What to look for
    #[arg(required = true, value_name = "QUERY")]
    queries: Vec<String>,
    /// Neighbours per query
    #[arg(long, default_value_t = 3, value_name = "N")]
    top: usize,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome<()> {
    let interrupted = interruption()?;
    let source = read::Source {
        files: vec![arguments.corpus.clone()],
        format: Some(read::Format::Text),
        field: String::new(),
        column: None,
    };
    let (bytes, counter) = (source.bytes(), Rc::new(Cell::new(0)));
    let lines = source.texts(&counter)?;
    let (executor, model) = arguments.place.load(&arguments.model)?;
    let options = EmbedOptions { normalize: Normalize::Yes, ..Default::default() };
    let queries = model.on(&executor).embed_queries(&arguments.queries, &options)?;
    let pipeline = Pipeline {
        on: model.on(&executor),
        options: EmbedOptions { role: uform::Role::Document, reports: true, ..options },
        batch: 256,
        read: counter,
        bytes,
        interrupted,
        quiet: arguments.quiet,
    };
    let mut found: Vec<Vec<Neighbour>> = vec![Vec::new(); queries.rows()];
    let start = Instant::now();
    let count = pipeline.run(lines, |texts, rows| {
        for (index, text) in texts.into_iter().enumerate() {
            for (query, nearest) in found.iter_mut().enumerate() {
                let cosine = dot(queries.row(query).unwrap_or_default(), rows.row(index).unwrap_or_default());
                insert(nearest, arguments.top, Neighbour { cosine, text: text.clone() });
            }
        }
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    show(&arguments.queries, &found).map_err(|error| Failure::writing("stdout", &error))?;
    say::note(format_args!(
        "{} texts of {} tokens in {seconds:.2} s on {} threads: {:.0} texts per second",
        count.texts,
        count.tokens,
        executor.describe()?.threads,
        count.texts as f64 / seconds.max(1e-9)
    ));
    Ok(())
}

fn show(queries: &[String], found: &[Vec<Neighbour>]) -> std::io::Result<()> {
    let mut output = stdout().lock();
    for (query, nearest) in queries.iter().zip(found) {
        writeln!(output, "{query}")?;
        for Neighbour { cosine, text } in nearest {
            writeln!(output, "  {cosine:.3}  {text}")?;
        }
    }
    output.flush()
}

#[derive(Clone)]
struct Neighbour {
    cosine: f32,
    text: String,
}

/// Keeps the `top` best, the best first; a row that failed is NaN and never kept.
fn insert(nearest: &mut Vec<Neighbour>, top: usize, new: Neighbour) {
    if new.cosine.is_nan() {
        return;
    }
    let place = nearest.partition_point(|kept| kept.cosine >= new.cosine);
    if place < top {
        nearest.insert(place, new);
        nearest.truncate(top);
    }
}

fn dot(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}
