//! `uform bench`.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use uform::{CPUClass, EmbedOptions, Executor, Length, Model, ModelDescription, Mood, Precision};

use super::ceilings;
use super::failure::{Failure, Outcome};
use super::say;
use super::setup::{Place, interruption};

/// Measure how fast a model runs here
///
/// For each number of threads: the time of one short query, and texts per second on texts of mixed length (4 to 128
/// tokens) and on long ones (256 tokens), in batches. Texts are made of common words, the same in every run.
///
/// The ceiling is what that many threads multiply and add at most in the model's precision, measured by a loop in registers. The
/// share of it is that of the matmuls and of attention over the whole time, tokenizing included. It is not known where products are
/// made in tiles, nor for another class than the machine's own.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The model
    model: PathBuf,
    /// Numbers of threads to measure, like 1,2,4; by default one, and 7/8 of the cores
    #[arg(long = "counts", value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    counts: Vec<u32>,
    /// Seconds for each figure
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Texts of a batch
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome<()> {
    if !(arguments.seconds > 0.0 && arguments.seconds <= 3600.0) {
        return Err(Failure::Usage(format!(
            "--seconds: expected more than 0 and at most 3600, found {}",
            arguments.seconds
        )));
    }
    let interrupted = interruption()?;
    let (executor, model) = arguments.place.load(&arguments.model)?;
    let (default, class) = (executor.describe()?.threads, executor.describe()?.cpu_class);
    drop(executor);
    let mut counts = arguments.counts.clone();
    if counts.is_empty() {
        counts = vec![1, default as u32];
        counts.dedup();
    }
    let texts = Texts::new(&model)?;
    let name = class.map_or(String::new(), |class| class.to_string());
    say::line(format_args!("{} on {name}, batches of {}", arguments.model.display(), arguments.batch))?;
    say::line(
        "threads  query median  query p99   mixed texts/s  long texts/s  tokens/s  ceiling      query  mixed   long",
    )?;
    let about = model.describe()?;
    for threads in counts {
        // Before the executor is there, whose threads would take their share of the cores.
        let ceiling = ceiling(about.precision, class, threads as usize);
        let executor = arguments.place.executor(threads as usize)?;
        executor.drain(Mood::Spinning)?;
        let bench =
            Bench { model: &model, executor: &executor, budget: Duration::from_secs_f64(arguments.seconds) };
        let (median, worst) = bench.query(&texts.query)?;
        let batch = arguments.batch as usize;
        let mixed = bench.rate(&texts.mixed, batch)?;
        let long = bench.rate(&texts.long, batch)?;
        let tokens = mixed * texts.mixed_tokens.iter().sum::<usize>() as f64 / texts.mixed.len() as f64;
        let threads = executor.describe()?.threads;
        let share = |tokens: &[usize], texts_per_second: f64| match ceiling {
            Some(ceiling) => {
                format!("{:.0} %", 100.0 * operations(&about, tokens) * texts_per_second / ceiling)
            }
            None => "unknown".to_owned(),
        };
        say::line(format_args!(
            "{threads:>7}  {median:>9.3} ms  {worst:>6.3} ms  {mixed:>13.1}  {long:>12.1}  {tokens:>8.0}  {:<11}  {:>5}  {:>5}  {:>5}",
            ceiling.map_or("unknown".to_owned(), |ceiling| format!("{:.0} Gop/s", ceiling / 1e9)),
            share(&texts.query_tokens, 1e3 / median),
            share(&texts.mixed_tokens, mixed),
            share(&texts.long_tokens, long),
        ))?;
        if interrupted.load(Ordering::SeqCst) {
            return Err(Failure::Interrupted((texts.mixed.len() + texts.long.len()) as u64));
        }
    }
    Ok(())
}

struct Bench<'call> {
    model: &'call Model,
    executor: &'call Executor,
    budget: Duration,
}

impl Bench<'_> {
    /// Median and 99th percentile of one query, in milliseconds.
    fn query(&self, query: &str) -> Outcome<(f64, f64)> {
        let on = self.model.on(self.executor);
        let options = EmbedOptions::default();
        let mut times = Vec::new();
        let start = Instant::now();
        // The first runs grow the scratch and are not counted.
        for run in 0.. {
            let before = Instant::now();
            on.embed_texts(&[query], &options)?;
            if run >= 5 {
                times.push(before.elapsed().as_secs_f64() * 1e3);
            }
            if times.len() >= 20 && start.elapsed() > self.budget {
                break;
            }
        }
        times.sort_by(f64::total_cmp);
        Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
    }

    /// Texts per second, in batches, over as many rounds as the time allows.
    fn rate(&self, texts: &[String], batch: usize) -> Outcome<f64> {
        let on = self.model.on(self.executor);
        let options = EmbedOptions::default();
        on.embed_texts(&texts[..batch.min(texts.len())], &options)?;
        let (start, mut done) = (Instant::now(), 0);
        for block in texts.chunks(batch).cycle() {
            on.embed_texts(block, &options)?;
            done += block.len();
            if start.elapsed() > self.budget {
                break;
            }
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    }
}

/// Operations per second of that many threads, where they can be measured. A type that the processor has no instructions for is
/// widened to f32.
fn ceiling(precision: Precision, class: Option<CPUClass>, threads: usize) -> Option<f64> {
    let tiles = [CPUClass::IntelSapphire, CPUClass::IntelGranite, CPUClass::IntelDiamond];
    let in_tiles = precision != Precision::F32 && class.is_some_and(|class| tiles.contains(&class));
    if in_tiles || class != uform::cpu_class_detected() {
        return None;
    }
    let measure = |name| ceilings::measure(name, threads);
    match precision {
        Precision::Bf16 => measure("bf16").or_else(|| measure("f32")),
        Precision::I8 => measure("i8"),
        _ => measure("f32"),
    }
}

/// Multiplications and additions of a text's matmuls and attention, on average over texts of so many tokens each.
fn operations(model: &ModelDescription, tokens: &[usize]) -> f64 {
    let (hidden, intermediate) = (model.hidden as f64, model.intermediate as f64);
    let of_text = |tokens: f64| {
        let weights = 4.0 * hidden * hidden + 2.0 * hidden * intermediate;
        2.0 * model.layers as f64 * tokens * (weights + 2.0 * tokens * hidden)
    };
    tokens.iter().map(|tokens| of_text(*tokens as f64)).sum::<f64>() / tokens.len() as f64
}

/// What is embedded, with the number of tokens of each text.
struct Texts {
    query: String,
    query_tokens: Vec<usize>,
    mixed: Vec<String>,
    mixed_tokens: Vec<usize>,
    long: Vec<String>,
    long_tokens: Vec<usize>,
}

const WORDS: &str = "the of and to in a is that for it as was with be by on not he his but at are this have from or had \
                     an they which one you were all her she there would their we him been has when who will no more if \
                     out so up said what its about than into them can only other time new some could these two may first \
                     then do any like my now over such our man me even most made after also did many off before must well \
                     back through years much where your way down should because long each just state people those too \
                     mister how little good world make very year still see work life house sea light water story question";

impl Texts {
    fn new(model: &Model) -> Outcome<Self> {
        let limit = model.describe()?.token_limit;
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let mixed_lengths: Vec<usize> = (0..1024).map(|_| 4 + random.below(125)).collect();
        let mut text = |tokens: usize| cut(model, &words(&mut random, tokens), tokens.min(limit));
        let mixed = mixed_lengths.iter().map(|tokens| text(*tokens)).collect::<Outcome<Vec<_>>>()?;
        let long = (0..256).map(|_| text(256)).collect::<Outcome<Vec<_>>>()?;
        let query = "how to bake bread at home".to_owned();
        let count = |text: &String| Ok(model.tokenize(text, &EmbedOptions::default())?.len());
        let counts = |texts: &[String]| texts.iter().map(count).collect::<Outcome<Vec<_>>>();
        let (query_tokens, mixed_tokens, long_tokens) =
            (vec![count(&query)?], counts(&mixed)?, counts(&long)?);
        Ok(Self { query, query_tokens, mixed, mixed_tokens, long, long_tokens })
    }
}

fn words(random: &mut Random, count: usize) -> String {
    let all: Vec<&str> = WORDS.split_whitespace().collect();
    (0..count).map(|_| all[random.below(all.len())]).collect::<Vec<_>>().join(" ")
}

/// The longest beginning of `text` that is at most so many tokens, special ones included.
fn cut(model: &Model, text: &str, tokens: usize) -> Outcome<String> {
    let options = EmbedOptions { length: Length::Truncate, token_limit: tokens, ..Default::default() };
    let end = model.tokenize(text, &options)?.iter().map(|token| token.end).max().unwrap_or(0);
    Ok(text[..end.min(text.len())].to_owned())
}

/// Numbers that are the same in every run: xorshift, as in Marsaglia, "Xorshift RNGs" (2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
}
