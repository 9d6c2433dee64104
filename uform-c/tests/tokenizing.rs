//! What tokenizing takes: memory within the plan whatever the text, and a status where there is no memory. A program of its
//! own, as it counts the bytes of the whole process.
#![cfg(target_os = "linux")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use uform_c::base::Status;
use uform_c::executors::{Executor, on_calling_thread};
use uform_c::models::{EmbedOptions, Output, Prompt};

use support::{Place, bits, embed, load, minilm_folder, repository};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// What the allocator of GNU/Linux takes for a request of that size: 16 bytes are its unit, 32 the least.
fn taken(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

// SAFETY: hands every request to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(taken(layout), Ordering::Relaxed) + taken(layout);
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(taken(layout), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The tests of this program take turns, as each counts what all threads do.
static TURN: Mutex<()> = Mutex::new(());

/// Bytes that `body` had at once beside those of its start.
fn peak<R>(body: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = body();
    (result, PEAK.load(Ordering::Relaxed) - before)
}

#[test]
fn texts_take_no_more_than_is_planned() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let models = repository().join("tests/conformance/models");
    let of = |part: &str, bytes: usize| part.repeat(bytes / part.len());
    let options = EmbedOptions { token_limit: 8, ..EmbedOptions::default() };
    for folder in [minilm_folder(), models.join("bert-cased"), models.join("roberta-mean")] {
        let model = load(&folder);
        let planned = model.plan(1, 1, 8, &options).unwrap() as usize;
        let (long, short) = (1 << 18, 2 << 10);
        let mut worst = 0;
        for (part, bytes) in [
            ("a b ", long),
            ("house, two. ", long),
            ("é ü ", long),
            ("中 文 ", long),
            ("слово ", long),
            ("!", short),
            ("x", short),
            ("中", short),
            ("e\u{301}", short),
            ("\u{fdfa}", short),
            ("\u{390}", short),
            ("각", short),
            ("😀", short),
            ("1a", short),
            (" ", short),
            ("[MASK]", short),
            ("<mask>", short),
        ] {
            let text = of(part, bytes);
            let (result, most) = peak(|| {
                let mut row = vec![0f32; model.dimensions(0).unwrap()];
                let columns = row.len();
                on_calling_thread(None, |context| {
                    let output = Output::dense(&mut row, 1, columns);
                    model.embed_texts(context, &[text.as_bytes()], &options, output, None)
                })
            });
            result.unwrap();
            assert!(most <= planned, "{}: {part:?}: {most} bytes, planned {planned}", folder.display());
            worst = worst.max(most);
        }
        assert!(worst * 4 > planned, "{}: {worst} is far below {planned}", folder.display());
        println!("{}: at most {worst} of {planned} bytes", folder.display());
    }
}

/// A text of megabytes is left soon after a cancel.
#[test]
fn a_long_text_is_cancelled_while_it_is_tokenized() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let model = load(&repository().join("tests/conformance/models/bert-tiny"));
    let text = "one two three ".repeat(1 << 19);
    let executor = Executor::for_ram(&[], None, 1, 0).unwrap();
    let mut row = vec![0f32; model.dimensions(0).unwrap()];
    let (columns, output) = (row.len(), row.as_mut_ptr() as usize);
    let call = executor
        .defer(Box::new(move |context| {
            // SAFETY: the row outlives the call, which is waited for below, and nobody else touches it.
            let row = unsafe { std::slice::from_raw_parts_mut(output as *mut f32, columns) };
            let output = Output::dense(row, 1, columns);
            model.embed_texts(context, &[text.as_bytes()], &EmbedOptions::default(), output, None)
        }))
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(call.poll().is_none(), "7 MB are tokenized in less than a tenth of a second");
    let start = Instant::now();
    call.cancel().unwrap();
    assert_eq!(call.wait(f64::INFINITY).unwrap_err().status, Status::Cancelled);
    assert!(start.elapsed() < Duration::from_millis(300), "{:?}", start.elapsed());
    drop(row);
}

/// A long prompt is tokenized once a call, and a row is what it is alone.
#[test]
fn a_long_prompt_is_not_paid_for_by_every_row() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let model = load(&repository().join("tests/conformance/models/bert-tiny"));
    let prompt = "one two three, ".repeat(4000);
    let options = EmbedOptions { prompt: Prompt::Text(&prompt), ..EmbedOptions::default() };
    let time = |texts: &[&str]| {
        let start = Instant::now();
        let (rows, reports) = embed(&model, Place::Here, texts, &options).unwrap();
        (start.elapsed(), bits(&rows), reports)
    };
    time(&["a"]);
    let (one, alone, alone_reports) = time(&["a cat"]);
    let (many, together, reports) = time(&["a cat"; 200]);
    assert!(
        together.iter().all(|row| *row == alone[0]) && reports.iter().all(|one| *one == alone_reports[0])
    );
    assert!(many < one * 20, "{one:?} for a row, {many:?} for 200");
    let whole = format!("{prompt}a cat");
    let plain = EmbedOptions { prompt: Prompt::Text(""), ..EmbedOptions::default() };
    let (rows, found) = embed(&model, Place::Here, &[&whole], &plain).unwrap();
    assert_eq!((&bits(&rows)[0], found[0]), (&alone[0], alone_reports[0]));
}

const CHILD: &str = "UFORM_TEST_SPARE_BYTES";

/// Bytes of address space of this process.
fn mapped() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

fn calls_of_child() -> Vec<(&'static str, Vec<String>)> {
    vec![
        ("rows", (0..5000).map(|row| format!("row {row} of many words, one two three")).collect()),
        // No longer, as a thread that gets no heap of its own takes pages for every word.
        ("long", vec!["one two three, house. ".repeat(2_000); 3]),
        ("unbroken", vec!["x".repeat(1 << 18)]),
        ("prompted", vec!["a cat".to_owned(); 3]),
        ("short", vec!["a cat".to_owned()]),
    ]
}

/// What is left to the child, in KiB. With less even the few bytes of a small list may be missing, which nobody can refuse.
const SPARES: [u64; 10] = [256, 512, 1024, 2048, 4096, 8192, 16384, 24576, 40960, 102_400];

/// With so many bytes left of its address space, a child makes some calls; each succeeds or says how many bytes it lacks.
#[test]
fn without_memory_there_is_a_status() {
    if let Ok(spare) = std::env::var(CHILD) {
        return live_on(spare.parse().unwrap());
    }
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let statuses = |spare: u64| {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["without_memory_there_is_a_status", "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, spare.to_string())
            .output()
            .unwrap();
        let (said, errors) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success(), "{spare} bytes: {} {said} {errors}", child.status);
        let answers: Vec<String> =
            said.lines().filter_map(|line| line.split("answer ").nth(1)).map(str::to_owned).collect();
        assert_eq!(answers.len(), 2 * calls_of_child().len(), "{spare} bytes: {said} {errors}");
        answers
    };
    let (mut failed, kib) = (0, 1 << 10);
    for spare in SPARES {
        for answer in statuses(spare * kib) {
            if !answer.ends_with("Ok") {
                // Where there is nothing at all, there is no memory for the sentence with the number.
                let said = answer.contains(" bytes of memory")
                    || spare < 1 << 10 && answer.contains("there is no memory");
                assert!(answer.contains("OutOfMemory") && said, "{spare} KiB: {answer}");
                failed += 1;
            }
        }
    }
    assert!(failed > 10, "there was always memory");
    assert!(statuses(4 << 30).iter().all(|answer| answer.ends_with("Ok")));
}

fn live_on(spare: u64) {
    let model = load(&repository().join("tests/conformance/models/bert-tiny"));
    let executor = Executor::for_ram(&[], None, 2, 0).unwrap();
    let columns = model.dimensions(0).unwrap();
    let calls = calls_of_child();
    let most = calls.iter().map(|(_, texts)| texts.len()).max().unwrap();
    let mut values = vec![0f32; most * columns];
    let texts: Vec<Vec<&[u8]>> =
        calls.iter().map(|(_, texts)| texts.iter().map(|text| text.as_bytes()).collect()).collect();
    let mut results = Vec::with_capacity(2 * calls.len());
    // What the test itself takes afterwards is not under the limit.
    let limit_to = |bytes: u64| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the structure lives through the call.
        unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }
    };
    let prompted = EmbedOptions { prompt: Prompt::Text(&calls[1].1[0]), ..EmbedOptions::default() };
    let limit = mapped() + spare;
    assert_eq!(limit_to(limit), 0);
    for ((name, _), texts) in calls.iter().zip(&texts) {
        let output = Output::dense(&mut values[..texts.len() * columns], texts.len(), columns);
        let options = if *name == "prompted" { prompted } else { EmbedOptions::default() };
        let result = executor.run(|context| model.embed_texts(context, texts, &options, output, None));
        results.push((*name, result));
        results.push(("tokens", model.tokenize(texts[0], &options).map(|_| ())));
    }
    assert_eq!(limit_to(libc::RLIM_INFINITY), 0);
    for (name, result) in results {
        match result {
            Ok(()) => println!("answer {name}: Ok"),
            Err(error) => println!("answer {name}: {:?}: {error}", error.status),
        }
    }
}
