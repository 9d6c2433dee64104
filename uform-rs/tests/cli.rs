//! The program `uform`, run as its users run it.
#![cfg(feature = "cli")]

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A directory of its own for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, contents: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, contents).unwrap();
        path.display().to_string()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uform"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn model() -> String {
    common::path("bert-mean").display().to_string()
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs it with success and gives what it printed.
fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs it with that exit code and holds what it wrote to stderr against the facts.
fn fails(arguments: &[&str], code: i32, facts: &[&str]) {
    let output = run(arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    for fact in facts {
        assert!(stderr.contains(fact), "expected {fact:?} in {stderr:?}");
    }
}

/// Shape, type and elements of an array file.
fn npy(path: &str) -> (String, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!((10 + length) % 64, 0);
    (text(&bytes[10..10 + length]).trim_end().to_owned(), bytes[10 + length..].to_vec())
}

fn rows(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const TEXTS: [&str; 3] = ["the cat and the dog", "", "naïve 漢字"];

#[test]
fn arrays_hold_what_the_library_computes() {
    let folder = Folder::new("npy");
    let input = folder.file("texts.txt", &(TEXTS.join("\n") + "\n"));
    let wanted = common::load("bert-mean").embed_texts(&TEXTS, &Default::default()).unwrap();
    let output = folder.path("out.npy");
    for batch in ["1", "2", "256"] {
        succeeds(&["embed", &model(), &input, "-o", &output, "--batch", batch, "--threads", "2"]);
        let (header, elements) = npy(&output);
        assert_eq!(header, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 32), }");
        assert_eq!(elements, wanted.bytes());
    }
    for (dtype, descr, columns, bytes) in [
        ("f16", "<f2", 32, 64),
        ("bf16", "<u2", 32, 64),
        ("i8", "|i1", 32, 32),
        ("u8", "|u1", 32, 32),
        ("b1", "|u1", 4, 4),
    ] {
        succeeds(&["embed", &model(), &input, "-o", &output, "--dtype", dtype]);
        let (header, elements) = npy(&output);
        assert!(
            header.contains(&format!("'{descr}'")) && header.contains(&format!("(3, {columns})")),
            "{header}"
        );
        assert_eq!(elements.len(), 3 * bytes);
    }
}

#[test]
fn lines_of_json_hold_the_same_numbers() {
    let folder = Folder::new("jsonl");
    let wanted = common::load("bert-mean").embed_texts(&TEXTS, &Default::default()).unwrap();
    let check = |lines: &str| {
        let rows = rows(lines);
        assert_eq!(rows.len(), 3);
        for (index, row) in rows.iter().enumerate() {
            assert_eq!(row["index"], index);
            let numbers: Vec<f32> = serde_json::from_value(row["embedding"].clone()).unwrap();
            assert_eq!(Some(numbers.as_slice()), wanted.row(index));
        }
    };
    check(&succeeds(&["embed", &model(), &folder.file("a.txt", &TEXTS.join("\r\n"))]));

    let objects: String =
        TEXTS.iter().map(|text| format!("{}\n\n", serde_json::json!({ "body": text }))).collect();
    check(&succeeds(&["embed", &model(), &folder.file("a.jsonl", &objects), "--field", "body"]));

    let table = "id,body\n1,\"the cat and the dog\"\n2,\n3,naïve 漢字\n";
    check(&succeeds(&["embed", &model(), &folder.file("a.csv", table), "--column", "body"]));
    let named_text = table.replace("body", "text");
    check(&succeeds(&["embed", &model(), &folder.file("b.csv", &named_text)]));
    fails(&["embed", &model(), &folder.file("c.csv", table)], 2, &["--column", "id, body"]);

    let mut child = command(&["embed", &model(), "-", "-q", "--output-format", "jsonl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all((TEXTS.join("\n") + "\n").as_bytes()).unwrap();
    check(&text(&child.wait_with_output().unwrap().stdout));

    let output = folder.path("out.jsonl");
    succeeds(&["embed", &model(), &folder.file("b.txt", &TEXTS.join("\n")), "--output", &output]);
    let table = folder.path("out.csv");
    fails(&["embed", &model(), &folder.path("b.txt"), "--output", &table], 2, &[".jsonl", "--output-format"]);
    assert!(!Path::new(&table).exists());
    check(&fs::read_to_string(output).unwrap());

    for dtype in ["f16", "bf16", "i8", "u8", "b1"] {
        let lines = succeeds(&["embed", &model(), &folder.path("b.txt"), "--dtype", dtype]);
        let length = rows(&lines)[2]["embedding"].as_array().unwrap().len();
        assert_eq!(length, if dtype == "b1" { 4 } else { 32 });
    }
}

#[test]
fn options_reach_the_model() {
    let folder = Folder::new("options");
    let input = folder.file("a.txt", "a cat\n");
    let path = common::path("bert-prompts").display().to_string();
    let embed = |arguments: &[&str]| succeeds(&[&["embed", &path, &input][..], arguments].concat());
    let plain = embed(&["--prompt", ""]);
    assert_ne!(embed(&["--role", "query"]), plain);
    assert_eq!(embed(&["--role", "query"]), embed(&["--prompt-name", "query"]));
    assert_eq!(rows(&embed(&["--dimensions", "7"]))[0]["embedding"].as_array().unwrap().len(), 7);
    assert_ne!(embed(&["--token-limit", "3"]), plain);
    assert_eq!(
        embed(&["--cpu-class", "serial", "--threads", "1", "--mapped", "--precision", "f32"]).lines().count(),
        1
    );
}

#[test]
fn bad_texts_cost_the_others_nothing() {
    let folder = Folder::new("bad");
    let long = "the cat and the dog ".repeat(30);
    let input = folder.file("a.txt", &format!("a cat\n{long}\na dog\n"));
    fails(
        &["embed", &model(), &input, "--length", "refuse", "-o", &folder.path("out.jsonl")],
        3,
        &["text 1", "1 text"],
    );
    let rows = rows(&fs::read_to_string(folder.path("out.jsonl")).unwrap());
    assert_eq!(rows.len(), 3);
    assert!(rows[1]["embedding"].is_null() && rows[1]["status"] == "invalid-argument", "{}", rows[1]);
    assert!(rows[2]["embedding"].is_array());
}

#[test]
fn what_was_read_before_a_bad_line_is_written() {
    let folder = Folder::new("line");
    let input = folder.path("a.txt");
    fs::write(&input, b"one\ntwo\n\xff\xfe\nfour\n").unwrap();
    let output = folder.path("out.npy");
    fails(&["embed", &model(), &input, "-o", &output, "--batch", "1"], 1, &["a.txt:3", "before it: 2"]);
    let (header, elements) = npy(&output);
    assert!(header.contains("(2, 32)"), "{header}");
    assert_eq!(elements.len(), 2 * 128);
}

#[test]
fn an_input_that_cannot_be_read_costs_no_output_that_is_there() {
    let folder = Folder::new("kept");
    let (kept, table) =
        (folder.file("kept.jsonl", "precious\n"), folder.file("two.csv", "id,body\n1,a cat\n"));
    let (objects, missing) = (folder.file("bad.jsonl", "{}\n"), folder.path("missing.txt"));
    for (input, code, fact) in
        [(&table, 2, "--column"), (&objects, 1, "\"text\""), (&missing, 1, "missing.txt")]
    {
        fails(&["embed", &model(), input, "--output", &kept], code, &[fact]);
        assert_eq!(fs::read_to_string(&kept).unwrap(), "precious\n", "{input}");
    }
}

#[test]
fn mistakes_are_sentences_with_an_exit_code() {
    let folder = Folder::new("mistakes");
    let input = folder.file("a.txt", "a\n");
    let table = folder.file("a.csv", "id,body\n1,x\n");
    let objects = folder.file("a.jsonl", "{\"text\": 5}\n");
    let model = model();
    fails(&["embed", "/no/such/model", &input], 1, &["/no/such/model"]);
    fails(&["embed", &model, "/no/such/file"], 1, &["/no/such/file"]);
    fails(&["embed", &model, &input, "-o", "/no/such/folder/out.npy"], 1, &["/no/such/folder/out.npy"]);
    fails(&["embed", &model, &input, "--output-format", "npy"], 2, &["--output"]);
    fails(&["embed", &model, &table], 2, &["--column", "id, body"]);
    fails(&["embed", &model, &table, "--column", "title"], 2, &["title", "id, body"]);
    fails(&["embed", &model, &objects], 1, &["a.jsonl:1", "no string"]);
    fails(&["embed", &model, &objects, "--field", "body"], 1, &["a.jsonl:1", "--field"]);
    fails(&["embed", &model, &input, "--dimensions", "33"], 1, &["32", "33"]);
    fails(&["embed", &model, &input, "--dtype", "f64"], 2, &["f64", "bf16"]);
    fails(&["embed", &model, &input, "--cpu-class", "z80"], 2, &["z80"]);
    fails(&["embed", &model, &input, "--batch", "0"], 2, &["--batch"]);
    fails(&["embed", &model, &input, "--prompt", "a", "--prompt-name", "b"], 2, &["--prompt"]);
    fails(&["embed", &model, &input, "--prompt-name", "nobody"], 1, &["nobody"]);
    fails(&[], 2, &["embed", "info", "nearest", "bench"]);
}

#[test]
fn help_and_version() {
    assert_eq!(succeeds(&["--version"]).trim(), format!("uform {}", uform::version()));
    for command in ["embed", "info", "nearest", "bench"] {
        assert!(succeeds(&["--help"]).contains(command));
        assert!(succeeds(&[command, "--help"]).to_lowercase().contains("model"));
    }
}

#[test]
fn info_says_everything() {
    let shown = succeeds(&["info", &model()]);
    for fact in
        ["architecture", "bert", "dimensions", "32", "token limit", "48", "pooling", "mean", "unread keys"]
    {
        assert!(shown.contains(fact), "expected {fact:?} in {shown}");
    }
    let facts: Value = serde_json::from_str(&succeeds(&["info", &model(), "--json"])).unwrap();
    let description = common::load("bert-mean").describe().unwrap();
    assert_eq!((&facts["dimensions"], &facts["token_limit"]), (&32.into(), &48.into()));
    assert_eq!(facts["parameters"], description.parameters);
    assert_eq!(facts["unread_keys"], serde_json::json!(description.unread_keys));

    let machine: Value = serde_json::from_str(&succeeds(&["info", "--json"])).unwrap();
    assert_eq!(machine["version"], uform::version());
    assert!(machine["capabilities_available"].as_array().unwrap().contains(&"serial".into()));
    assert!(succeeds(&["info"]).contains("capabilities compiled"));
    fails(&["info", "/no/such/model"], 1, &["/no/such/model"]);
}

#[test]
fn the_nearest_text_is_the_same_text() {
    let folder = Folder::new("nearest");
    let corpus =
        folder.file("corpus.txt", "the cat and the dog\nthe house at night\none man and two women\n");
    let shown = succeeds(&["nearest", &model(), &corpus, "the house at night", "--top", "2"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    assert_eq!(lines[0], "the house at night");
    assert!(lines[1].contains("1.000") && lines[1].ends_with("the house at night"), "{shown}");
}

#[test]
fn bench_prints_a_row_for_every_number_of_threads() {
    let shown = succeeds(&["bench", &model(), "--counts", "1,2", "--seconds", "0.05"]);
    let figures: Vec<Vec<f64>> = shown
        .lines()
        .skip(2)
        .map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
        .collect();
    assert_eq!(figures.len(), 2, "{shown}");
    for (row, threads) in figures.iter().zip([1.0, 2.0]) {
        let (measured, shares) = row.split_at(6);
        assert!(measured[0] == threads && measured.iter().all(|figure| *figure > 0.0), "{shown}");
        // The ceiling and three shares of it, in per cent, where it is known.
        let known = if cfg!(target_arch = "x86_64") { 4 } else { 0 };
        assert!(shares.len() == known && shares.iter().all(|share| *share >= 0.0), "{shown}");
        assert!(shares.iter().skip(1).all(|share| *share <= 100.0), "{shown}");
    }
    for seconds in ["-1", "0", "nan", "4000"] {
        let expected = "--seconds: expected more than 0 and at most 3600, found ";
        fails(&["bench", &model(), &format!("--seconds={seconds}")], 2, &[expected]);
    }
}

#[cfg(unix)]
#[test]
fn an_interruption_leaves_a_shorter_array() {
    use std::os::unix::fs::FileTypeExt;
    let folder = Folder::new("interrupt");
    let (input, output) = (folder.path("pipe"), folder.path("out.npy"));
    let name = std::ffi::CString::new(input.clone()).unwrap();
    // SAFETY: the name is a zero-terminated string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(fs::metadata(&input).unwrap().file_type().is_fifo());
    let mut child = command(&["embed", &model(), &input, "-o", &output, "--batch", "4", "--threads", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = fs::File::options().write(true).open(&input).unwrap();
    // Enough for the program to be in the middle of its work, whatever it has read ahead.
    let line = b"the cat and the dog see the house at night\n".repeat(64);
    let mut sent = 0;
    let rows = || fs::read(&output).map_or(0, |bytes| bytes.len().saturating_sub(128) / 128);
    while rows() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        pipe.write_all(&line).unwrap();
        sent += 64;
    }
    // SAFETY: the child is alive, as nobody has waited for it.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    // A writer that is never done: it ends by its own will only.
    while child.try_wait().unwrap().is_none() {
        if pipe.write_all(&line).is_ok() {
            sent += 64;
        }
    }
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    let (header, elements) = npy(&output);
    let rows = elements.len() / 128;
    assert!(0 < rows && rows < sent && rows.is_multiple_of(4), "{rows} rows of {sent} texts");
    assert!(header.contains(&format!("({rows}, 32)")), "{header}");
    assert!(text(&ended.stderr).contains(&format!("after {rows} texts")), "{}", text(&ended.stderr));
}

#[test]
fn pack_writes_one_file_that_embeds_the_same() {
    let folder = Folder::new("pack");
    let (texts, expected) = (folder.file("texts.txt", "a cat\na dog\n"), folder.path("expected.npy"));
    let (packed, found) = (folder.path("packed.safetensors"), folder.path("found.npy"));
    for (precision, layout) in [("i8", "x86"), ("bf16", "portable")] {
        succeeds(&["embed", &model(), &texts, "--precision", precision, "--output", &expected, "--quiet"]);
        let said = ["pack", &model(), "--precision", precision, "--layout", layout, "--output", &packed];
        assert_eq!(succeeds(&said).trim(), packed);
        succeeds(&["embed", &packed, &texts, "--mapped", "--output", &found, "--quiet"]);
        assert!(fs::read(&found).unwrap() == fs::read(&expected).unwrap(), "{precision} as {layout}");
        assert!(succeeds(&["info", &packed]).contains(precision));
    }
    let said = command(&["pack", &model()]).current_dir(&folder.0).output().unwrap();
    assert_eq!((said.status.code(), &text(&said.stdout)[..]), (Some(0), "bert-mean.safetensors\n"));
    assert!(folder.0.join("bert-mean.safetensors").is_file());
    fails(&["pack", &model(), "--output", &folder.path("packed.bin")], 1, &["destination", ".safetensors"]);
    fails(&["pack", &model(), "--layout", "arm"], 2, &["portable, x86"]);
    fails(&["embed", &packed, &texts, "--precision", "bf17"], 2, &["bf17"]);
}
