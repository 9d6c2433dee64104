//! Arguments that several commands share, and what they make: an executor, a model, options.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use clap::Args;
use uform::{
    CPUClass, EmbedOptions, Executor, Length, LoadOptions, Model, Normalize, Precision, Prompt, Reading, Role,
};

use super::failure::{Failure, Outcome};

/// Where the model computes.
#[derive(Args)]
pub(crate) struct Place {
    /// Threads that compute; 0 takes 7/8 of the usable cores
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) threads: usize,
    /// CPU class to dispatch as, like "intel-haswell"; `uform info` lists those of this machine
    #[arg(long, value_name = "CLASS")]
    cpu_class: Option<CPUClass>,
    /// Type of the matmuls' inputs: auto, f32, bf16, f16 or i8
    #[arg(long, default_value = "auto", value_name = "TYPE")]
    precision: Precision,
    /// Map the model's files into memory instead of reading them
    #[arg(long)]
    mapped: bool,
}

impl Place {
    /// An executor with so many threads.
    pub(crate) fn executor(&self, threads: usize) -> Outcome<Executor> {
        Ok(Executor::for_ram(&[], self.cpu_class, threads, 0)?)
    }

    /// The executor and the model on it.
    pub(crate) fn load(&self, model: &PathBuf) -> Outcome<(Executor, Model)> {
        let executor = self.executor(self.threads)?;
        let options = LoadOptions {
            cpu_class: self.cpu_class,
            precision: self.precision,
            reading: if self.mapped { Reading::Mapped } else { Reading::Sequential },
            ..Default::default()
        };
        let model = Model::load_ram(model, &executor, &options)?;
        Ok((executor, model))
    }
}

/// How texts become vectors.
#[derive(Args)]
pub(crate) struct Manner {
    /// What the texts are to a search: as-given, query or document; chooses the model's prompt
    #[arg(long, default_value = "as-given")]
    role: Role,
    /// Text put before every text, byte for byte; "" for none
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_name")]
    prompt: Option<String>,
    /// Name of one of the model's prompts
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// Leading dimensions to keep; 0 keeps what the model says
    #[arg(long, default_value_t = 0, value_name = "N")]
    dimensions: usize,
    /// Scale rows to norm one: model (as it says), yes or no
    #[arg(long, default_value = "model")]
    normalize: Normalize,
    /// What happens to texts over the limit: truncate or refuse
    #[arg(long, default_value = "truncate")]
    length: Length,
    /// Most tokens of a text, special ones included; 0 is the model's limit
    #[arg(long, default_value_t = 0, value_name = "N")]
    token_limit: usize,
}

impl Manner {
    /// The options, asking for reports.
    pub(crate) fn options(&self) -> EmbedOptions {
        let prompt = match (&self.prompt, &self.prompt_name) {
            (Some(text), _) => Prompt::Text(text.clone()),
            (None, Some(name)) => Prompt::Name(name.clone()),
            (None, None) => Prompt::Model,
        };
        EmbedOptions {
            role: self.role,
            prompt,
            dimensions: self.dimensions,
            normalize: self.normalize,
            length: self.length,
            token_limit: self.token_limit,
            reports: true,
            ..Default::default()
        }
    }
}

/// Set by the first Ctrl-C; the second ends the process at once.
pub(crate) fn interruption() -> Outcome<Arc<AtomicBool>> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let flag = Arc::new(AtomicBool::new(false));
    let kept = Arc::clone(FLAG.get_or_init(|| Arc::clone(&flag)));
    if Arc::ptr_eq(&flag, &kept) {
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
        })
        .map_err(|error| Failure::of("Ctrl-C", error))?;
    }
    Ok(kept)
}
