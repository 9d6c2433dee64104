//! Embedding texts, at once or by deferred calls.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{ArrayBuffer, Object, Uint8ArraySlice};
use napi_derive::napi;
use uform::{Deferred, EmbedOptions, Embeddings, RawMatrix, Report, Status};

use crate::arena::{CompiledMatrix, MatrixMemory};
use crate::environment::{self, Background};
use crate::errors::{Result, failed, failure, refused};
use crate::executor::{CompiledExecutor, borrow, on_executor};
use crate::model::CompiledModel;
use crate::options::EmbedSettings;
use crate::progress::{Notice, NoticeFunction, ProgressFunction, answered};
use crate::rows::RowReport;

impl CompiledModel {
    /// # Safety
    /// Until this returns, the rows of `output` address memory that nothing else touches.
    unsafe fn embed_raw(
        &self,
        executor: Option<&CompiledExecutor>,
        texts: &[String],
        options: EmbedOptions,
        output: RawMatrix,
        progress: Option<ProgressFunction<'_>>,
    ) -> Result<Option<Vec<RowReport>>> {
        let model = self.model()?;
        let cell = executor.map(CompiledExecutor::cell).transpose()?;
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let mut reports = options.reports.then(|| vec![Report::default(); texts.len()]);
        let reports_out = reports.as_deref_mut();
        answered(progress, |progress| {
            let options = EmbedOptions { progress, ..options };
            on_executor(cell.as_deref(), |executor| {
                // SAFETY: the caller's promise is ours.
                unsafe { model.on(executor).embed_texts_raw(&texts, &options, output, reports_out) }
            })
        })?;
        Ok(reports.map(|reports| reports.iter().map(RowReport::from).collect()))
    }
}

#[napi]
impl CompiledModel {
    /// Embeds into memory of the engine of JavaScript.
    #[napi]
    pub fn embed(
        &self,
        executor: Option<&CompiledExecutor>,
        texts: Vec<String>,
        settings: EmbedSettings,
        mut output: Uint8ArraySlice<'_>,
        progress: Option<ProgressFunction<'_>>,
    ) -> Result<Option<Vec<RowReport>>> {
        let options = settings.options()?;
        let columns = match options.dimensions {
            0 => self.model()?.describe().map_err(failed)?.default_dimensions,
            kept => kept,
        };
        let row_bytes = options.dtype.row_bytes(columns).unwrap_or(usize::MAX);
        if texts.len().checked_mul(row_bytes) != Some(output.len()) {
            let message = format!(
                "expected an output of {} rows of {row_bytes} bytes, found {} bytes",
                texts.len(),
                output.len()
            );
            return Err(failure(Status::InvalidArgument, message));
        }
        // SAFETY: only the address is taken.
        let pointer = unsafe { output.as_mut() }.as_mut_ptr();
        let output = RawMatrix { pointer, rows: texts.len(), columns, row_stride: 0, dtype: options.dtype };
        // SAFETY: the output has room for the rows. Nobody else reaches it: with a progress callback,
        // during which other JavaScript may run, the layer above gives memory that it has shown to nobody.
        unsafe { self.embed_raw(executor, &texts, options, output, progress) }
    }

    /// Embeds into a matrix of an arena.
    #[napi]
    pub fn embed_into_matrix(
        &self,
        executor: Option<&CompiledExecutor>,
        texts: Vec<String>,
        settings: EmbedSettings,
        output: &CompiledMatrix,
        progress: Option<ProgressFunction<'_>>,
    ) -> Result<Option<Vec<RowReport>>> {
        let memory = output.memory()?;
        // SAFETY: `memory` keeps the rows, which the arena gave to this matrix alone. Views of it are read by
        // JavaScript only, as documented there.
        unsafe { self.embed_raw(executor, &texts, settings.options()?, memory.raw, progress) }
    }

    /// Submits a call.
    #[napi]
    pub fn embed_deferred(
        &self,
        executor: &CompiledExecutor,
        texts: Vec<String>,
        settings: EmbedSettings,
        matrix: Option<&CompiledMatrix>,
        progress: bool,
        notice: NoticeFunction<'_>,
    ) -> Result<CompiledEmbedding> {
        let model = self.model()?;
        let cell = executor.cell()?;
        let notice = Notice::new(&notice).map_err(refused)?;
        let mut options = settings.options()?;
        if progress {
            let teller = notice.clone();
            options.progress = Some(Arc::new(move |done, total| {
                teller.progress(done, total);
                ControlFlow::Continue(())
            }));
        }
        let memory = matrix.map(CompiledMatrix::memory).transpose()?;
        let executor = borrow(&cell)?;
        let on = model.on(&executor).deferred();
        let pending = match memory {
            Some(memory) => {
                let want_reports = options.reports;
                let texts = texts.into_iter().map(String::into_bytes).collect();
                // SAFETY: `Pending` keeps the memory longer than the call. Views are read by JavaScript only.
                let call = unsafe { on.embed_texts_raw(texts, options, memory.raw, want_reports) };
                Pending::Matrix(call.map_err(failed)?, memory, want_reports)
            }
            None => Pending::Rows(on.embed_texts(texts, options).map_err(failed)?),
        };
        pending.on_done(move || notice.end())?;
        let embedding = Rc::new(Embedding(RefCell::new(Some(pending))));
        environment::cancel_at_end(&(Rc::clone(&embedding) as Rc<dyn Background>));
        Ok(CompiledEmbedding { embedding })
    }
}

/// A call that was submitted. Dropping one that has not ended cancels it and waits for the kernels; the memory of a
/// matrix goes after the call that writes into it.
enum Pending {
    Rows(Deferred<Embeddings>),
    Matrix(Deferred<Vec<Report>>, Arc<MatrixMemory>, bool),
}

impl Pending {
    fn on_done(&self, told: impl FnOnce() + Send + 'static) -> Result<()> {
        match self {
            Self::Rows(call) => call.on_done(|_| told()),
            Self::Matrix(call, ..) => call.on_done(|_| told()),
        }
        .map_err(failed)
    }
}

struct Embedding(RefCell<Option<Pending>>);

impl Background for Embedding {
    fn cancel(&self) {
        match &*self.0.borrow() {
            Some(Pending::Rows(call)) => call.cancel(),
            Some(Pending::Matrix(call, ..)) => call.cancel(),
            None => {}
        }
    }

    fn is_running(&self) -> bool {
        self.0.borrow().is_some()
    }
}

/// The handle of a deferred call.
#[napi]
pub struct CompiledEmbedding {
    embedding: Rc<Embedding>,
}

#[napi]
impl CompiledEmbedding {
    /// Asks the call to stop.
    #[napi]
    pub fn cancel(&self) {
        self.embedding.cancel();
    }

    /// What the call yields, once. Called after the notice of the end, it does not wait.
    #[napi]
    pub fn result<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        let pending = self.embedding.0.take();
        match pending.ok_or_else(|| failure(Status::InvalidArgument, "the result was taken before"))? {
            Pending::Rows(call) => {
                let embeddings = call.wait().map_err(failed)?;
                let mut result = rows(env, embeddings.rows(), embeddings.dimensions())?;
                let data = ArrayBuffer::copy_from(env, embeddings.bytes()).map_err(refused)?;
                result.set("data", data).map_err(refused)?;
                if !embeddings.reports().is_empty() {
                    set_reports(&mut result, embeddings.reports())?;
                }
                Ok(result)
            }
            Pending::Matrix(call, memory, want_reports) => {
                let reports = call.wait().map_err(failed)?;
                let mut result = rows(env, memory.raw.rows, memory.raw.columns)?;
                if want_reports {
                    set_reports(&mut result, &reports)?;
                }
                Ok(result)
            }
        }
    }
}

fn rows(env: &Env, rows: usize, dimensions: usize) -> Result<Object<'_>> {
    let mut result = Object::new(env).map_err(refused)?;
    result.set("rows", rows as f64).map_err(refused)?;
    result.set("dimensions", dimensions as f64).map_err(refused)?;
    Ok(result)
}

fn set_reports(result: &mut Object<'_>, reports: &[Report]) -> Result<()> {
    let reports: Vec<RowReport> = reports.iter().map(RowReport::from).collect();
    result.set("reports", reports).map_err(refused)
}
