//! What a forked child may use. Alone in its file, since a fork copies only the thread that makes it.
#![cfg(unix)]

mod common;

use uform::{EmbedOptions, Executor, Mood, Status};

/// Everything that the child finds wrong, as the code it ends with.
fn child(threads: &Executor, model: &uform::Model) -> i32 {
    let forked =
        |outcome: uform::Result<()>| outcome.err().map(|error| error.status()) == Some(Status::Forked);
    let options = EmbedOptions::default();
    if !forked(model.on(threads).embed_texts(&["a cat"], &options).map(drop)) {
        return 1;
    }
    if !forked(model.on(threads).deferred().embed_texts(vec!["a cat".into()], options.clone()).map(drop)) {
        return 2;
    }
    if !forked(threads.drain(Mood::Parked)) {
        return 3;
    }
    if model.embed_texts(&["a cat"], &options).is_err() {
        return 4;
    }
    let Ok(own) = Executor::for_ram(&[], None, 2, 0) else { return 5 };
    if model.on(&own).embed_texts(&["a cat"], &options).is_err() {
        return 6;
    }
    0
}

#[test]
fn an_inherited_executor_is_a_clear_error() {
    let (threads, model) = (common::executor(2), common::load("bert-mean"));
    let wanted = model.on(&threads).embed_texts(&["a cat"], &EmbedOptions::default()).unwrap();
    // SAFETY: the child allocates, which glibc, musl and macOS allow after a fork, makes threads and ends without
    // running destructors or handlers of the parent.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let code = child(&threads, &model);
        drop(threads);
        // SAFETY: ends this process; nothing of it is used any more.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was made above.
    assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
    assert!(libc::WIFEXITED(status), "the child was ended by a signal: status {status}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the check of that number failed in the child");
    assert_eq!(model.on(&threads).embed_texts(&["a cat"], &EmbedOptions::default()).unwrap(), wanted);
}
