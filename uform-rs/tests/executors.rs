//! Executors: how they are made, what they say, and who may use them.

mod common;

use std::sync::{Arc, Mutex};
use std::thread;

use common::{executor, load, path};
use uform::{CPUClass, EmbedOptions, Executor, LoadOptions, Model, Mood, Residency, Status};

#[test]
fn an_executor_is_as_it_was_asked_for() {
    let serial = Executor::for_ram(&[], Some(CPUClass::Serial), 2, 5).unwrap();
    let description = serial.describe().unwrap();
    assert_eq!(description.residency, Residency::Ram);
    assert_eq!((description.cpu_class, description.gpu_class), (Some(CPUClass::Serial), None));
    assert_eq!((description.threads, description.deferred_limit), (2, 5));
    assert_eq!((description.deferred_waiting, description.mood), (0, Mood::Parked));
    assert!(format!("{serial:?}").contains("threads: 2"), "{serial:?}");
}

#[test]
fn zeros_are_defaults() {
    let description = Executor::for_ram(&[], None, 0, 0).unwrap().describe().unwrap();
    assert_eq!(description.cpu_class, uform::cpu_class_detected());
    assert_eq!(description.deferred_limit, 64);
    let cores = thread::available_parallelism().unwrap().get();
    assert!((1..=cores).contains(&description.threads), "{} threads on {cores} cores", description.threads);
}

#[test]
fn what_cannot_be_is_refused_with_the_facts() {
    let foreign = if cfg!(target_arch = "x86_64") { CPUClass::AppleM4 } else { CPUClass::IntelHaswell };
    let error = Executor::for_ram(&[], Some(foreign), 1, 0).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
    assert!(error.message().contains(&foreign.to_string()) && error.message().contains("serial"), "{error}");

    let error = Executor::for_ram(&[12_345], None, 1, 0).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("12345"), "{error}");

    // SAFETY: neither function looks at its pointers in this version.
    let (on_pool, for_vram) = unsafe {
        (
            Executor::on_pool(&[], None, std::ptr::null_mut(), 0),
            Executor::for_vram(&[], None, &[], None, &[], 0, 0),
        )
    };
    for refused in [on_pool, for_vram] {
        let error = refused.unwrap_err();
        assert_eq!(error.status(), Status::Unsupported);
        assert!(error.message().contains("for_ram"), "{error}");
    }
    let error =
        Model::load_vram(path("bert-mean"), &Executor::default(), &[], &LoadOptions::default()).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
}

#[test]
fn drain_sets_the_mood() {
    let threads = executor(2);
    for mood in [Mood::Spinning, Mood::Parked, Mood::Spinning] {
        threads.drain(mood).unwrap();
        assert_eq!(threads.describe().unwrap().mood, mood);
    }
}

#[test]
fn the_null_executor_is_the_calling_thread() {
    let nobody = Executor::default();
    nobody.drain(Mood::Spinning).unwrap();
    nobody.trim().unwrap();
    assert_eq!(nobody.describe().unwrap().threads, 1);
    let model = load("bert-mean");
    let options = EmbedOptions::default();
    let direct = model.embed_texts(&["a cat"], &options).unwrap();
    assert_eq!(model.on(&nobody).embed_texts(&["a cat"], &options).unwrap(), direct);
    let later = model.on(&nobody).deferred().embed_texts(vec!["a cat".into()], options).unwrap();
    assert!(later.is_done());
    assert_eq!(later.wait().unwrap(), direct);
}

#[test]
fn scratch_grows_and_is_trimmed() {
    let (threads, model) = (executor(2), load("bert-mean"));
    for _ in 0..2 {
        model.on(&threads).embed_texts(&common::long_texts(20), &EmbedOptions::default()).unwrap();
    }
    let grown = threads.describe().unwrap();
    assert!(grown.scratch_bytes > 0 && grown.scratch_high_water_bytes > 0, "{grown:?}");
    threads.trim().unwrap();
    assert_eq!(threads.describe().unwrap().scratch_bytes, 0);
    model.on(&threads).embed_texts(&["again"], &EmbedOptions::default()).unwrap();
}

#[test]
fn rows_do_not_depend_on_class_of_call_or_threads() {
    let (texts, options, model) = (common::long_texts(40), EmbedOptions::default(), load("bert-mean"));
    let class = uform::cpu_class_detected();
    let wanted = model.embed_texts(&texts, &options).unwrap();
    for threads in 1..=3 {
        let threads = Executor::for_ram(&[], class, threads, 0).unwrap();
        assert_eq!(model.on(&threads).embed_texts(&texts, &options).unwrap(), wanted);
        let later = model.on(&threads).deferred().embed_texts(texts.clone(), options.clone()).unwrap();
        assert_eq!(later.wait().unwrap(), wanted);
    }
}

#[test]
fn every_class_of_this_machine_computes_about_the_same() {
    let model = load("bert-mean");
    let embed = |class| {
        let threads = Executor::for_ram(&[], class, 1, 0).unwrap();
        model.on(&threads).embed_texts(&["the cat and the dog"], &EmbedOptions::default()).unwrap()
    };
    let wanted = embed(None);
    for class in uform::capabilities_available().split(',').filter_map(|name| name.parse::<CPUClass>().ok()) {
        let found = embed(Some(class));
        for (found, wanted) in found.as_f32().unwrap().iter().zip(wanted.as_f32().unwrap()) {
            assert!((found - wanted).abs() < 1e-5, "{class}: {found} and {wanted}");
        }
    }
}

#[test]
fn a_model_serves_many_threads_with_an_executor_each() {
    let model = load("bert-mean");
    let texts = common::long_texts(10);
    let wanted = model.embed_texts(&texts, &EmbedOptions::default()).unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            let (model, texts, wanted) = (model.clone(), &texts, &wanted);
            scope.spawn(move || {
                let threads = executor(1);
                for _ in 0..5 {
                    let found = model.on(&threads).embed_texts(texts, &EmbedOptions::default()).unwrap();
                    assert_eq!(&found, wanted);
                    assert_eq!(&model.embed_texts(texts, &EmbedOptions::default()).unwrap(), wanted);
                }
            });
        }
    });
}

#[test]
fn an_executor_moves_between_threads_and_serves_several_models() {
    let (first, second) = (load("bert-mean"), load("bert-cls"));
    let threads = executor(2);
    let threads = thread::spawn(move || {
        first.on(&threads).embed_texts(&["one"], &EmbedOptions::default()).unwrap();
        drop(first);
        threads
    });
    let threads = threads.join().unwrap();
    second.on(&threads).embed_texts(&["two"], &EmbedOptions::default()).unwrap();
}

#[test]
fn clones_outlive_the_model_they_come_from() {
    let model = load("bert-mean");
    let clone = model.clone();
    let wanted = model.describe().unwrap();
    drop(model);
    assert_eq!(clone.describe().unwrap(), wanted);
    clone.embed_texts(&["still here"], &EmbedOptions::default()).unwrap();
}

#[test]
fn warnings_go_to_the_callback() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    uform::set_log_callback(Some(Arc::new(move |message: &str| {
        sink.lock().unwrap().push(message.to_owned())
    })))
    .unwrap();
    uform::set_log_callback(None).unwrap();
    assert_eq!(Arc::strong_count(&heard), 1, "the callback of before is kept");
}

#[test]
fn the_version_is_that_of_the_crate() {
    assert_eq!(uform::version(), env!("CARGO_PKG_VERSION"));
    let (compiled, available) = (uform::capabilities_compiled(), uform::capabilities_available());
    assert!(compiled.starts_with("serial") && !compiled.contains(' '), "{compiled}");
    assert!(available.split(',').all(|name| compiled.split(',').any(|other| other == name)), "{available}");
}
