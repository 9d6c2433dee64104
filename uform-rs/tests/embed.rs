//! Models and the verbs that compute: options, outputs, arenas and the sentences of errors.

mod common;

use common::{executor, load, long_texts, path};
use uform::{
    Arena, Dtype, EmbedOptions, Error, Executor, Layout, Length, LoadOptions, MatrixViewMut, Model,
    Normalize, PackOptions, Precision, Prompt, RawMatrix, Reading, Report, Role, Status,
};

fn options() -> EmbedOptions {
    EmbedOptions::default()
}

/// Holds a failure against the status and the facts that its sentence must have.
fn fails<T: std::fmt::Debug>(outcome: uform::Result<T>, status: Status, facts: &[&str]) -> Error {
    let error = outcome.unwrap_err();
    assert_eq!(error.status(), status, "{error}");
    for fact in facts {
        assert!(error.message().contains(fact), "expected {fact:?} in {:?}", error.message());
    }
    assert_eq!(error.to_string(), error.message());
    error
}

#[test]
fn describe_says_what_the_model_is() {
    let description = load("bert-mean").describe().unwrap();
    assert_eq!((description.architecture.as_str(), description.pooling.as_str()), ("bert", "mean"));
    assert_eq!((description.dimensions, description.token_limit), (32, 48));
    assert_eq!((description.precision, description.file_dtype), (Precision::F32, Dtype::F32));
    assert!(description.normalized && description.layers > 0 && description.heads > 0);
    assert!(description.parameters > 0 && description.weight_bytes >= description.parameters);
    let prompts = load("bert-prompts").describe().unwrap().prompt_names;
    assert!(prompts.contains(&"query".to_owned()), "{prompts:?}");
}

#[test]
fn every_way_of_loading_gives_the_same_bits() {
    let wanted = load("bert-mean").embed_texts(&["a cat"], &options()).unwrap();
    let threads = executor(2);
    for reading in [Reading::Sequential, Reading::Mapped] {
        for path in [path("bert-mean"), path("bert-mean").join("model.safetensors")] {
            let load = LoadOptions { reading, precision: Precision::F32, ..Default::default() };
            let model = Model::load_ram(path, &threads, &load).unwrap();
            assert_eq!(model.embed_texts(&["a cat"], &options()).unwrap(), wanted);
        }
    }
}

#[test]
fn loading_errors_name_the_file() {
    let (nobody, load) = (Executor::default(), LoadOptions::default());
    fails(Model::load_ram("/no/such/model", &nobody, &load), Status::NotFound, &["/no/such/model"]);
    fails(Model::load_ram("", &nobody, &load), Status::InvalidArgument, &["path"]);
    let stray: (&str, &[u8]) = ("README.md", b"# A model");
    fails(Model::load_ram_from_bytes(&[stray], &nobody, &load), Status::NotFound, &["config.json"]);
    fails(Model::load_ram_from_bytes(&[], &nobody, &load), Status::InvalidArgument, &["none"]);
    let stop = LoadOptions {
        progress: Some(std::sync::Arc::new(|_, _| std::ops::ControlFlow::Break(()))),
        ..Default::default()
    };
    fails(Model::load_ram(path("bert-mean"), &nobody, &stop), Status::Cancelled, &[]);
}

#[test]
fn roles_and_prompts() {
    let model = load("bert-prompts");
    let embed = |role, prompt| {
        let options = EmbedOptions { role, prompt, ..Default::default() };
        model.embed_texts(&["a cat"], &options).unwrap()
    };
    let query = embed(Role::Query, Prompt::Model);
    assert_eq!(query, embed(Role::AsGiven, Prompt::Name("query".into())));
    assert_eq!(query, model.embed_queries(&["a cat"], &options()).unwrap());
    assert_eq!(embed(Role::Document, Prompt::Model), model.embed_documents(&["a cat"], &options()).unwrap());
    assert_eq!(
        embed(Role::Query, Prompt::Text(String::new())),
        embed(Role::AsGiven, Prompt::Text(String::new()))
    );
    assert_ne!(query, embed(Role::Query, Prompt::Text(String::new())));

    for (role, other) in [(Role::Query, Role::Document), (Role::Document, Role::Query)] {
        let with = |role| EmbedOptions { role, ..options() };
        let threads = Executor::for_ram(&[], None, 1, 0).unwrap();
        let verbs = |options: &EmbedOptions| match role {
            Role::Query => (
                model.embed_queries(&["a cat"], options),
                model.on(&threads).deferred().embed_queries(vec!["a cat".into()], options.clone()),
            ),
            _ => (
                model.embed_documents(&["a cat"], options),
                model.on(&threads).deferred().embed_documents(vec!["a cat".into()], options.clone()),
            ),
        };
        let (now, later) = verbs(&with(role));
        assert_eq!(
            (now.unwrap(), later.unwrap().wait().unwrap()),
            (embed(role, Prompt::Model), embed(role, Prompt::Model))
        );
        let (now, later) = verbs(&with(other));
        let facts = [role.name(), other.name(), "role: expected none or"];
        fails(now, Status::InvalidArgument, &facts);
        fails(later.map(|_| ()), Status::InvalidArgument, &facts);
    }

    let named = |name: &str| EmbedOptions { prompt: Prompt::Name(name.into()), ..Default::default() };
    fails(model.embed_texts(&["a"], &named("nobody")), Status::NotFound, &["nobody", "query"]);
    fails(model.embed_texts(&["a"], &named("")), Status::InvalidArgument, &["empty"]);
}

#[test]
fn dimensions_are_cut_and_normalized_again() {
    let model = load("bert-mean");
    let cut = model.embed_texts(&["a cat"], &EmbedOptions { dimensions: 8, ..options() }).unwrap();
    assert_eq!(cut.dimensions(), 8);
    let norm: f32 = cut.row(0).unwrap().iter().map(|value| value * value).sum();
    assert!((norm - 1.0).abs() < 1e-5, "{norm}");
    let raw = EmbedOptions { normalize: Normalize::No, ..options() };
    assert_ne!(
        model.embed_texts(&["a cat"], &raw).unwrap(),
        model.embed_texts(&["a cat"], &options()).unwrap()
    );
    for dimensions in [33, usize::MAX] {
        let asked = EmbedOptions { dimensions, ..options() };
        fails(model.embed_texts(&["a"], &asked), Status::InvalidArgument, &["32", &dimensions.to_string()]);
    }
}

#[test]
fn element_types_have_their_widths() {
    let model = load("bert-mean");
    let wanted = model.embed_texts(&["a cat", "a dog"], &options()).unwrap();
    for (dtype, bytes) in [
        (Dtype::F32, 128),
        (Dtype::F16, 64),
        (Dtype::Bf16, 64),
        (Dtype::I8, 32),
        (Dtype::U8, 32),
        (Dtype::B1, 4),
    ] {
        let found = model.embed_texts(&["a cat", "a dog"], &EmbedOptions { dtype, ..options() }).unwrap();
        assert_eq!((found.bytes().len(), found.dtype()), (2 * bytes, dtype));
        assert_eq!(found.row_bytes(1), Some(&found.bytes()[bytes..]));
        assert_eq!((found.row_bytes(2), found.as_f32().is_some()), (None, dtype == Dtype::F32));
        assert_eq!(found.into_f32().is_some(), dtype == Dtype::F32);
    }
    let signed = model.embed_texts(&["a cat"], &EmbedOptions { dtype: Dtype::I8, ..options() }).unwrap();
    for (byte, value) in signed.bytes().iter().zip(wanted.row(0).unwrap()) {
        assert_eq!(f32::from(*byte as i8), (value * 127.0).round_ties_even());
    }
}

#[test]
fn lengths_are_reported_or_refused() {
    let model = load("bert-mean");
    let texts = ["short".to_owned(), long_texts(1).remove(0)];
    let found = model.embed_texts(&texts, &EmbedOptions { reports: true, ..options() }).unwrap();
    let [short, long] = found.reports() else { panic!("{:?}", found.reports()) };
    assert_eq!((short.status, short.truncated, short.tokens_found), (Status::Ok, false, short.tokens_kept));
    assert!(long.truncated && long.tokens_kept == 48 && long.tokens_found > 48, "{long:?}");

    let refuse = EmbedOptions { length: Length::Refuse, ..options() };
    fails(model.embed_texts(&texts, &refuse), Status::RowFailed, &["row 1", "48"]);
    let found = model.embed_texts(&texts, &EmbedOptions { reports: true, ..refuse }).unwrap();
    assert_eq!(found.reports()[1].status, Status::InvalidArgument);
    assert!(found.row(1).unwrap().iter().all(|value| value.is_nan()));
    assert!(found.row(0).unwrap().iter().all(|value| value.is_finite()));
}

#[test]
fn no_text_is_no_row() {
    let found = load("bert-mean").on(&executor(2)).embed_texts(&[] as &[&str], &options()).unwrap();
    assert_eq!((found.rows(), found.dimensions(), found.bytes().len()), (0, 32, 0));
}

#[test]
fn tokens_are_spans_of_the_text() {
    let model = load("bert-mean");
    let tokens = model.tokenize("the cat", &options()).unwrap();
    assert!(tokens.first().unwrap().special && tokens.last().unwrap().special);
    let words: Vec<&str> =
        tokens[1..tokens.len() - 1].iter().map(|token| &"the cat"[token.begin..token.end]).collect();
    assert_eq!(words.concat(), "thecat");
}

#[test]
fn a_plan_is_kept() {
    let (model, threads) = (load("bert-mean"), executor(2));
    let planned = model.plan(&threads, 50, 0, &options()).unwrap();
    model.on(&threads).embed_texts(&long_texts(50), &options()).unwrap();
    let used = threads.describe().unwrap().scratch_high_water_bytes;
    assert!(0 < used && used <= planned, "{used} bytes used, {planned} planned");
    assert!(model.plan(&threads, 1, 4, &options()).unwrap() < planned);
}

#[test]
fn outputs_lie_where_the_caller_wants_them() {
    let (model, threads) = (load("bert-mean"), executor(2));
    let texts = ["a cat", "a dog", "a tree"];
    let wanted = model.embed_texts(&texts, &options()).unwrap();

    let mut numbers = vec![0.0; 3 * 32];
    let view = MatrixViewMut::from_f32(&mut numbers, 32).unwrap();
    let mut reports = [Report::default(); 3];
    model.on(&threads).embed_texts_into(&texts, &options(), view, Some(&mut reports)).unwrap();
    assert_eq!(Some(numbers.as_slice()), wanted.as_f32());
    assert!(reports.iter().all(|report| report.tokens_kept > 2));

    // Unaligned, with gaps, and without one after the last row.
    let mut bytes = vec![0xAA; 1 + 2 * 150 + 128];
    let view = MatrixViewMut::from_strided_bytes(&mut bytes[1..], 32, 150, Dtype::F32).unwrap();
    assert_eq!((view.rows(), view.row_stride()), (3, 150));
    model.on(&threads).embed_texts_into(&texts, &options(), view, None).unwrap();
    for row in 0..3 {
        assert_eq!(Some(&bytes[1 + row * 150..][..128]), wanted.row_bytes(row));
        assert!(bytes[1 + row * 150 + 128..].iter().take(22).all(|byte| *byte == 0xAA));
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let model = load("bert-mean");
    let mut numbers = vec![0.0; 3 * 32];
    let refused = |columns, texts: &[&str], numbers: &mut [f32]| {
        let view = MatrixViewMut::from_f32(numbers, columns).unwrap();
        model.embed_texts_into(texts, &options(), view, None).unwrap_err()
    };
    for (columns, texts) in [(32, ["a"; 2].as_slice()), (16, ["a"; 6].as_slice()), (48, ["a"; 2].as_slice())]
    {
        let error = refused(columns, texts, &mut numbers);
        assert!(matches!(error.status(), Status::InvalidArgument | Status::BufferTooSmall), "{error}");
        assert!(error.message().contains("expected"), "{error}");
    }
    let view = MatrixViewMut::from_f32(&mut numbers, 32).unwrap();
    let mut reports = [Report::default(); 2];
    let outcome = model.embed_texts_into(&["a"; 3], &options(), view, Some(&mut reports));
    fails(outcome, Status::InvalidArgument, &["3", "2"]);
    fails(MatrixViewMut::from_f32(&mut numbers, 7), Status::InvalidArgument, &["28", "384"]);
    fails(MatrixViewMut::from_f32(&mut numbers, 0), Status::InvalidArgument, &["columns"]);
    fails(
        MatrixViewMut::from_strided_bytes(&mut [0; 64], 9, 8, Dtype::I8),
        Status::InvalidArgument,
        &["9", "8"],
    );
    fails(
        MatrixViewMut::from_bytes(&mut [0; 8], usize::MAX, Dtype::F32),
        Status::InvalidArgument,
        &["columns"],
    );
}

#[test]
fn rows_that_are_not_utf8_fail_alone() {
    let model = load("bert-mean");
    let mut numbers = vec![0.0; 2 * 32];
    let matrix = RawMatrix {
        pointer: numbers.as_mut_ptr().cast(),
        rows: 2,
        columns: 32,
        row_stride: 0,
        dtype: Dtype::F32,
    };
    let (texts, threads): ([&[u8]; 2], _) = ([b"good", b"\xff\xfe"], executor(1));
    let mut reports = [Report::default(); 2];
    // SAFETY: the matrix is the vector's own memory, which lives until the calls have ended.
    let (whole, outcome) = unsafe {
        let on = model.on(&threads);
        (
            on.embed_texts_raw(&texts, &options(), matrix, None),
            on.embed_texts_raw(&texts, &options(), matrix, Some(&mut reports)),
        )
    };
    fails(whole, Status::RowFailed, &["row 1"]);
    outcome.unwrap();
    assert_eq!((reports[0].status, reports[1].status), (Status::Ok, Status::InvalidArgument));
    // SAFETY: as above.
    let later = unsafe {
        let texts = texts.iter().map(|text| text.to_vec()).collect();
        model.on(&threads).deferred().embed_texts_raw(texts, options(), matrix, true).unwrap()
    };
    assert_eq!(later.wait().unwrap(), reports);
}

#[test]
fn arenas_are_aligned_reused_and_outlive_their_executor() {
    let (model, threads) = (load("bert-mean"), executor(1));
    let mut arena = Arena::new_in(&threads).unwrap();
    let wanted = model.embed_texts(&["a cat", "a dog"], &options()).unwrap();
    let mut reserved = None;
    for _ in 0..3 {
        let mut first = arena.allocate(2, 32, Dtype::F32).unwrap();
        let mut second = arena.allocate(2, 32, Dtype::I8).unwrap();
        assert_eq!(first.row(1), Some([0.0; 32].as_slice()), "what was placed before shows through");
        assert!(first.row_stride().is_multiple_of(64) && second.row_stride().is_multiple_of(64));
        assert_eq!(first.row_bytes(0).unwrap().as_ptr() as usize % 64, 0);
        let texts = ["a cat", "a dog"];
        model.on(&threads).embed_texts_into(&texts, &options(), first.view_mut(), None).unwrap();
        model.on(&threads).embed_texts_into(&texts, &options(), second.view_mut(), None).unwrap();
        assert_eq!((first.row(0), first.row(1)), (wanted.row(0), wanted.row(1)));
        assert_eq!((first.row(2), second.row(0)), (None, None));

        let mut host = vec![0.0; 64];
        arena.copy_to_host(&first, MatrixViewMut::from_f32(&mut host, 32).unwrap()).unwrap();
        assert_eq!(Some(host.as_slice()), wanted.as_f32());
        let narrow = MatrixViewMut::from_f32(&mut host, 16).unwrap();
        fails(arena.copy_to_host(&first, narrow), Status::InvalidArgument, &["32", "16"]);

        let description = arena.describe().unwrap();
        assert!(description.used_bytes >= 2 * 128 + 2 * 32, "{description:?}");
        assert_eq!(*reserved.get_or_insert(description.reserved_bytes), description.reserved_bytes);
        arena.reset().unwrap();
        assert_eq!(arena.describe().unwrap().used_bytes, 0);
    }
    drop(threads);
    let matrix = arena.allocate(1, 32, Dtype::F32).unwrap();
    assert_eq!(matrix.rows(), 1);
    fails(arena.allocate(usize::MAX, 1 << 20, Dtype::F32), Status::OutOfMemory, &[]);
    assert_eq!(arena.allocate(usize::MAX, 0, Dtype::F32).unwrap().rows(), usize::MAX);
}

#[test]
fn a_model_may_give_fewer_dimensions_by_default() {
    let directory = path("bert-mean");
    let names = [
        "1_Pooling/config.json",
        "2_Normalize/config.json",
        "config.json",
        "model.safetensors",
        "modules.json",
    ];
    let tokenizer = ["sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json"];
    let mut files: Vec<(&str, Vec<u8>)> = names
        .into_iter()
        .chain(tokenizer)
        .map(|name| (name, std::fs::read(directory.join(name)).unwrap_or_default()))
        .collect();
    files.push(("config_sentence_transformers.json", br#"{"truncate_dim": 8}"#.to_vec()));
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    let model = Model::load_ram_from_bytes(&files, &Executor::default(), &LoadOptions::default()).unwrap();
    let description = model.describe().unwrap();
    assert_eq!((description.dimensions, description.default_dimensions), (32, 8));
    assert_eq!(model.embed_texts(&["a cat"], &options()).unwrap().dimensions(), 8);
    let all = EmbedOptions { dimensions: 32, ..options() };
    assert_eq!(model.embed_texts(&["a cat"], &all).unwrap().dimensions(), 32);
}

#[test]
fn a_real_model_knows_what_belongs_together() {
    let Some(path) = common::minilm() else {
        return eprintln!("skipped: all-MiniLM-L6-v2 is not in the cache; scripts/setup.sh gets it");
    };
    let threads = executor(2);
    let model = Model::load_ram(path, &threads, &LoadOptions::default()).unwrap();
    let texts = ["How do I bake bread?", "A recipe for a loaf", "Interest rates rose again"];
    let vectors = model.on(&threads).embed_texts(&texts, &options()).unwrap();
    let cosine = |one: usize, other: usize| -> f32 {
        let (one, other) = (vectors.row(one).unwrap(), vectors.row(other).unwrap());
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    };
    assert_eq!(vectors.dimensions(), 384);
    assert!(cosine(0, 1) > cosine(0, 2) + 0.2, "{} and {}", cosine(0, 1), cosine(0, 2));
}

#[test]
fn packed_models_load_from_paths_and_bytes() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("pack-{}.safetensors", std::process::id()));
    let (threads, load) = (executor(2), LoadOptions { precision: Precision::I8, ..Default::default() });
    let expected = Model::load_ram(path("bert-dense"), &threads, &load).unwrap();
    let expected = expected.embed_texts(&["a cat", "a dog"], &options()).unwrap();
    for layout in [Layout::Portable, Layout::X86] {
        let pack = PackOptions { precision: Precision::I8, layout };
        Model::pack(path("bert-dense"), &file, &pack).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        for load in [LoadOptions::default(), LoadOptions { reading: Reading::Mapped, ..Default::default() }] {
            for model in [
                Model::load_ram(&file, &threads, &load),
                Model::load_ram_from_bytes(&[("any.safetensors", &bytes)], &threads, &load),
            ] {
                let model = model.unwrap();
                assert_eq!(model.describe().unwrap().precision, Precision::I8);
                assert_eq!(
                    model.on(&threads).embed_texts(&["a cat", "a dog"], &options()).unwrap(),
                    expected
                );
            }
        }
        let other = LoadOptions { precision: Precision::F32, ..Default::default() };
        fails(Model::load_ram(&file, &threads, &other), Status::Unsupported, &["precision", "i8", "f32"]);
    }
    let pack = |to: &std::path::Path| Model::pack(path("bert-dense"), to, &PackOptions::default());
    fails(pack(&file.with_extension("bin")), Status::InvalidArgument, &["destination", ".safetensors"]);
    fails(pack(&file.join("a.safetensors")), Status::Io, &["a.safetensors"]);
    std::fs::remove_file(&file).unwrap();
}
