//! Loading models, at once or in the background.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use napi::Env;
use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use uform::{Executor, LoadOptions, Model, Progress, Status};

use crate::environment::{self, Background};
use crate::errors::{Result, failed, failure, refused};
use crate::executor::{CompiledExecutor, ExecutorCell, Reservation, on_executor};
use crate::model::CompiledModel;
use crate::options::LoadSettings;
use crate::progress::{Notice, NoticeFunction, ProgressFunction, answered};

/// One file of a model.
#[napi(object, object_to_js = false)]
pub struct ModelFile {
    /// Its path inside the model's directory.
    pub name: String,
    /// Its bytes.
    pub data: Uint8Array,
}

type OwnedFiles = Vec<(String, Vec<u8>)>;

fn owned(files: Vec<ModelFile>) -> OwnedFiles {
    files.into_iter().map(|file| (file.name, file.data.to_vec())).collect()
}

fn from_bytes(files: &OwnedFiles, executor: &Executor, options: &LoadOptions) -> uform::Result<Model> {
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, data)| (name.as_str(), data.as_slice())).collect();
    Model::load_ram_from_bytes(&files, executor, options)
}

/// Loads while JavaScript waits.
fn load(
    env: &Env,
    executor: Option<&CompiledExecutor>,
    settings: LoadSettings,
    progress: Option<ProgressFunction<'_>>,
    work: impl FnOnce(&Executor, &LoadOptions) -> uform::Result<Model> + Send,
) -> Result<CompiledModel> {
    let cell = executor.map(CompiledExecutor::cell).transpose()?;
    let options = settings.options(None)?;
    let model = answered(progress, |progress| {
        let options = LoadOptions { progress, ..options };
        on_executor(cell.as_deref(), |executor| work(executor, &options))
    })?;
    CompiledModel::loaded(env, model)
}

/// Loads a model from its files.
#[napi]
pub fn load_ram(
    env: &Env,
    path: String,
    executor: Option<&CompiledExecutor>,
    settings: LoadSettings,
    progress: Option<ProgressFunction<'_>>,
) -> Result<CompiledModel> {
    load(env, executor, settings, progress, |executor, options| Model::load_ram(&path, executor, options))
}

/// Loads a model from the bytes of its files. Without a progress callback nothing but this call runs in JavaScript
/// meanwhile, so the bytes are read where they are.
#[napi]
pub fn load_ram_from_bytes(
    env: &Env,
    files: Vec<ModelFile>,
    executor: Option<&CompiledExecutor>,
    settings: LoadSettings,
    progress: Option<ProgressFunction<'_>>,
) -> Result<CompiledModel> {
    if progress.is_some() {
        let files = owned(files);
        return load(env, executor, settings, progress, |executor, options| {
            from_bytes(&files, executor, options)
        });
    }
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|file| (file.name.as_str(), file.data.as_ref())).collect();
    load(env, executor, settings, None, |executor, options| {
        Model::load_ram_from_bytes(&files, executor, options)
    })
}

/// Would load a model into the memory of GPUs.
#[napi]
pub fn load_vram(
    env: &Env,
    path: String,
    executor: Option<&CompiledExecutor>,
    devices: Vec<i32>,
    settings: LoadSettings,
    progress: Option<ProgressFunction<'_>>,
) -> Result<CompiledModel> {
    load(env, executor, settings, progress, |executor, options| {
        Model::load_vram(&path, executor, &devices, options)
    })
}

/// What a load in the background and the thread of JavaScript share.
struct Load {
    stopped: AtomicBool,
    result: Mutex<Option<Result<Model>>>,
}

/// The side of JavaScript.
struct RunningLoad(Arc<Load>);

impl Background for RunningLoad {
    fn cancel(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    fn is_running(&self) -> bool {
        self.0.result.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// A load in the background.
#[napi]
pub struct CompiledLoad {
    load: Rc<RunningLoad>,
    taken: RefCell<bool>,
}

#[napi]
impl CompiledLoad {
    /// Asks the load to stop.
    #[napi]
    pub fn cancel(&self) {
        self.load.cancel();
    }

    /// The model, once.
    #[napi]
    pub fn result(&self, env: &Env) -> Result<CompiledModel> {
        let result = self.load.0.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pending = if self.taken.replace(true) { Status::InvalidArgument } else { Status::Pending };
        let model = result.unwrap_or_else(|| Err(failure(pending, "the load has no result to give")))?;
        CompiledModel::loaded(env, model)
    }
}

impl Drop for CompiledLoad {
    fn drop(&mut self) {
        self.load.cancel();
    }
}

/// Loads on a thread of its own, on an executor when its turn comes.
fn load_deferred(
    cell: Option<ExecutorCell>,
    settings: LoadSettings,
    progress: bool,
    notice: &NoticeFunction<'_>,
    work: impl FnOnce(&Executor, &LoadOptions) -> uform::Result<Model> + Send + 'static,
) -> Result<CompiledLoad> {
    let notice = Notice::new(notice).map_err(refused)?;
    let load = Arc::new(Load { stopped: AtomicBool::new(false), result: Mutex::new(None) });
    let (watched, teller) = (Arc::clone(&load), progress.then(|| notice.clone()));
    let report: Progress = Arc::new(move |done, total| {
        if watched.stopped.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        if let Some(teller) = &teller {
            teller.progress(done, total);
        }
        ControlFlow::Continue(())
    });
    let options = settings.options(Some(report))?;
    let finished = Arc::clone(&load);
    let reservation = cell.map(Reservation::new);
    let run = move || {
        let result = match &reservation {
            Some(reservation) => work(&reservation.wait(), &options),
            None => work(&Executor::default(), &options),
        };
        *finished.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result.map_err(failed));
        // The executor is free again before JavaScript hears of the end.
        drop(reservation);
        notice.end();
    };
    std::thread::Builder::new()
        .name("uform-load".to_owned())
        .spawn(run)
        .map_err(|error| failure(Status::OutOfMemory, format!("no thread to load on: {error}")))?;
    let background = Rc::new(RunningLoad(load));
    environment::cancel_at_end(&(Rc::clone(&background) as Rc<dyn Background>));
    Ok(CompiledLoad { load: background, taken: RefCell::new(false) })
}

/// Loads a model from its files in the background.
#[napi]
pub fn load_ram_deferred(
    path: String,
    executor: Option<&CompiledExecutor>,
    settings: LoadSettings,
    progress: bool,
    notice: NoticeFunction<'_>,
) -> Result<CompiledLoad> {
    let cell = executor.map(CompiledExecutor::cell).transpose()?;
    load_deferred(cell, settings, progress, &notice, move |executor, options| {
        Model::load_ram(&path, executor, options)
    })
}

/// Loads a model from the bytes of its files in the background.
#[napi]
pub fn load_ram_from_bytes_deferred(
    files: Vec<ModelFile>,
    executor: Option<&CompiledExecutor>,
    settings: LoadSettings,
    progress: bool,
    notice: NoticeFunction<'_>,
) -> Result<CompiledLoad> {
    let cell = executor.map(CompiledExecutor::cell).transpose()?;
    let files = owned(files);
    load_deferred(cell, settings, progress, &notice, move |executor, options| {
        from_bytes(&files, executor, options)
    })
}
