//! Progress, which the engine reports on its own threads and JavaScript hears on its one.

use std::ops::ControlFlow;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use uform::{Progress, Status};

use crate::errors::{Result, failure};

/// The callback of a call that JavaScript waits for: whether to go on.
pub(crate) type ProgressFunction<'call> = Function<'call, FnArgs<(f64, f64)>, bool>;

/// What is told to JavaScript while a synchronous call computes, and where its answer goes.
struct Question {
    done: u64,
    total: u64,
    answer: Sender<bool>,
}

/// Runs `work`. With a callback it runs on another thread, so that this one, the only one that may enter JavaScript,
/// can answer the engine's reports, on whatever thread they come up.
pub(crate) fn answered<R: Send>(
    callback: Option<ProgressFunction<'_>>,
    work: impl FnOnce(Option<Progress>) -> Result<R> + Send,
) -> Result<R> {
    let Some(callback) = callback else {
        return work(None);
    };
    let (sender, questions) = channel::<Question>();
    let progress: Progress = Arc::new(move |done, total| {
        let (answer, answers) = channel();
        let asked = sender.send(Question { done, total, answer });
        match asked.is_ok() && answers.recv().unwrap_or(false) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("uform-progress".to_owned())
            .spawn_scoped(scope, move || work(Some(progress)))
            .map_err(|error| failure(Status::OutOfMemory, format!("no thread to compute on: {error}")))?;
        // Ends when the call has ended and dropped the last clone of `progress`, which owns the sender.
        for question in questions {
            let arguments = FnArgs::from((question.done as f64, question.total as f64));
            let go_on = callback.call(arguments).unwrap_or(false);
            // Nobody listens any more when the call ended meanwhile.
            let _ = question.answer.send(go_on);
        }
        worker.join().unwrap_or_else(|_| Err(failure(Status::Internal, "the computing thread panicked")))
    })
}

/// What a deferred call tells.
enum Event {
    /// That there are newer numbers than those told before.
    Progress,
    End,
}

/// The work done and all of it, as reported last and not told yet. A busy event loop hears of these alone, so that
/// reports never pile up.
type Latest = Arc<Mutex<Option<(u64, u64)>>>;

fn exchange(latest: &Latest, numbers: Option<(u64, u64)>) -> Option<(u64, u64)> {
    std::mem::replace(&mut *latest.lock().unwrap_or_else(PoisonError::into_inner), numbers)
}

/// The arguments of the notice: both numbers of a report, or, at the end, neither.
type NoticeArguments = FnArgs<(Option<f64>, Option<f64>)>;

/// The callback of a deferred call.
pub(crate) type NoticeFunction<'call> = Function<'call, NoticeArguments, ()>;

/// A notice that any thread gives. It keeps the event loop alive until it is dropped, and is without effect once the
/// environment is gone.
#[derive(Clone)]
pub(crate) struct Notice {
    function: Arc<ThreadsafeFunction<Event, (), NoticeArguments, napi::Status, false>>,
    latest: Latest,
}

impl Notice {
    /// Makes `callback` callable from any thread.
    pub(crate) fn new(callback: &NoticeFunction<'_>) -> napi::Result<Self> {
        let latest = Latest::default();
        let told = Arc::clone(&latest);
        let function = callback.build_threadsafe_function::<Event>().build_callback(move |context| {
            let numbers = match context.value {
                Event::Progress => exchange(&told, None),
                Event::End => None,
            };
            Ok(FnArgs::from((numbers.map(|(done, _)| done as f64), numbers.map(|(_, total)| total as f64))))
        })?;
        Ok(Self { function: Arc::new(function), latest })
    }

    /// Tells of work done.
    pub(crate) fn progress(&self, done: u64, total: u64) {
        // Numbers that were still there have their event in the queue, which will tell these instead.
        if exchange(&self.latest, Some((done, total))).is_none() {
            self.function.call(Event::Progress, ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// Tells of the end.
    pub(crate) fn end(&self) {
        self.function.call(Event::End, ThreadsafeFunctionCallMode::NonBlocking);
    }
}
