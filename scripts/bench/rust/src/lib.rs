//! The conversation of `worker.py` for engines that are Rust libraries.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Texts in one call of an engine.
pub const BATCH: usize = 32;

/// What embeds: texts in, rows of f32 with norm one out, one after another.
pub trait Engine {
    /// Rows of one batch, in the order of its texts.
    fn embed(&self, texts: &[String]) -> Result<Vec<f32>>;

    /// Any number of texts in batches of `BATCH`, in the order of the file.
    fn embed_in_file_order(&self, texts: &[String]) -> Result<Vec<f32>> {
        let batches: Result<Vec<_>> = texts.chunks(BATCH).map(|batch| self.embed(batch)).collect();
        Ok(batches?.concat())
    }

    /// The same, in batches of texts of like length, for an engine that pads.
    fn embed_by_length(&self, texts: &[String]) -> Result<Vec<f32>>;
}

/// The arguments of a worker.
pub struct Arguments {
    /// Threads that the engine may use.
    pub threads: usize,
    /// Type of the matmuls' inputs.
    pub precision: String,
    /// The folder that prepare.py filled.
    pub work: PathBuf,
}

impl Arguments {
    /// Reads them from the command line.
    pub fn parse() -> Result<Self> {
        let given: Vec<String> = std::env::args().skip(1).collect();
        let find = |name: &str| given.chunks(2).find(|pair| pair[0] == name).and_then(|pair| pair.get(1));
        Ok(Self {
            threads: find("--threads").context("--threads is missing")?.parse()?,
            precision: find("--precision").map_or("f32", String::as_str).to_owned(),
            work: find("--work").context("--work is missing")?.into(),
        })
    }
}

/// Answers run.py until it says quit.
pub fn serve(given: &Arguments, engine: &impl Engine, version: &str) -> Result<()> {
    let query = texts(&given.work, "query")?;
    engine.embed(&query)?;
    say(&json!({ "ready": version }))?;
    for line in std::io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line?)?;
        let word = |key: &str| command[key].as_str().with_context(|| format!("{command} lacks {key}"));
        let count = command["count"].as_u64().unwrap_or(0) as usize;
        let some = || -> Result<Vec<String>> {
            let mut all = texts(&given.work, word("texts")?)?;
            all.truncate(count);
            Ok(all)
        };
        say(&match word("do")? {
            "quit" => return Ok(()),
            "query" => {
                let seconds: Result<Vec<f64>> = (0..count).map(|_| timed(|| engine.embed(&query))).collect();
                json!({ "seconds": seconds? })
            }
            "embed" => {
                let texts = some()?;
                json!({ "seconds": match word("order")? {
                    "length" => timed(|| engine.embed_by_length(&texts))?,
                    _ => timed(|| engine.embed_in_file_order(&texts))?,
                } })
            }
            "vectors" => {
                let rows = engine.embed_by_length(&some()?)?;
                let bytes: Vec<u8> = rows.iter().flat_map(|number| number.to_le_bytes()).collect();
                std::fs::write(word("path")?, bytes)?;
                json!({ "rows": count, "columns": rows.len() / count.max(1) })
            }
            "memory" => json!({ "peak_bytes": peak_bytes()? }),
            other => bail!("unknown command: {other}"),
        })?;
    }
    Ok(())
}

fn texts(work: &Path, name: &str) -> Result<Vec<String>> {
    let path = work.join("texts").join(name).with_extension("json");
    Ok(serde_json::from_slice(&std::fs::read(&path).with_context(|| path.display().to_string())?)?)
}

fn timed(call: impl FnOnce() -> Result<Vec<f32>>) -> Result<f64> {
    let start = Instant::now();
    std::hint::black_box(call()?);
    Ok(start.elapsed().as_secs_f64())
}

fn say(answer: &Value) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{answer}")?;
    Ok(output.flush()?)
}

fn peak_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("/proc/self/status has no VmHWM")?;
    Ok(line.trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}
