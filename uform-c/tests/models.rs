//! Models from files to vectors: against the reference library's own vectors, and the contracts of a call.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use uform_c::base::{Dtype, Status};
use uform_c::executors::{Cancel, Context, Executor, on_calling_thread};
use uform_c::models::{EmbedOptions, Length, LoadOptions, Model, Normalize, Output, Prompt, Reading, Source};
use uform_c::system::cpu::{self, CpuClass};

use support::{
    PRECISIONS, Place, bits, cosine, embed, largest_difference, load, load_in, minilm_folder, read_npy,
    repository,
};

fn minilm() -> &'static Model {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    MODEL.get_or_init(|| load(&minilm_folder()))
}

fn tiny(name: &str) -> Arc<Model> {
    load(&repository().join("tests/conformance/models").join(name))
}

/// Texts of the parity set with what the reference says of them.
fn parity_texts() -> Vec<Value> {
    let path = repository().join("tests/data/parity/texts.jsonl");
    let lines = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    lines.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

fn plain(texts: &[Value]) -> Vec<&str> {
    texts.iter().map(|text| text["text"].as_str().expect("a text")).collect()
}

#[test]
fn minilm_equals_sentence_transformers() {
    let texts = parity_texts();
    let expected = read_npy(&repository().join("tests/data/parity/vectors.npy"));
    assert!(texts.len() >= 1000 && texts.len() == expected.len());
    let executor = Executor::for_ram(&[], None, 2, 0).unwrap();
    let (found, reports) =
        embed(minilm(), Place::On(&executor), &plain(&texts), &EmbedOptions::default()).unwrap();
    let (mut worst_cosine, mut worst_difference) = (1.0f64, 0.0f64);
    for (row, text) in texts.iter().enumerate() {
        let facts = (reports[row].tokens_found, reports[row].tokens_kept, reports[row].truncated);
        let wanted =
            (text["tokens_found"].as_u64(), text["tokens_kept"].as_u64(), text["truncated"].as_bool());
        assert_eq!((Some(facts.0), Some(facts.1), Some(facts.2)), wanted, "row {row}: {text}");
        assert_eq!(reports[row].status, Status::Ok);
        let (cosine, difference) =
            (cosine(&found[row], &expected[row]), largest_difference(&found[row], &expected[row]));
        assert!(
            cosine >= 0.999999 && difference <= 2e-6,
            "row {row}: cosine {cosine}, difference {difference}: {text}"
        );
        (worst_cosine, worst_difference) = (worst_cosine.min(cosine), worst_difference.max(difference));
    }
    println!(
        "{} texts: cosine at least {worst_cosine}, difference at most {worst_difference:e}",
        texts.len()
    );
}

/// Contract 2 and case C4: a row's bits depend on that row alone, for each class of this machine and in each precision.
#[test]
fn a_row_depends_on_itself_alone() {
    let all = parity_texts();
    let texts: Vec<&str> =
        plain(&all).into_iter().step_by(all.len() / 40).take(40).chain(["test test"; 24]).collect();
    let models = repository().join("tests/conformance/models");
    for precision in PRECISIONS {
        for name in ["bert-mean", "bert-odd-heads", "bert-wide-heads", "roberta-mean"] {
            let model = load_in(&models.join(name), precision);
            cpu::runnable().iter().for_each(|class| rows_are_independent(&model, *class, &texts));
        }
    }
    let some: Vec<&str> = texts.into_iter().step_by(3).collect();
    for precision in PRECISIONS {
        rows_are_independent(&load_in(&minilm_folder(), precision), cpu::detected(), &some);
    }
}

fn rows_are_independent(model: &Model, class: CpuClass, texts: &[&str]) {
    let precision = model.describe().precision.name();
    let embed_on = |texts: &[&str], threads: usize, token_budget: usize| {
        let executor = Executor::for_ram(&[], Some(class), threads, 0).unwrap();
        let options = EmbedOptions { token_budget, ..EmbedOptions::default() };
        bits(&embed(model, Place::On(&executor), texts, &options).unwrap().0)
    };
    let together = embed_on(texts, 1, 0);
    assert_eq!(together[texts.len() - 1], together[texts.len() - 2], "equal texts have equal rows");
    for (threads, budget) in [(2, 0), (3, 64), (2, 1), (1, 100_000)] {
        assert!(
            embed_on(texts, threads, budget) == together,
            "{class}, {precision}: {threads} threads, {budget} tokens"
        );
    }
    let backwards: Vec<&str> = texts.iter().rev().copied().collect();
    let turned: Vec<_> = embed_on(&backwards, 2, 0).into_iter().rev().collect();
    assert!(turned == together, "{class}, {precision}: another order");
    for (row, text) in texts.iter().enumerate().step_by(3) {
        for threads in [1, 2] {
            assert!(
                embed_on(&[text], threads, 0)[0] == together[row],
                "{class}, {precision}: row {row} alone on {threads}"
            );
        }
    }
}

/// Case C2.
#[test]
fn empty_and_unknown_texts_have_vectors() {
    let texts = ["", " ", "\u{200b}", "\u{fffd}", "ok"];
    let (rows, reports) = embed(minilm(), Place::Here, &texts, &EmbedOptions::default()).unwrap();
    for (row, report) in rows.iter().zip(&reports) {
        assert_eq!(report.status, Status::Ok);
        assert!((row.iter().map(|element| element * element).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let alone = embed(minilm(), Place::Here, &["ok"], &EmbedOptions::default()).unwrap().0;
    assert_eq!(bits(&alone)[0], bits(&rows)[4]);
    let (none, _) = embed(minilm(), Place::Here, &[] as &[&str], &EmbedOptions::default()).unwrap();
    assert!(none.is_empty());
}

/// Case C7: the limit is that of sentence-transformers, and what happened is reported.
#[test]
fn long_texts_are_cut_on_tokens() {
    assert_eq!(minilm().describe().token_limit, 256);
    let whole = "Hello world, ".repeat(3000);
    let texts = [&whole[..1100], &whole[..1200], &whole];
    let (rows, reports) = embed(minilm(), Place::Here, &texts, &EmbedOptions::default()).unwrap();
    assert_eq!((reports[0].tokens_kept, reports[0].truncated), (256, false));
    assert_eq!((reports[1].tokens_kept, reports[1].truncated), (256, true));
    assert!(reports[1].tokens_found > 256);
    assert_eq!((reports[2].tokens_found, reports[2].tokens_kept), (9002, 256));
    assert_eq!(bits(&rows)[1], bits(&rows)[2], "both are cut to the same tokens");
    let refuse = EmbedOptions { length: Length::Refuse, ..EmbedOptions::default() };
    let (rows, reports) = embed(minilm(), Place::Here, &texts, &refuse).unwrap();
    let statuses = reports.iter().map(|report| report.status).collect::<Vec<_>>();
    assert_eq!(statuses, [Status::Ok, Status::InvalidArgument, Status::InvalidArgument]);
    assert!(rows[1].iter().all(|element| element.is_nan()));
    assert!(!reports[1].truncated && reports[1].tokens_kept == 0);
}

/// Case C1: weights in half precision give finite rows at every length.
#[test]
fn half_precision_is_finite_at_every_length() {
    for name in ["bert-f16", "bert-bf16"] {
        let model = tiny(name);
        let limit = model.describe().token_limit;
        let mut texts: Vec<String> = (0..limit).map(|words| "trust ".repeat(words)).collect();
        texts.extend(["Ein Testsatz.", "trust", "What is Deep Learning?"].map(String::from));
        let (rows, reports) = embed(&model, Place::Here, &texts, &EmbedOptions::default()).unwrap();
        assert!(reports.iter().all(|report| report.status == Status::Ok), "{name}");
        assert!(rows.iter().flatten().all(|element| element.is_finite()), "{name}");
    }
}

/// Case C15 without the layer norm, which the conformance suite has: truncated vectors have length one again.
#[test]
fn matryoshka_vectors_are_normalized_again() {
    let options = |dimensions, normalize| EmbedOptions { dimensions, normalize, ..EmbedOptions::default() };
    let full = embed(minilm(), Place::Here, &["a cat"], &EmbedOptions::default()).unwrap().0;
    let cut = embed(minilm(), Place::Here, &["a cat"], &options(128, Normalize::Model)).unwrap().0;
    assert_eq!(cut[0].len(), 128);
    assert!((cut[0].iter().map(|element| element * element).sum::<f32>() - 1.0).abs() < 1e-6);
    assert!(cosine(&cut[0], &full[0][..128]) > 0.9999999);
    let raw = embed(minilm(), Place::Here, &["a cat"], &options(128, Normalize::No)).unwrap().0;
    assert!(cosine(&raw[0], &cut[0]) > 0.9999999 && largest_difference(&raw[0], &cut[0]) > 1e-3);
    let error = embed(minilm(), Place::Here, &["a cat"], &options(385, Normalize::Model)).unwrap_err();
    assert_eq!(error.status, Status::InvalidArgument);
    assert!(error.message.contains("384") && error.message.contains("385"), "{error}");
}

#[test]
fn wrong_calls_are_errors_with_facts() {
    let model = tiny("bert-tiny");
    let status = |options: EmbedOptions| embed(&model, Place::Here, &["a"], &options).unwrap_err().status;
    let options = EmbedOptions::default;
    assert_eq!(status(EmbedOptions { output_scale: f32::NAN, ..options() }), Status::InvalidArgument);
    assert_eq!(status(EmbedOptions { output_scale: -1.0, ..options() }), Status::InvalidArgument);
    assert_eq!(status(EmbedOptions { token_limit: 2, ..options() }), Status::InvalidArgument);
    assert_eq!(status(EmbedOptions { prompt: Prompt::Name("x"), ..options() }), Status::NotFound);
    let mut memory = [0f32; 12];
    let mut call = |texts: &[&[u8]], rows: usize, columns: usize, reports: Option<usize>| {
        let output = Output::dense(&mut memory[..rows * columns], rows, columns);
        let mut reports = reports.map(|count| vec![support::NOTHING_YET; count]);
        let result = on_calling_thread(None, |context| {
            model.embed_texts(context, texts, &options(), output, reports.as_deref_mut())
        });
        result.map_err(|error| error.status)
    };
    assert_eq!(call(&[b"a", b"b"], 2, 6, None), Ok(()));
    assert_eq!(call(&[b"a", b"b"], 1, 6, None), Err(Status::BufferTooSmall));
    assert_eq!(call(&[b"a"], 2, 6, None), Err(Status::InvalidArgument));
    assert_eq!(call(&[b"a"], 1, 5, None), Err(Status::BufferTooSmall));
    assert_eq!(call(&[b"a"], 1, 7, None), Err(Status::InvalidArgument));
    assert_eq!(call(&[b"a"], 1, 6, Some(2)), Err(Status::InvalidArgument));
    assert_eq!(call(&[b"\xff"], 1, 6, Some(1)), Ok(()));
    assert_eq!(call(&[b"\xff"], 1, 6, None), Err(Status::RowFailed));
    assert_eq!(call(&[], 0, 6, Some(0)), Ok(()));
}

#[test]
fn calls_stop_between_blocks() {
    let model = tiny("bert-tiny");
    let texts = ["One man and two women"; 64];
    let inputs: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    for threads in [1, 2] {
        let executor = Executor::for_ram(&[], None, threads, 0).unwrap();
        let calls = AtomicU64::new(0);
        let last = AtomicU64::new(0);
        let progress = |keep_going: u64, done: u64, all: u64| {
            assert!(done <= all && all == 64);
            last.store(done, Ordering::Relaxed);
            calls.fetch_add(1, Ordering::Relaxed) + 1 < keep_going
        };
        let run = |keep_going: u64| {
            let told = |done, all| progress(keep_going, done, all);
            let options = EmbedOptions { token_budget: 1, progress: Some(&told), ..EmbedOptions::default() };
            embed(&model, Place::On(&executor), &texts, &options).map(|_| ()).map_err(|error| error.status)
        };
        assert_eq!(run(u64::MAX), Ok(()));
        assert_eq!(last.load(Ordering::Relaxed), 64);
        calls.store(0, Ordering::Relaxed);
        assert_eq!(run(1), Err(Status::Cancelled));
        let cancel = Cancel::default();
        cancel.request();
        let mut values = vec![0f32; 64 * 6];
        let output = Output::dense(&mut values, 64, 6);
        let result = executor.run(|context| {
            let context = Context { cancel: &cancel, ..*context };
            model.embed_texts(&context, &inputs, &EmbedOptions::default(), output, None)
        });
        assert_eq!(result.unwrap_err().status, Status::Cancelled);
    }
}

#[test]
fn a_mapped_model_is_the_same() {
    let folder = minilm_folder();
    let options = LoadOptions { reading: Reading::Mapped, ..LoadOptions::default() };
    let mapped = Model::load_ram(Source::Path(&folder), &options, None).unwrap();
    let by_file = load(&folder.join("model.safetensors"));
    let embed = |model: &Model| {
        bits(&embed(model, Place::Here, &["a cat", "ein Hund"], &EmbedOptions::default()).unwrap().0)
    };
    assert_eq!(embed(&mapped), embed(minilm()));
    assert_eq!(embed(&by_file), embed(minilm()));
}

#[test]
fn a_model_describes_itself() {
    let facts = minilm().describe();
    assert_eq!((facts.architecture, facts.dimensions, facts.layers, facts.heads), ("bert", 384, 6, 12));
    assert_eq!((facts.vocabulary, facts.hidden, facts.special_tokens), (30522, 384, 2));
    assert_eq!((facts.layers, facts.intermediate), (6, 1536));
    assert_eq!((&facts.pooling[..], facts.normalizes, facts.file_dtype), (&["mean"][..], true, Dtype::F32));
    assert_eq!(tiny("bert-bf16").describe().file_dtype, Dtype::Bf16);
    // What the paper's model has without its pooling head.
    assert_eq!(facts.parameters, 22_713_216 - 384 * 385);
    assert!((90_000_000..92_000_000).contains(&facts.weight_bytes), "{}", facts.weight_bytes);
    let of = |file: &str, keys: &[&str]| keys.iter().map(|key| format!("{file}: {key}")).collect::<Vec<_>>();
    let expected = [
        of("modules.json", &["idx", "name"]),
        of(
            "config.json",
            &[
                "_name_or_path",
                "attention_probs_dropout_prob",
                "gradient_checkpointing",
                "hidden_dropout_prob",
                "initializer_range",
                "pad_token_id",
                "transformers_version",
                "use_cache",
            ],
        ),
        of("config_sentence_transformers.json", &["__version__"]),
        of(
            "tokenizer_config.json",
            &[
                "cls_token",
                "do_basic_tokenize",
                "mask_token",
                "model_max_length",
                "name_or_path",
                "never_split",
                "pad_token",
                "sep_token",
                "unk_token",
            ],
        ),
    ];
    assert_eq!(facts.unread, expected.concat());
    let prompts: Vec<&str> = facts.prompts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((prompts, facts.default_prompt.as_deref()), (vec!["document", "query"], None));
}

#[test]
fn loading_reports_progress_and_stops() {
    let folder = repository().join("tests/conformance/models/bert-mean");
    let (seen, last) = (AtomicU64::new(0), AtomicU64::new(0));
    // Bytes of the weights, which are all of the file but its header.
    let file = std::fs::read(folder.join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap());
    let bytes = file.len() as u64 - 8 - header;
    let count = |done: u64, all: u64| {
        assert!(done <= all && all == bytes && done >= last.swap(done, Ordering::Relaxed));
        seen.fetch_add(1, Ordering::Relaxed);
        true
    };
    let options = LoadOptions { progress: Some(&count), ..LoadOptions::default() };
    Model::load_ram(Source::Path(&folder), &options, None).unwrap();
    assert!(seen.load(Ordering::Relaxed) > 2);
    assert_eq!(last.load(Ordering::Relaxed), bytes);
    let options = LoadOptions { progress: Some(&|_, _| false), ..LoadOptions::default() };
    assert_eq!(Model::load_ram(Source::Path(&folder), &options, None).unwrap_err().status, Status::Cancelled);
}

#[test]
fn what_cannot_be_loaded_says_why() {
    let status = |path: &str, options: LoadOptions| {
        let error = Model::load_ram(Source::Path(Path::new(path)), &options, None).unwrap_err();
        assert!(!error.message.is_empty());
        error.status
    };
    assert_eq!(status("/no/such/model", LoadOptions::default()), Status::NotFound);
    assert_eq!(status("no-such-organization/no-such-model", LoadOptions::default()), Status::NotFound);
    assert_eq!(status(file!(), LoadOptions::default()), Status::NotFound);
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert_eq!(status(here, LoadOptions::default()), Status::InvalidArgument);
    assert_eq!(status(env!("CARGO_MANIFEST_DIR"), LoadOptions::default()), Status::NotFound);
    let folder = repository().join("tests/conformance/models/bert-mean");
    let folder = folder.to_str().unwrap();
    let foreign = if cfg!(target_arch = "x86_64") { CpuClass::AwsG2 } else { CpuClass::IntelHaswell };
    let options = LoadOptions { class: Some(foreign), ..LoadOptions::default() };
    assert_eq!(status(folder, options), Status::Unsupported);
    let options = LoadOptions { memory_domains: vec![12_345], ..LoadOptions::default() };
    assert_eq!(status(folder, options), Status::InvalidArgument);
}

#[test]
fn tokens_have_their_places_in_the_text() {
    let text = "Héllo  wörld, 日本";
    let query = EmbedOptions { prompt: Prompt::Text("query: "), ..EmbedOptions::default() };
    let tokens = minilm().tokenize(text.as_bytes(), &query).unwrap();
    let inside: Vec<&str> =
        tokens.iter().filter(|token| token.end > 0).map(|token| &text[token.begin..token.end]).collect();
    assert_eq!(inside, ["Héllo", "wörld", ",", "日", "本"]);
    assert_eq!(tokens.iter().filter(|token| token.special).count(), 2);
    assert_eq!(tokens.first().unwrap().id, 101);
    // A special token that the text spells is one, and has its place.
    let spelled = minilm().tokenize(b"a[SEP]b", &EmbedOptions::default()).unwrap();
    assert_eq!(spelled.iter().filter(|token| token.special).count(), 3);
    assert_eq!((spelled[2].begin, spelled[2].end), (1, 6));
    let long = "word ".repeat(1000);
    let cut = minilm().tokenize(long.as_bytes(), &EmbedOptions::default()).unwrap();
    assert_eq!((cut.len(), cut[254].end, cut[255].id), (256, 254 * 5 - 1, 102));
    let five = EmbedOptions { token_limit: 5, ..EmbedOptions::default() };
    assert_eq!(minilm().tokenize(long.as_bytes(), &five).unwrap().len(), 5);
    let status = |text: &[u8], length| {
        minilm().tokenize(text, &EmbedOptions { length, ..EmbedOptions::default() }).unwrap_err().status
    };
    assert_eq!(status(long.as_bytes(), Length::Refuse), Status::InvalidArgument);
    assert_eq!(status(b"\xff", Length::Truncate), Status::InvalidArgument);
}

/// Rows are tokenized and computed in windows; nothing of that shows but in the progress.
#[test]
fn windows_do_not_show() {
    let model = tiny("bert-tiny");
    let count = 2 * 4096 + 1;
    let mut texts: Vec<String> = (0..count).map(|row| format!("one {}", ["cat", "dog"][row % 2])).collect();
    texts[4096] = "one cat and the dog".to_owned();
    let executor = Executor::for_ram(&[], None, 2, 0).unwrap();
    let last = AtomicU64::new(0);
    let told = |done: u64, all: u64| {
        assert!(done >= last.swap(done, Ordering::Relaxed) && done <= all && all == count as u64);
        true
    };
    let options = EmbedOptions { progress: Some(&told), ..EmbedOptions::default() };
    let (rows, reports) = embed(&model, Place::On(&executor), &texts, &options).unwrap();
    assert_eq!(last.load(Ordering::Relaxed), count as u64);
    assert!(reports.iter().all(|report| report.status == Status::Ok));
    let rows = bits(&rows);
    for row in [0, 1, 4095, 4096, 4097, count - 1] {
        let alone = embed(&model, Place::Here, &texts[row..=row], &EmbedOptions::default()).unwrap().0;
        assert_eq!(bits(&alone)[0], rows[row], "row {row}");
    }
    assert!(rows.iter().enumerate().all(|(row, found)| row == 4096 || *found == rows[row % 2]));
    let mut bytes: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    bytes[5000] = b"\xff";
    let mut values = vec![0f32; count * 6];
    let output = Output::dense(&mut values, count, 6);
    let error = executor
        .run(|context| model.embed_texts(context, &bytes, &EmbedOptions::default(), output, None))
        .unwrap_err();
    assert!(error.status == Status::RowFailed && error.message.starts_with("row 5000: "), "{error}");
}

/// The files of a model of the suite, some of them replaced.
fn derived(name: &str, replaced: &[(&str, &str)]) -> uform_c::base::Result<Arc<Model>> {
    let folder = repository().join("tests/conformance/models").join(name);
    let names = [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
    ];
    let mut files: Vec<(&str, Vec<u8>)> =
        names.iter().filter_map(|name| Some((*name, std::fs::read(folder.join(name)).ok()?))).collect();
    files.retain(|(name, _)| replaced.iter().all(|(other, _)| other != name));
    files.extend(replaced.iter().map(|(name, text)| (*name, text.as_bytes().to_vec())));
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    Model::load_ram(Source::Files(&files), &LoadOptions::default(), None)
}

#[test]
fn default_dimensions_and_similarity_come_from_the_files() {
    let file = "config_sentence_transformers.json";
    let with = |text: &str| derived("bert-mean", &[(file, text)]).unwrap();
    let model = with(r#"{"truncate_dim": 8, "similarity_fn_name": "dot"}"#);
    let facts = model.describe();
    assert_eq!(
        (facts.dimensions, facts.default_dimensions, facts.similarity.as_deref()),
        (32, 8, Some("dot"))
    );
    let short = embed(&model, Place::Here, &["a cat"], &EmbedOptions::default()).unwrap().0;
    let whole = EmbedOptions { dimensions: 32, ..EmbedOptions::default() };
    let whole = embed(&model, Place::Here, &["a cat"], &whole).unwrap().0;
    assert_eq!((short[0].len(), whole[0].len()), (8, 32));
    assert!(cosine(&short[0], &whole[0][..8]) > 0.9999999);
    let other = with(r#"{"truncate_dim": 100, "similarity_fn_name": "maxsim"}"#);
    let facts = other.describe();
    assert_eq!((facts.default_dimensions, facts.similarity.as_deref()), (32, None));
    assert!(facts.unread.contains(&format!("{file}: similarity_fn_name")), "{:?}", facts.unread);
    assert!(derived("bert-mean", &[(file, r#"{"truncate_dim": 0}"#)]).is_err());
}

#[test]
fn plans_of_any_size_are_answered() {
    let model = tiny("bert-tiny");
    let plan = |threads, rows, token_budget| {
        let options = EmbedOptions { token_budget, ..EmbedOptions::default() };
        model.plan(threads, rows, 0, &options).map_err(|error| error.status)
    };
    assert_eq!(plan(usize::MAX, usize::MAX, usize::MAX), Err(Status::InvalidArgument));
    assert_eq!(plan(1, usize::MAX, 0), Err(Status::InvalidArgument));
    assert!(plan(1, 10, usize::MAX).unwrap() < 2 << 20);
    assert!(plan(0, 0, 0).is_ok() && plan(2, 1, 0).unwrap() > plan(1, 1, 0).unwrap());
    // Beyond a window of rows only the lists of texts and reports grow.
    let more = plan(1, 200_000, 0).unwrap() - plan(1, 100_000, 0).unwrap();
    assert!(more < 100_000 * 100, "{more}");
}

#[test]
fn errors_of_the_limit_name_file_and_key() {
    for (file, text, key) in [
        (
            "sentence_bert_config.json",
            r#"{"max_seq_length": 1}"#,
            "sentence_bert_config.json: max_seq_length: ",
        ),
        (
            "sentence_bert_config.json",
            r#"{"max_seq_length": 0}"#,
            "sentence_bert_config.json: max_seq_length: ",
        ),
    ] {
        let error = derived("bert-mean", &[(file, text)]).unwrap_err();
        assert_eq!(error.status, Status::CorruptData);
        assert!(error.message.starts_with(key), "{error}");
    }
}
