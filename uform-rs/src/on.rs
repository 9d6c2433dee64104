//! The receiver of the verbs that compute: a model on an executor.

use std::ptr;
use std::sync::Arc;

use crate::deferred::Deferred;
use crate::embeddings::{Embeddings, Report, raw_reports};
use crate::error::{Error, Result, call};
use crate::executor::Executor;
use crate::matrix::{MatrixViewMut, OwnedOutput, RawMatrix};
use crate::model::Model;
use crate::options::{EmbedOptions, Role, raw_text};
use crate::sys;

/// A model on an executor, made by [`Model::on`]: the verbs that compute. Each waits its turn on the executor, computes
/// on the calling thread and the executor's, and returns when it is done. The vector of a text depends on that text,
/// the options and the executor's class alone.
///
/// Thread safety: stays on one thread, as the executor that it borrows.
#[derive(Clone, Copy, Debug)]
pub struct On<'call> {
    model: &'call Model,
    /// `None` computes on the calling thread.
    executor: Option<&'call Executor>,
}

impl<'call> On<'call> {
    pub(crate) fn new(model: &'call Model, executor: Option<&'call Executor>) -> Self {
        Self { model, executor }
    }

    fn executor_handle(&self) -> *mut sys::uform_executor_t {
        self.executor.map_or(ptr::null_mut(), Executor::handle)
    }

    /// Embeds texts, one row each.
    ///
    /// ```
    /// # fn main() -> uform::Result<()> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/models/bert-mean");
    /// # let threads = uform::Executor::for_ram(&[], None, 1, 0)?;
    /// # let model = uform::Model::load_ram(directory, &threads, &Default::default())?;
    /// use uform::{Dtype, EmbedOptions};
    ///
    /// let options = EmbedOptions { dtype: Dtype::I8, reports: true, ..Default::default() };
    /// let vectors = model.on(&threads).embed_texts(&["a cat", ""], &options)?;
    /// assert_eq!(vectors.bytes().len(), 2 * vectors.dimensions());
    /// assert!(vectors.reports().iter().all(|report| !report.truncated));
    /// # Ok(())
    /// # }
    /// ```
    pub fn embed_texts(&self, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Result<Embeddings> {
        let dimensions = self.model.output_dimensions(options)?;
        let mut embeddings = Embeddings::zeros(texts.len(), dimensions, options.dtype)?;
        let mut reports = vec![Report::default(); if options.reports { texts.len() } else { 0 }];
        let matrix = embeddings.matrix();
        // SAFETY: the matrix is the new embeddings' own memory.
        unsafe { self.embed(&views(texts), options, matrix, options.reports.then_some(&mut reports))? };
        Ok(embeddings.with_reports(reports))
    }

    /// [`On::embed_texts`] with the role of queries. Options with another role are an error.
    pub fn embed_queries(&self, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Result<Embeddings> {
        self.embed_texts(texts, &options.clone().with_role(Role::Query, "embed_queries")?)
    }

    /// [`On::embed_texts`] with the role of documents. Options with another role are an error.
    pub fn embed_documents(&self, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Result<Embeddings> {
        self.embed_texts(texts, &options.clone().with_role(Role::Document, "embed_documents")?)
    }

    /// Embeds texts into memory of the caller, whose element type replaces that of the options. It has one row per
    /// text, and as many columns as the options keep dimensions. `reports`, where given, has one place per text, and
    /// asks for them as [`EmbedOptions::reports`] does. Unless the call succeeds, the output is unspecified.
    pub fn embed_texts_into(
        &self,
        texts: &[impl AsRef<str>],
        options: &EmbedOptions,
        output: MatrixViewMut<'_>,
        reports: Option<&mut [Report]>,
    ) -> Result<()> {
        // SAFETY: the view borrows its memory for writing until after the call.
        unsafe { self.embed(&views(texts), options, output.raw_matrix(), reports) }
    }

    /// As [`On::embed_texts_into`] for bindings: texts are bytes, a row that is not UTF-8 fails, and the output is
    /// anywhere.
    ///
    /// # Safety
    /// Until the function returns, the rows of `output` address memory that nothing else reads or writes.
    pub unsafe fn embed_texts_raw(
        &self,
        texts: &[&[u8]],
        options: &EmbedOptions,
        output: RawMatrix,
        reports: Option<&mut [Report]>,
    ) -> Result<()> {
        let texts: Vec<sys::uform_text_t> = texts.iter().map(|text| raw_text(text)).collect();
        // SAFETY: the caller's promise is ours.
        unsafe { self.embed(&texts, options, output, reports) }
    }

    /// # Safety
    /// The texts live, and the rows of `output` address memory that nothing else touches, until this returns.
    unsafe fn embed(
        &self,
        texts: &[sys::uform_text_t],
        options: &EmbedOptions,
        output: RawMatrix,
        reports: Option<&mut [Report]>,
    ) -> Result<()> {
        if let Some(reports) = &reports
            && reports.len() != texts.len()
        {
            return Err(Error::invalid(format!(
                "reports: expected one per text, {}, found {}",
                texts.len(),
                reports.len()
            )));
        }
        let mut raw = raw_reports(reports.as_ref().map_or(0, |reports| reports.len()));
        let raw_pointer = if reports.is_some() { raw.as_mut_ptr() } else { ptr::null_mut() };
        let (options, output) = (options.raw()?, output.raw());
        // SAFETY: model, texts, options and reports are live for the call, the output by the caller's promise; the
        // executor is used by this thread alone, as it is not `Sync`.
        call(|error| unsafe {
            sys::uform_embed_texts(
                self.model.handle(),
                self.executor_handle(),
                texts.as_ptr(),
                texts.len(),
                &options,
                &output,
                raw_pointer,
                error,
            )
        })?;
        for (report, raw) in reports.into_iter().flatten().zip(&raw) {
            *report = Report::from(raw);
        }
        Ok(())
    }

    /// The same verbs as deferred calls.
    pub fn deferred(&self) -> OnDeferred<'call> {
        OnDeferred { on: *self }
    }
}

fn views(texts: &[impl AsRef<str>]) -> Vec<sys::uform_text_t> {
    texts.iter().map(|text| raw_text(text.as_ref().as_bytes())).collect()
}

/// A model on an executor, made by [`On::deferred`]: every verb submits a call and returns before it is done. Calls of
/// one executor run in the order of submission; one too many fails with
/// [`Status::Contended`](crate::Status::Contended). On the null executor a call runs at once.
#[derive(Clone, Copy, Debug)]
pub struct OnDeferred<'call> {
    on: On<'call>,
}

/// Everything that a deferred call reads and writes, besides its output.
struct Inputs {
    /// Keeps the bytes alive that `views` addresses.
    _texts: Vec<Vec<u8>>,
    views: Vec<sys::uform_text_t>,
    /// Shared, not boxed, since the engine holds the address of the progress callback in it.
    options: Arc<EmbedOptions>,
    reports: Option<Vec<sys::uform_report_t>>,
}

// SAFETY: the views address bytes that the same value owns.
unsafe impl Send for Inputs {}

impl Inputs {
    fn reports(&self) -> Vec<Report> {
        self.reports.iter().flatten().map(Report::from).collect()
    }
}

impl OnDeferred<'_> {
    /// Submits what [`On::embed_texts`] does.
    ///
    /// ```
    /// # fn main() -> uform::Result<()> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/models/bert-mean");
    /// # let threads = uform::Executor::for_ram(&[], None, 1, 0)?;
    /// # let model = uform::Model::load_ram(directory, &threads, &Default::default())?;
    /// let texts = vec!["a cat".to_owned(), "a dog".to_owned()];
    /// let later = model.on(&threads).deferred().embed_texts(texts, Default::default())?;
    /// let vectors = later.wait()?; // or `later.await?`
    /// assert_eq!(vectors.rows(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn embed_texts(&self, texts: Vec<String>, options: EmbedOptions) -> Result<Deferred<Embeddings>> {
        let dimensions = self.on.model.output_dimensions(&options)?;
        let mut embeddings = Embeddings::zeros(texts.len(), dimensions, options.dtype)?;
        let matrix = embeddings.matrix();
        let want_reports = options.reports;
        // SAFETY: the matrix is the embeddings' own memory, and they are kept until the call has ended.
        unsafe {
            self.submit(into_bytes(texts), options, matrix, want_reports, move |inputs| {
                embeddings.with_reports(inputs.reports())
            })
        }
    }

    /// Submits what [`On::embed_queries`] does.
    pub fn embed_queries(&self, texts: Vec<String>, options: EmbedOptions) -> Result<Deferred<Embeddings>> {
        self.embed_texts(texts, options.with_role(Role::Query, "embed_queries")?)
    }

    /// Submits what [`On::embed_documents`] does.
    pub fn embed_documents(&self, texts: Vec<String>, options: EmbedOptions) -> Result<Deferred<Embeddings>> {
        self.embed_texts(texts, options.with_role(Role::Document, "embed_documents")?)
    }

    /// Submits what [`On::embed_texts_into`] does, without reports; the output moves in and comes back with the
    /// result. Unless the call succeeds, the output is lost.
    pub fn embed_texts_into<O: OwnedOutput>(
        &self,
        texts: Vec<String>,
        options: EmbedOptions,
        mut output: O,
    ) -> Result<Deferred<O>> {
        let matrix = output.matrix();
        // SAFETY: the output owns what its matrix describes, and it is kept until the call has ended.
        unsafe { self.submit(into_bytes(texts), options, matrix, false, move |_| output) }
    }

    /// As [`On::embed_texts_raw`] for bindings, deferred. The result holds reports if they were wanted.
    ///
    /// # Safety
    /// Until the deferred call has ended or was dropped, the rows of `output` address memory that nothing else reads
    /// or writes. Inside its own progress callback dropping it ends nothing.
    pub unsafe fn embed_texts_raw(
        &self,
        texts: Vec<Vec<u8>>,
        options: EmbedOptions,
        output: RawMatrix,
        want_reports: bool,
    ) -> Result<Deferred<Vec<Report>>> {
        // SAFETY: the caller's promise is ours.
        unsafe { self.submit(texts, options, output, want_reports, |inputs| inputs.reports()) }
    }

    /// # Safety
    /// Until the call has ended, or `finish` was dropped unused, the rows of `output` address memory that nothing else
    /// touches; `finish` may also be leaked.
    unsafe fn submit<T>(
        &self,
        texts: Vec<Vec<u8>>,
        options: EmbedOptions,
        output: RawMatrix,
        want_reports: bool,
        finish: impl FnOnce(Inputs) -> T + Send + 'static,
    ) -> Result<Deferred<T>> {
        let mut inputs = Inputs {
            views: texts.iter().map(|text| raw_text(text)).collect(),
            options: Arc::new(options),
            reports: want_reports.then(|| raw_reports(texts.len())),
            _texts: texts,
        };
        let reports = inputs.reports.as_mut().map_or(ptr::null_mut(), |reports| reports.as_mut_ptr());
        let (options, output) = (inputs.options.raw()?, output.raw());
        let mut handle = ptr::null_mut();
        // SAFETY: texts, options and reports lie in memory that `inputs` owns and that does not move with it; the
        // deferred call keeps `inputs`, as well as the output in `finish`, until the engine touches neither.
        call(|error| unsafe {
            sys::uform_embed_texts_deferred(
                self.on.model.handle(),
                self.on.executor_handle(),
                inputs.views.as_ptr(),
                inputs.views.len(),
                &options,
                &output,
                reports,
                &mut handle,
                error,
            )
        })?;
        // SAFETY: the handle is new and nobody else's.
        Ok(unsafe { Deferred::new(handle, move || finish(inputs)) })
    }
}

fn into_bytes(texts: Vec<String>) -> Vec<Vec<u8>> {
    texts.into_iter().map(String::into_bytes).collect()
}
