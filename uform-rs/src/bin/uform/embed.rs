//! `uform embed`.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use clap::Args;
use uform::{Dtype, EmbedOptions};

use super::failure::{Failure, Outcome};
use super::pipeline::Pipeline;
use super::setup::{Manner, Place, interruption};
use super::{read, say, write};

/// Embed the texts of files
///
/// One row or line of output per text, in the order of the input. A text that cannot be embedded is NaN in an array
/// (zero in types without NaN) and null in JSON. After Ctrl-C, what was computed is written and the output is valid.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The model
    model: PathBuf,
    /// Files of texts; "-" or none is stdin
    #[arg(value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Where vectors go; "-" or none is stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the output; by default that of the name's ending, npy or jsonl
    #[arg(long, value_name = "FORMAT")]
    output_format: Option<write::Format>,
    /// Format of the input; by default that of each name's ending, else text
    #[arg(long, value_name = "FORMAT")]
    input_format: Option<read::Format>,
    /// Field of JSON lines that is the text
    #[arg(long, default_value = "text", value_name = "NAME")]
    field: String,
    /// Column of CSV that is the text; by default the only one, or "text"
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Type of the elements: f32, f16, bf16, i8, u8 or b1 (eight to a byte, first dimension in the highest bit)
    #[arg(long, default_value = "f32", value_name = "TYPE")]
    dtype: Dtype,
    /// Texts that are computed at once
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// No progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    manner: Manner,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome<()> {
    let interrupted = interruption()?;
    let files = match arguments.inputs.is_empty() {
        true => vec![PathBuf::from("-")],
        false => arguments.inputs.clone(),
    };
    keep_apart(&files, arguments.output.as_deref())?;
    let source = read::Source {
        files,
        format: arguments.input_format,
        field: arguments.field.clone(),
        column: arguments.column.clone(),
    };
    let (bytes, counter) = (source.bytes(), Rc::new(Cell::new(0)));
    let mut texts = source.texts(&counter)?.peekable();
    let (executor, model) = arguments.place.load(&arguments.model)?;
    let options = EmbedOptions { dtype: arguments.dtype, ..arguments.manner.options() };
    // Nothing to embed still has a shape, and options that cannot work are found out before a file is made.
    let nothing = model.on(&executor).embed_texts(&[] as &[&str], &options)?;
    // So is an input that cannot be read from its start: what the output held before is not lost to that.
    if let Some(Err(failure)) = texts.next_if(Result::is_err) {
        return Err(failure);
    }
    let mut output = write::Output::open(arguments.output.as_ref(), arguments.output_format)?;
    output.write(&nothing)?;
    let pipeline = Pipeline {
        on: model.on(&executor),
        options,
        batch: arguments.batch as usize,
        read: counter,
        bytes,
        interrupted,
        quiet: arguments.quiet,
    };
    let start = Instant::now();
    let mut written = 0;
    let count = pipeline
        .run(texts, |_, rows| {
            output.write(&rows)?;
            written += rows.rows();
            Ok(())
        })
        .map_err(|failure| failure.after(written))?;
    if !arguments.quiet {
        let seconds = start.elapsed().as_secs_f64();
        let cut = match count.truncated {
            0 => String::new(),
            cut => format!(", {cut} of them cut at the limit"),
        };
        say::note(format_args!(
            "{} texts of {} tokens in {seconds:.2} s{cut}: {:.0} texts per second",
            count.texts,
            count.tokens,
            count.texts as f64 / seconds.max(1e-9)
        ));
    }
    match count.failed {
        0 => Ok(()),
        failed => Err(Failure::Rows(failed)),
    }
}

/// Refuses an output that is one of the inputs, which opening it would empty.
fn keep_apart(inputs: &[PathBuf], output: Option<&Path>) -> Outcome<()> {
    let Some(Ok(output)) = output.map(Path::canonicalize) else { return Ok(()) };
    match inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == output)) {
        true => Err(Failure::Usage(format!("{}: it is an input and cannot be the output", output.display()))),
        false => Ok(()),
    }
}
