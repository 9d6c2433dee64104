//! `uform pack`.

use std::path::{Path, PathBuf};

use clap::Args;
use uform::{Layout, Model, PackOptions, Precision};

use super::failure::{Failure, Outcome};
use super::say;

/// Write a model as one file, which every language loads
///
/// The file has the weights in the chosen precision and, in its metadata, the configuration, tokenizer and pooling. It
/// loads as the same model in that precision, to the bit.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The model
    model: PathBuf,
    /// Type of the weights of linear layers: auto (that of the model's files), f32, bf16, f16 or i8
    #[arg(long, default_value = "auto", value_name = "TYPE")]
    precision: Precision,
    /// How those weights lie: portable, or x86, as the kernels of that family read them, so that mapping is loading
    #[arg(long, default_value = "portable", value_name = "LAYOUT")]
    layout: Layout,
    /// Where the file goes, by default NAME.safetensors in this directory, where NAME is the model's
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome<()> {
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => default_output(&arguments.model)?,
    };
    let options = PackOptions { precision: arguments.precision, layout: arguments.layout };
    Model::pack(&arguments.model, &output, &options)?;
    say::line(output.display())
}

/// A path like `.` has no name of its own, but its directory has.
fn default_output(model: &Path) -> Outcome<PathBuf> {
    let whole = model.file_name().is_none().then(|| model.canonicalize().ok()).flatten();
    match whole.as_deref().unwrap_or(model).file_name() {
        Some(name) => {
            let mut name = name.to_owned();
            name.push(".safetensors");
            Ok(PathBuf::from(name))
        }
        None => Err(Failure::Usage(format!(
            "{}: it has no name for the file; --output gives one",
            model.display()
        ))),
    }
}
