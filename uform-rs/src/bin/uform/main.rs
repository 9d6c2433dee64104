//! The program `uform`: embeds files of text, finds nearest neighbours, and says what models and machines can do.

mod bench;
mod ceilings;
mod embed;
mod failure;
mod info;
mod nearest;
mod pack;
mod pipeline;
mod read;
mod say;
mod setup;
mod write;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Outcome;

/// Embeddings of text, computed in this process.
///
/// MODEL is a directory in the layout of sentence-transformers or Hugging Face, a model.safetensors inside one, a file made by
/// `uform pack`, or the name of a model in the local Hugging Face cache. Nothing is ever downloaded.
///
/// Exit codes: 0 success, 1 failure, 2 wrong usage, 3 done but some texts could not be embedded, 130 interrupted.
#[derive(Parser)]
#[command(name = "uform", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Embed(embed::Arguments),
    Info(info::Arguments),
    Nearest(nearest::Arguments),
    Pack(pack::Arguments),
    Bench(bench::Arguments),
}

fn run(command: Command) -> Outcome<()> {
    match command {
        Command::Embed(arguments) => embed::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Nearest(arguments) => nearest::run(&arguments),
        Command::Pack(arguments) => pack::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(sentence) = failure.sentence() {
                say::note(format_args!("uform: {sentence}"));
            }
            ExitCode::from(failure.code())
        }
    }
}
