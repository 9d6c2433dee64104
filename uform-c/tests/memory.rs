//! Memory and work of a call are bounded: case C18. A program of its own, as it reads numbers of the whole process.

mod support;

use uform_c::base::Status;
use uform_c::executors::Executor;
use uform_c::models::{EmbedOptions, Model, Precision};

use support::{PRECISIONS, Place, embed, load, load_in, minilm_folder, repository};

/// Resident bytes of this process.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

/// Seconds of CPU that this thread has used.
#[cfg(target_os = "linux")]
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives through the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(target_os = "linux")]
fn seconds_of(model: &Model, texts: &[&str]) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let before = cpu_seconds();
        embed(model, Place::Here, texts, &EmbedOptions::default()).unwrap();
        best = best.min(cpu_seconds() - before);
    }
    best
}

/// Texts of 1,200 characters.
fn texts(count: usize) -> Vec<String> {
    let words = || "A sentence of many words. ".chars().cycle();
    (0..count).map(|row| format!("{row} ").chars().chain(words()).take(1200).collect()).collect()
}

fn pass(model: &Model, executor: &Executor, texts: &[String]) {
    let limit = model.describe().token_limit as u64;
    for batch in texts.chunks(64) {
        let (_, reports) = embed(model, Place::On(executor), batch, &EmbedOptions::default()).unwrap();
        assert!(reports.iter().all(|report| report.status == Status::Ok && report.tokens_kept == limit));
    }
}

/// Everything in one test: others beside it would disturb the numbers.
#[cfg(target_os = "linux")]
#[test]
fn memory_and_work_are_bounded() {
    let tiny = load(&repository().join("tests/conformance/models/bert-mean"));
    let minilm = load(&minilm_folder());
    memory_does_not_grow(&tiny, &texts(500));
    memory_does_not_grow(&minilm, &texts(64));
    nothing_is_padded(&minilm);
    let wide = repository().join("tests/conformance/models/bert-wide-heads");
    for precision in PRECISIONS {
        plans_are_bounds(&load_in(&minilm_folder(), precision), precision);
        plan_is_a_bound(&load_in(&wide, precision), 2, 64, 20, 0);
    }
}

#[cfg(target_os = "linux")]
fn memory_does_not_grow(model: &Model, texts: &[String]) {
    let executor = Executor::for_ram(&[], None, 2, 0).unwrap();
    let before = resident();
    pass(model, &executor, texts);
    let first = resident();
    pass(model, &executor, texts);
    let second = resident();
    assert!(second as f64 <= 1.02 * first as f64, "resident bytes grew from {first} to {second}");
    let planned = model.plan(2, 64, 0, &EmbedOptions::default()).unwrap();
    // What the allocator keeps in its own hands is not planned.
    assert!(
        first.saturating_sub(before) <= planned + (4 << 20),
        "{before} to {first} resident, planned {planned}"
    );
}

fn plans_are_bounds(model: &Model, precision: Precision) {
    assert_eq!(model.describe().precision, precision);
    for (threads, rows, tokens, budget) in [
        (1, 1, 5, 0),
        (1, 3, 256, 64),
        (2, 64, 20, 100),
        (3, 40, 100, 2000),
        (2, 1, 256, 0),
        (2, 9, 200, 0),
        (1, 4096, 3, 0),
    ] {
        plan_is_a_bound(model, threads, rows, tokens, budget);
    }
}

fn plan_is_a_bound(model: &Model, threads: usize, rows: usize, tokens: usize, budget: usize) {
    let executor = Executor::for_ram(&[], None, threads, 0).unwrap();
    let options = EmbedOptions { token_budget: budget, ..EmbedOptions::default() };
    let precision = model.describe().precision.name();
    let words = vec!["word ".repeat(tokens - 2); rows];
    let planned = model.plan(threads, rows, tokens, &options).unwrap();
    let call = |texts: &[String]| {
        embed(model, Place::On(&executor), texts, &options).unwrap();
        let facts = executor.describe().unwrap();
        let (kept, scratch) = (facts.scratch_bytes as u64, facts.scratch_high_water as u64);
        assert!(
            kept.max(scratch) <= planned,
            "{precision}, {threads} threads, {rows} rows of {tokens}: planned {planned}, had {kept} and {scratch}"
        );
        scratch
    };
    // What a smaller call left behind does not stay beside what a larger one takes.
    call(&["word".to_owned()]);
    call(&words[..1]);
    let scratch = call(&words);
    // Each thread's memory may come in whole huge pages, and 2 MiB are for the tokenizer.
    let bound = threads as u64 * (scratch * 3 / 2 + (2 << 20) + (2 << 20));
    assert!(
        planned <= bound,
        "{precision}, {threads} threads, {rows} rows of {tokens}: planned {planned} is far from {scratch}"
    );
}

/// One long text among short ones costs about what it costs alone.
#[cfg(target_os = "linux")]
fn nothing_is_padded(model: &Model) {
    let long = "word ".repeat(254);
    let short = ["a few words here"; 31];
    let mixed: Vec<&str> = short.iter().copied().chain([&long[..]]).collect();
    let apart = seconds_of(model, &short) + seconds_of(model, &[&long]);
    let together = seconds_of(model, &mixed);
    assert!(together <= 1.2 * apart, "{together} seconds together, {apart} apart");
}
