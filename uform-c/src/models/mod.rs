//! Layer 5: models from files to vectors.
//!
//! `source` and `hub` find files, `header`, `packed`, `json`, `tensors` and `weights` read them, and `pack` writes them;
//! `loading` shares them among threads;
//! `config`, `modules`, `prompts` and `limit` say what they mean, `tokenizer_file` bounds what a tokenizer may ask for,
//! `pieces` cuts long texts, `tokenizer` and `text` make token ids, `bert` is an
//! architecture and `registry` lists them, `embed` is the main job, `blocks` cuts rows into blocks, `compute` gives those
//! to threads, `finish` and `output` turn tokens into the caller's rows.

mod bert;
mod blocks;
mod compute;
mod config;
mod embed;
mod finish;
mod header;
mod hub;
mod json;
mod limit;
mod loading;
mod model;
mod modules;
mod output;
mod pack;
mod packed;
mod pieces;
mod prompts;
mod registry;
mod source;
mod tensors;
mod text;
mod tokenizer;
mod tokenizer_file;
mod weights;

pub use embed::{EmbedOptions, Length, Normalize, Progress, Report, Tokenized};
pub use model::{Description, LoadOptions, Model, Precision};
pub use output::Output;
pub use pack::PackOptions;
pub use packed::Layout;
pub use prompts::{Prompt, Role};
pub use source::{Reading, Source};
pub use tokenizer::Token;
