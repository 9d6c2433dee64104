//! Deferred calls: order, limits, cancelling, futures, and who owns what.

mod common;

use std::ops::ControlFlow;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{block_on, executor, load, long_texts};
use uform::{Arena, Deferred, Dtype, EmbedOptions, Embeddings, Executor, Progress, Status};

/// Options whose call stops inside its first progress callback until the sender is used or dropped, and a receiver that
/// hears of that.
fn gate() -> (EmbedOptions, Receiver<()>, Sender<()>) {
    let (started, hear) = channel();
    let (open, opened) = channel::<()>();
    let state = Mutex::new(Some((started, opened)));
    let progress: Progress = Arc::new(move |_, _| {
        if let Some((started, opened)) = state.lock().unwrap().take() {
            let _ = started.send(());
            let _ = opened.recv();
        }
        ControlFlow::Continue(())
    });
    (EmbedOptions { progress: Some(progress), token_budget: 64, ..Default::default() }, hear, open)
}

fn one() -> Vec<String> {
    vec!["a cat".into()]
}

#[test]
fn calls_end_in_the_order_of_submission() {
    let (threads, model) = (executor(2), load("bert-mean"));
    let (tell, hear) = channel();
    let calls: Vec<_> = (0..20)
        .map(|index| {
            let texts = long_texts(if index % 2 == 0 { 20 } else { 1 });
            let later = model.on(&threads).deferred().embed_texts(texts, EmbedOptions::default()).unwrap();
            let tell = tell.clone();
            later.on_done(move |status| tell.send((index, status)).unwrap()).unwrap();
            later
        })
        .collect();
    for later in calls {
        later.wait().unwrap();
    }
    drop(tell);
    let order: Vec<_> = hear.iter().collect();
    assert_eq!(order, (0..20).map(|index| (index, Status::Ok)).collect::<Vec<_>>());
}

#[test]
fn one_call_too_many_is_contended() {
    let threads = Executor::for_ram(&[], None, 1, 2).unwrap();
    let model = load("bert-mean");
    let (options, started, open) = gate();
    let first = model.on(&threads).deferred().embed_texts(long_texts(20), options).unwrap();
    started.recv().unwrap();
    let second = model.on(&threads).deferred().embed_texts(one(), EmbedOptions::default()).unwrap();
    assert_eq!(threads.describe().unwrap().deferred_waiting, 2);
    let error = model.on(&threads).deferred().embed_texts(one(), EmbedOptions::default()).unwrap_err();
    assert_eq!(error.status(), Status::Contended);
    assert!(error.message().contains('2'), "{error}");
    drop(open);
    first.wait().unwrap();
    second.wait().unwrap();
    model.on(&threads).deferred().embed_texts(one(), EmbedOptions::default()).unwrap().wait().unwrap();
}

#[test]
fn waiting_has_a_limit_and_the_result_comes_once() {
    let (threads, model) = (executor(1), load("bert-mean"));
    let (options, started, open) = gate();
    let mut later = model.on(&threads).deferred().embed_texts(long_texts(20), options).unwrap();
    started.recv().unwrap();
    assert!(!later.is_done());
    let before = Instant::now();
    assert!(later.wait_for(Duration::from_millis(30)).unwrap().is_none());
    assert!(before.elapsed() >= Duration::from_millis(30));
    assert!(later.wait_for(Duration::ZERO).unwrap().is_none());
    drop(open);
    let found = later.wait_for(Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!(found.rows(), 20);
    assert!(later.is_done());
    assert_eq!(later.wait_for(Duration::ZERO).unwrap_err().status(), Status::InvalidArgument);
    assert_eq!(later.wait().unwrap_err().status(), Status::InvalidArgument);
}

#[test]
fn a_running_call_is_cancelled_at_its_next_block() {
    let (threads, model) = (executor(1), load("bert-mean"));
    let (options, started, open) = gate();
    let later = model.on(&threads).deferred().embed_texts(long_texts(200), options).unwrap();
    started.recv().unwrap();
    later.cancel();
    drop(open);
    let error = later.wait().unwrap_err();
    assert_eq!(error.status(), Status::Cancelled);
    assert!(!error.message().is_empty());
    model.on(&threads).embed_texts(&one(), &EmbedOptions::default()).unwrap();
}

#[test]
fn a_waiting_call_is_cancelled_at_once() {
    let (threads, model) = (executor(1), load("bert-mean"));
    let (options, started, open) = gate();
    let first = model.on(&threads).deferred().embed_texts(long_texts(20), options).unwrap();
    started.recv().unwrap();
    let second = model.on(&threads).deferred().embed_texts(one(), EmbedOptions::default()).unwrap();
    second.cancel();
    assert_eq!(second.wait().unwrap_err().status(), Status::Cancelled);
    drop(open);
    first.wait().unwrap();
}

#[test]
fn cancelling_what_has_ended_changes_nothing() {
    let (threads, model) = (executor(1), load("bert-mean"));
    let later = model.on(&threads).deferred().embed_texts(one(), EmbedOptions::default()).unwrap();
    threads.drain(Default::default()).unwrap();
    later.cancel();
    assert!(later.is_done());
    later.wait().unwrap();
}

#[test]
fn dropping_cancels_and_waits() {
    let (threads, model) = (executor(1), load("bert-mean"));
    let (options, started, open) = gate();
    let first = model.on(&threads).deferred().embed_texts(long_texts(200), options).unwrap();
    started.recv().unwrap();
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(open);
    });
    let before = Instant::now();
    drop(first);
    assert!(before.elapsed() >= Duration::from_millis(40), "it did not wait for the running block");
    opener.join().unwrap();
    assert_eq!(threads.describe().unwrap().deferred_waiting, 0);
}

#[test]
fn dropped_inside_its_own_progress_it_leaks_what_the_call_still_uses() {
    let (threads, model) = (executor(2), load("bert-mean"));
    let own: Arc<Mutex<Option<Deferred<Embeddings>>>> = Arc::default();
    let (token, (tell, hear)) = (Arc::new(()), channel());
    let (slot, held) = (Arc::clone(&own), Arc::clone(&token));
    let dropped = AtomicBool::new(false);
    let progress: Progress = Arc::new(move |_, _| {
        let _ = &held;
        // It is put there right after it was submitted.
        while !dropped.load(Ordering::Relaxed) {
            if let Some(later) = slot.lock().unwrap().take() {
                drop(later);
                dropped.store(true, Ordering::Relaxed);
                tell.send(()).unwrap();
            }
            thread::yield_now();
        }
        ControlFlow::Continue(())
    });
    let options = EmbedOptions { progress: Some(progress), token_budget: 64, ..Default::default() };
    let later = model.on(&threads).deferred().embed_texts(long_texts(200), options).unwrap();
    *own.lock().unwrap() = Some(later);
    hear.recv().unwrap();
    drop(threads);
    assert_eq!(Arc::strong_count(&token), 2, "the call's callback was freed while it ran");
}

#[test]
fn dropping_the_executor_runs_what_was_submitted() {
    let (threads, model) = (executor(2), load("bert-mean"));
    let wanted = model.embed_texts(&long_texts(10), &EmbedOptions::default()).unwrap();
    let calls: Vec<_> = (0..5)
        .map(|_| model.on(&threads).deferred().embed_texts(long_texts(10), EmbedOptions::default()).unwrap())
        .collect();
    drop(model);
    drop(threads);
    for later in calls {
        assert!(later.is_done());
        assert_eq!(later.wait().unwrap(), wanted);
    }
}

#[test]
fn a_future_is_woken_by_the_executor() {
    let (threads, model) = (executor(1), load("bert-mean"));
    let (options, started, open) = gate();
    let later = model.on(&threads).deferred().embed_texts(long_texts(20), options).unwrap();
    started.recv().unwrap();
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        drop(open);
    });
    assert_eq!(block_on(later).unwrap().rows(), 20);
    opener.join().unwrap();

    let many: Vec<_> = (0..50)
        .map(|_| model.on(&threads).deferred().embed_texts(one(), EmbedOptions::default()).unwrap())
        .collect();
    block_on(async {
        for later in many {
            later.await.unwrap();
        }
    });
}

#[test]
fn a_future_moves_to_another_thread_and_keeps_its_error() {
    let (threads, model) = (executor(1), load("bert-mean"));
    let options = EmbedOptions { length: uform::Length::Refuse, ..Default::default() };
    let later = model.on(&threads).deferred().embed_texts(long_texts(3), options).unwrap();
    let error = thread::spawn(move || block_on(later)).join().unwrap().unwrap_err();
    assert_eq!(error.status(), Status::RowFailed);
    assert!(error.message().contains("row 0"), "{error}");
}

#[test]
fn a_progress_callback_stops_its_call_also_by_a_panic() {
    let (threads, model) = (executor(1), load("bert-mean"));
    let stop: Progress = Arc::new(|_, _| ControlFlow::Break(()));
    let quiet: Progress = Arc::new(|_, _| panic::resume_unwind(Box::new("no message on stderr")));
    for progress in [stop, quiet] {
        let options = EmbedOptions { progress: Some(progress), token_budget: 64, ..Default::default() };
        let error = model.on(&threads).embed_texts(&long_texts(50), &options).unwrap_err();
        assert_eq!(error.status(), Status::Cancelled);
        let later = model.on(&threads).deferred().embed_texts(long_texts(50), options).unwrap();
        assert_eq!(later.wait().unwrap_err().status(), Status::Cancelled);
    }
}

#[test]
fn progress_counts_rows() {
    let (threads, model) = (executor(2), load("bert-mean"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let progress: Progress = Arc::new(move |done, total| {
        sink.lock().unwrap().push((done, total));
        ControlFlow::Continue(())
    });
    let options = EmbedOptions { progress: Some(progress), token_budget: 64, ..Default::default() };
    model.on(&threads).embed_texts(&long_texts(50), &options).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 1 && seen.is_sorted(), "{seen:?}");
    assert_eq!(seen.last(), Some(&(50, 50)));
}

#[test]
fn callbacks_may_submit_the_next_call() {
    let (threads, model) = (executor(1), load("bert-mean"));
    let (tell, hear) = channel();
    let own = model.clone();
    let later = model.on(&threads).deferred().embed_texts(one(), EmbedOptions::default()).unwrap();
    later
        .on_done(move |status| {
            let vectors = own.embed_texts(&["from the callback"], &EmbedOptions::default());
            tell.send((status, vectors.map(|vectors| vectors.rows()))).unwrap();
        })
        .unwrap();
    assert_eq!(hear.recv_timeout(Duration::from_secs(60)).unwrap(), (Status::Ok, Ok(1)));
    later.wait().unwrap();
}

#[test]
fn outputs_move_in_and_come_back() {
    let (threads, model) = (executor(2), load("bert-mean"));
    let wanted = model.embed_texts(&long_texts(7), &EmbedOptions::default()).unwrap();
    let on = model.on(&threads).deferred();

    let room = Embeddings::zeros(7, wanted.dimensions(), Dtype::F32).unwrap();
    let found = on.embed_texts_into(long_texts(7), EmbedOptions::default(), room).unwrap().wait().unwrap();
    assert_eq!(found, wanted);

    let arena = Arena::new_in(&threads).unwrap();
    let output = arena.into_output(7, wanted.dimensions(), Dtype::F32).unwrap();
    let output = on.embed_texts_into(long_texts(7), EmbedOptions::default(), output).unwrap().wait().unwrap();
    for row in 0..7 {
        assert_eq!(output.row(row), wanted.row(row));
    }
    let mut arena = output.into_arena();
    arena.reset().unwrap();
    assert_eq!(arena.describe().unwrap().used_bytes, 0);

    let wrong = Embeddings::zeros(6, wanted.dimensions(), Dtype::F32).unwrap();
    let refused = on.embed_texts_into(long_texts(7), EmbedOptions::default(), wrong);
    let status = refused.and_then(|later| later.wait()).unwrap_err().status();
    assert!(matches!(status, Status::BufferTooSmall | Status::InvalidArgument), "{status}");
}

#[test]
fn many_threads_of_one_program_defer_at_once() {
    let model = load("bert-mean");
    thread::scope(|scope| {
        for _ in 0..4 {
            let model = &model;
            scope.spawn(move || {
                let threads = executor(1);
                let calls: Vec<_> = (0..16)
                    .map(|_| {
                        model.on(&threads).deferred().embed_texts(long_texts(2), Default::default()).unwrap()
                    })
                    .collect();
                calls.into_iter().enumerate().for_each(|(index, later)| match index % 3 {
                    0 => drop(later),
                    1 => assert_eq!(later.wait().unwrap().rows(), 2),
                    _ => assert_eq!(block_on(later).unwrap().rows(), 2),
                });
            });
        }
    });
}
