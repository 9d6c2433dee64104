//! Embedding texts, at once or by deferred calls, which have ended when they are submitted.

use std::cell::RefCell;
use std::rc::Rc;

use js_sys::{Function, Uint8Array};
use uform::{Deferred, EmbedOptions, Embeddings, Report, Status};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::arena::{CompiledMatrix, MatrixMemory};
use crate::errors::{Result, failed, failure};
use crate::executor::CompiledExecutor;
use crate::model::CompiledModel;
use crate::objects::{object, reports, set};
use crate::options::EmbedSettings;

/// Reports where they were wanted, else `null`.
fn reports_or_null(wanted: bool, found: &[Report]) -> JsValue {
    if wanted { reports(found) } else { JsValue::NULL }
}

#[wasm_bindgen]
impl CompiledModel {
    /// Embeds into memory of JavaScript, by way of this module's.
    pub fn embed(
        &self,
        executor: &CompiledExecutor,
        texts: Vec<String>,
        settings: &EmbedSettings,
        output: &Uint8Array,
        progress: Option<Function>,
    ) -> Result<JsValue> {
        let (model, executor) = (self.model()?, executor.executor()?);
        let options = settings.options(progress)?;
        let embeddings = model.on(&executor).embed_texts(&texts, &options).map_err(failed)?;
        let bytes = embeddings.bytes();
        if bytes.len() != output.length() as usize {
            let message = format!("expected an output of {} bytes, found {}", bytes.len(), output.length());
            return Err(failure(Status::InvalidArgument, &message));
        }
        output.copy_from(bytes);
        Ok(reports_or_null(options.reports, embeddings.reports()))
    }

    /// Embeds into a matrix of an arena.
    #[wasm_bindgen(js_name = embedIntoMatrix)]
    pub fn embed_into_matrix(
        &self,
        executor: &CompiledExecutor,
        texts: Vec<String>,
        settings: &EmbedSettings,
        output: &CompiledMatrix,
        progress: Option<Function>,
    ) -> Result<JsValue> {
        let (model, executor, memory) = (self.model()?, executor.executor()?, output.memory()?);
        let options = settings.options(progress)?;
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let mut found = vec![Report::default(); if options.reports { texts.len() } else { 0 }];
        let place = options.reports.then_some(&mut found[..]);
        // SAFETY: `memory` keeps the rows, which the arena gave to this matrix alone; a progress callback may copy
        // from them while no kernel runs, as there is one thread.
        unsafe { model.on(&executor).embed_texts_raw(&texts, &options, memory.raw, place) }
            .map_err(failed)?;
        Ok(reports_or_null(options.reports, &found))
    }

    /// Submits a call, which runs before this returns.
    pub fn submit(
        &self,
        executor: &CompiledExecutor,
        texts: Vec<String>,
        settings: &EmbedSettings,
        progress: Option<Function>,
    ) -> Result<CompiledEmbedding> {
        let (model, executor) = (self.model()?, executor.executor()?);
        let options = settings.options(progress)?;
        let call = model.on(&executor).deferred().embed_texts(texts, options).map_err(failed)?;
        Ok(CompiledEmbedding(RefCell::new(Some(Ended::Rows(call)))))
    }

    /// As `submit`, into a matrix of an arena.
    #[wasm_bindgen(js_name = submitIntoMatrix)]
    pub fn submit_into_matrix(
        &self,
        executor: &CompiledExecutor,
        texts: Vec<String>,
        settings: &EmbedSettings,
        output: &CompiledMatrix,
        progress: Option<Function>,
    ) -> Result<CompiledEmbedding> {
        let (model, executor, memory) = (self.model()?, executor.executor()?, output.memory()?);
        let options: EmbedOptions = settings.options(progress)?;
        let wanted = options.reports;
        let texts = texts.into_iter().map(String::into_bytes).collect();
        // SAFETY: `Ended` keeps the memory longer than the call; see `embed_into_matrix`.
        let call =
            unsafe { model.on(&executor).deferred().embed_texts_raw(texts, options, memory.raw, wanted) };
        let ended = Ended::Matrix(call.map_err(failed)?, memory, wanted);
        Ok(CompiledEmbedding(RefCell::new(Some(ended))))
    }
}

/// A call with what it yields.
enum Ended {
    Rows(Deferred<Embeddings>),
    Matrix(Deferred<Vec<Report>>, Rc<MatrixMemory>, bool),
}

/// The handle of a deferred call.
#[wasm_bindgen]
pub struct CompiledEmbedding(RefCell<Option<Ended>>);

#[wasm_bindgen]
impl CompiledEmbedding {
    /// What the call yields, once.
    pub fn result(&self) -> Result<JsValue> {
        let ended = self.0.take();
        match ended.ok_or_else(|| failure(Status::InvalidArgument, "the result was taken before"))? {
            Ended::Rows(call) => {
                let embeddings = call.wait().map_err(failed)?;
                let result = rows(embeddings.rows(), embeddings.dimensions());
                set(&result, "data", Uint8Array::from(embeddings.bytes()).buffer());
                if !embeddings.reports().is_empty() {
                    set(&result, "reports", reports(embeddings.reports()));
                }
                Ok(result)
            }
            Ended::Matrix(call, memory, wanted) => {
                let found = call.wait().map_err(failed)?;
                let result = rows(memory.raw.rows, memory.raw.columns);
                if wanted {
                    set(&result, "reports", reports(&found));
                }
                Ok(result)
            }
        }
    }
}

fn rows(rows: usize, dimensions: usize) -> JsValue {
    object([("rows", (rows as f64).into()), ("dimensions", (dimensions as f64).into())])
}
