//! Models: loading with progress, what they say about themselves, and the verbs that compute.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::call::{Call, Deferred, Kept, Rows, rows};
use crate::errors::{self, OrRaise};
use crate::executor::{Executor, Lent, NULL};
use crate::options::{Loading, Options, Packing, bytes};
use crate::output::Output;
use crate::progress::{Hook, Relay};
use crate::wait::{SLICE, Signal};

/// Up to that many bytes of text are computed on the thread that asks: handing a call over takes tens of microseconds,
/// and Ctrl-C can wait for so little.
const SHORT: usize = 2048;

/// A shared handle to the weights of a model.
#[pyclass(frozen, module = "uform._uform")]
pub(crate) struct Model {
    inner: uform::Model,
    /// The most that an output row has, and what it has when the options do not choose.
    dimensions: usize,
    default_dimensions: usize,
}

type Texts<'py> = Vec<Bound<'py, PyString>>;

impl Model {
    fn of(py: Python<'_>, inner: uform::Model) -> PyResult<Self> {
        let about = inner.describe().or_raise(py)?;
        Ok(Self { inner, dimensions: about.dimensions, default_dimensions: about.default_dimensions })
    }

    /// Loads on a thread of its own, while this one looks for signals and tells the progress.
    fn load(
        py: Python<'_>,
        executor: Option<&Bound<'_, Executor>>,
        progress: Option<&Bound<'_, PyAny>>,
        load: impl FnOnce(&uform::Executor, uform::Progress) -> uform::Result<uform::Model> + Send,
    ) -> PyResult<Self> {
        executor.map_or(Ok(()), |executor| executor.get().check_turn(py))?;
        let lent = executor.map_or_else(|| Ok(Lent::null()), |executor| executor.get().lend(py))?;
        let relay = Arc::new(Relay::default());
        let ended = Signal::default();
        let result = std::thread::scope(|scope| {
            let (ended, report) = (&ended, relay.to_engine());
            let worker =
                std::thread::Builder::new().name("uform-load".into()).spawn_scoped(scope, move || {
                    let result = load(&lent, report);
                    drop(lent);
                    ended.set();
                    result
                })?;
            relay.attend(py, progress, |time| ended.wait(time), || relay.stop())?;
            Ok::<_, PyErr>(worker.join())
        })?;
        match result {
            Ok(loaded) => {
                let loaded = Self::of(py, loaded.or_raise(py)?)?;
                relay.complete(py, progress)?;
                Ok(loaded)
            }
            Err(_) => Err(errors::exception(py, uform::Status::Internal, "loading panicked")),
        }
    }

    fn prepare(
        &self,
        py: Python<'_>,
        rows: usize,
        options: &Options,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Output> {
        // More dimensions than there are is the engine's to refuse.
        let dimensions = match options.dimensions {
            0 => self.default_dimensions,
            wanted => wanted.min(self.dimensions),
        };
        Output::prepare(py, out, rows, dimensions, options.dtype.and_then(uform::Dtype::from_number))
    }

    /// Computes on this thread, and on the executor's others. With reports there is one per text.
    fn compute_here(
        &self,
        py: Python<'_>,
        lent: Lent,
        texts: &[Cow<'_, [u8]>],
        options: uform::EmbedOptions,
        target: uform::RawMatrix,
    ) -> PyResult<Vec<uform::Report>> {
        let texts: Vec<&[u8]> = texts.iter().map(AsRef::as_ref).collect();
        let mut reports =
            if options.reports { vec![uform::Report::default(); texts.len()] } else { Vec::new() };
        let wanted = options.reports.then_some(&mut reports[..]);
        py.detach(move || {
            // SAFETY: the output that the target stems from lives in the caller's frame.
            let result = unsafe { self.inner.on(&lent).embed_texts_raw(&texts, &options, target, wanted) };
            drop(lent);
            result
        })
        .or_raise(py)?;
        Ok(reports)
    }

    /// Submits the call and waits for it, so that Ctrl-C ends it and its progress is told on this thread.
    fn compute_there(
        &self,
        py: Python<'_>,
        executor: &Executor,
        texts: &[Cow<'_, [u8]>],
        mut options: uform::EmbedOptions,
        target: uform::RawMatrix,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<uform::Report>> {
        let relay = Arc::new(Relay::default());
        options.progress = progress.map(|_| relay.to_engine());
        let call = loop {
            let lent = executor.lend(py)?;
            let found = lent.describe().or_raise(py)?;
            if found.deferred_waiting < found.deferred_limit {
                // The output lives in the caller's frame, and so longer than the call.
                break self.submit(py, lent, texts, options, target, None)?;
            }
            drop(lent);
            py.detach(|| std::thread::sleep(SLICE / 20));
            py.check_signals()?;
        };
        let ended = relay.attend(py, progress, |time| call.wait(time), || call.cancel());
        // Waits for a call that has not ended, and its callbacks need the interpreter.
        let result = py.detach(move || call.result());
        ended?;
        result.or_raise(py)
    }

    fn submit(
        &self,
        py: Python<'_>,
        lent: Lent,
        texts: &[Cow<'_, [u8]>],
        options: uform::EmbedOptions,
        target: uform::RawMatrix,
        kept: Option<Kept>,
    ) -> PyResult<Call> {
        py.detach(move || {
            let texts = texts.iter().map(|text| text.to_vec()).collect();
            // SAFETY: the output is kept until the call has ended.
            unsafe { Call::submit(&self.inner, &lent, texts, options, target, kept) }
        })
        .or_raise(py)
    }
}

#[pymethods]
impl Model {
    #[staticmethod]
    fn load_ram(
        py: Python<'_>,
        path: PathBuf,
        executor: Option<&Bound<'_, Executor>>,
        options: Loading,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Self::load(py, executor, progress, move |executor, progress| {
            let options = uform::LoadOptions { progress: Some(progress), ..options.to_engine() };
            uform::Model::load_ram(path, executor, &options)
        })
    }

    #[staticmethod]
    fn load_ram_from_bytes(
        py: Python<'_>,
        files: Vec<(String, PyBuffer<u8>)>,
        executor: Option<&Bound<'_, Executor>>,
        options: Loading,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut named = Vec::with_capacity(files.len());
        for (name, buffer) in &files {
            if !buffer.is_c_contiguous() {
                return Err(errors::invalid(py, &format!("files[{name:?}]: expected bytes without gaps")));
            }
            let (start, length) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
            // SAFETY: the buffer is contiguous and held until the end of this function. That nobody writes to it
            // meanwhile is the caller's duty, as for every buffer.
            let bytes = if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, length) } };
            named.push((name.as_str(), bytes));
        }
        let loaded = Self::load(py, executor, progress, |executor, progress| {
            let options = uform::LoadOptions { progress: Some(progress), ..options.to_engine() };
            uform::Model::load_ram_from_bytes(&named, executor, &options)
        });
        drop(named);
        loaded
    }

    #[staticmethod]
    fn load_vram(
        py: Python<'_>,
        path: PathBuf,
        executor: &Bound<'_, Executor>,
        devices: Vec<i32>,
        options: Loading,
    ) -> PyResult<Self> {
        Self::load(py, Some(executor), None, move |executor, _| {
            uform::Model::load_vram(path, executor, &devices, &options.to_engine())
        })
    }

    #[staticmethod]
    fn pack(py: Python<'_>, path: PathBuf, destination: PathBuf, options: Packing) -> PyResult<()> {
        py.detach(|| uform::Model::pack(path, destination, &options.to_engine())).or_raise(py)
    }

    fn clone(&self) -> Self {
        let Self { inner, dimensions, default_dimensions } = self;
        Self { inner: inner.clone(), dimensions: *dimensions, default_dimensions: *default_dimensions }
    }

    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.inner.describe().or_raise(py)?;
        let fields = PyDict::new(py);
        fields.set_item("residency", found.residency.number())?;
        fields.set_item("precision", found.precision.number())?;
        fields.set_item("file_dtype", found.file_dtype.number())?;
        fields.set_item("normalized", found.normalized)?;
        fields.set_item("dimensions", found.dimensions)?;
        fields.set_item("default_dimensions", found.default_dimensions)?;
        fields.set_item("token_limit", found.token_limit)?;
        fields.set_item("layers", found.layers)?;
        fields.set_item("heads", found.heads)?;
        fields.set_item("hidden", found.hidden)?;
        fields.set_item("intermediate", found.intermediate)?;
        fields.set_item("vocabulary", found.vocabulary)?;
        fields.set_item("parameters", found.parameters)?;
        fields.set_item("weight_bytes", found.weight_bytes)?;
        fields.set_item("architecture", found.architecture)?;
        fields.set_item("pooling", found.pooling)?;
        fields.set_item("similarity", found.similarity.unwrap_or_default())?;
        fields.set_item("prompt_names", found.prompt_names)?;
        fields.set_item("default_prompt_name", found.default_prompt_name.unwrap_or_default())?;
        fields.set_item("unread_keys", found.unread_keys)?;
        Ok(fields)
    }

    /// Number, special or not, first byte and byte after the last of each token.
    fn tokenize(
        &self,
        py: Python<'_>,
        text: Bound<'_, PyString>,
        options: Options,
    ) -> PyResult<Vec<(u32, bool, u64, u64)>> {
        let text = text.to_str()?;
        let tokens = py.detach(|| self.inner.tokenize(text, &options.to_engine())).or_raise(py)?;
        let row = |token: uform::Token| (token.id, token.special, token.begin as u64, token.end as u64);
        Ok(tokens.into_iter().map(row).collect())
    }

    fn plan(
        &self,
        py: Python<'_>,
        executor: Option<&Bound<'_, Executor>>,
        rows: usize,
        tokens: usize,
        options: Options,
    ) -> PyResult<u64> {
        let lent = executor.map_or_else(|| Ok(Lent::null()), |executor| executor.get().lend(py))?;
        self.inner.plan(&lent, rows, tokens, &options.to_engine()).or_raise(py)
    }

    /// Embeds and gives the output and, if asked, the reports.
    fn embed(
        &self,
        py: Python<'_>,
        executor: Option<&Bound<'_, Executor>>,
        texts: Texts<'_>,
        options: Options,
        progress: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Py<PyAny>, Option<Rows>)> {
        let texts = bytes(py, &texts)?;
        let output = self.prepare(py, texts.len(), &options, out)?;
        let (target, mut wishes) = (output.target(), options.to_engine());
        let reports = match executor.map(Bound::get).filter(|executor| !executor.is_null()) {
            None => {
                let hook = Hook::new(progress, NULL);
                wishes.progress = Some(hook.to_engine());
                let result = self.compute_here(py, Lent::null(), &texts, wishes, target);
                result.map_err(|error| hook.failure(py).unwrap_or(error))?
            }
            Some(executor) => {
                executor.check_turn(py)?;
                let short = progress.is_none() && texts.iter().map(|text| text.len()).sum::<usize>() <= SHORT;
                let lent = if short { executor.lend_if_idle(py)? } else { None };
                match lent {
                    Some(lent) => self.compute_here(py, lent, &texts, wishes, target)?,
                    None => self.compute_there(py, executor, &texts, wishes, target, progress)?,
                }
            }
        };
        Ok((output.object.clone_ref(py), options.reports.then(|| rows(&reports))))
    }

    /// Submits what `embed` does.
    fn defer(
        &self,
        py: Python<'_>,
        executor: Option<&Bound<'_, Executor>>,
        texts: Texts<'_>,
        options: Options,
        progress: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Deferred> {
        let texts = bytes(py, &texts)?;
        let output = self.prepare(py, texts.len(), &options, out)?;
        let mut wishes = options.to_engine();
        let lent = executor.map_or_else(|| Ok(Lent::null()), |executor| executor.get().lend(py))?;
        let hook = Hook::new(progress, lent.number());
        wishes.progress = progress.map(|_| hook.to_engine());
        let (target, object) = (output.target(), output.object.clone_ref(py));
        let kept = Kept { _output: output, hook: hook.clone() };
        let call = self.submit(py, lent, &texts, wishes, target, Some(kept))?;
        Ok(Deferred::new(call, object, hook, options.reports))
    }
}
