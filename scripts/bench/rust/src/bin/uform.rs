//! UForm through its Rust crate. Nothing is padded, so that there is nothing to sort.

use anyhow::{Context, Result};
use uform::{EmbedOptions, Executor, LoadOptions, Model, Mood, Precision};
use uform_bench_workers::{Arguments, Engine, serve};

struct UForm {
    threads: Executor,
    model: Model,
}

impl Engine for UForm {
    fn embed(&self, texts: &[String]) -> Result<Vec<f32>> {
        let vectors = self.model.on(&self.threads).embed_texts(texts, &EmbedOptions::default())?;
        Ok(vectors.as_f32().context("the rows are not f32")?.to_vec())
    }

    fn embed_by_length(&self, texts: &[String]) -> Result<Vec<f32>> {
        self.embed_in_file_order(texts)
    }
}

fn main() -> Result<()> {
    let given = Arguments::parse()?;
    let threads = Executor::for_ram(&[], None, given.threads, 0)?;
    threads.drain(Mood::Spinning)?;
    let options = LoadOptions { precision: given.precision.parse::<Precision>()?, ..LoadOptions::default() };
    let model = Model::load_ram(given.work.join("model"), &threads, &options)?;
    serve(&given, &UForm { threads, model }, &format!("uform {}", uform::version()))
}
