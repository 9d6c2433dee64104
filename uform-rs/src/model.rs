//! Models: weights, tokenizer and configuration.

use std::fmt;
use std::path::Path;
use std::ptr;

use crate::classes::{Dtype, Residency};
use crate::embeddings::{Embeddings, Report, Token};
use crate::error::{Error, Result, Status, call};
use crate::executor::Executor;
use crate::matrix::MatrixViewMut;
use crate::on::On;
use crate::options::{EmbedOptions, LoadOptions, PackOptions, Precision, raw_text};
use crate::sys;

/// The weights, tokenizer and configuration of a model. It never changes once loaded; clones share the weights.
///
/// The verbs that compute are those of [`On`], got by [`Model::on`]. Called on the model itself they compute on the
/// calling thread.
///
/// Thread safety: `Send` and `Sync`; any number of threads at once.
///
/// ```
/// # fn main() -> uform::Result<()> {
/// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/models/bert-mean");
/// use uform::{EmbedOptions, Executor, LoadOptions, Model};
///
/// let threads = Executor::for_ram(&[], None, 2, 0)?;
/// let model = Model::load_ram(directory, &threads, &LoadOptions::default())?;
/// let vectors = model.on(&threads).embed_texts(&["a cat", "a dog"], &EmbedOptions::default())?;
/// assert_eq!(vectors.rows(), 2);
/// # Ok(())
/// # }
/// ```
pub struct Model {
    handle: *mut sys::uform_model_t,
    /// The most that an output row has.
    dimensions: usize,
    /// What it has when the options do not choose.
    default_dimensions: usize,
    token_limit: usize,
}

// SAFETY: the C interface lets any number of threads use a model, and its handle be ended by any of them.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    /// Loads a model into host memory. `path` names a directory in the layout of sentence-transformers or Hugging
    /// Face, a `model.safetensors` inside one, a file made by [`Model::pack`], or, where no such file exists, a model in the
    /// local Hugging Face cache; nothing is ever downloaded. `executor` lends its threads for loading and is not kept.
    ///
    /// [`Status::NotFound`] or [`Status::Io`] for files, [`Status::CorruptData`] for their format,
    /// [`Status::Unsupported`] for an architecture, a module or a value of a key that this version does not know: the
    /// sentence names file and key.
    pub fn load_ram(path: impl AsRef<Path>, executor: &Executor, options: &LoadOptions) -> Result<Self> {
        let path = path_bytes(path.as_ref())?;
        let options = options.raw();
        Self::give(|handle, error| {
            // SAFETY: path, options, place for the handle, and record are live for the call; the executor is used by
            // this thread alone, as it is not `Sync`.
            unsafe {
                sys::uform_model_load_ram(
                    path.as_ptr().cast(),
                    path.len(),
                    executor.handle(),
                    &options,
                    handle,
                    error,
                )
            }
        })
    }

    /// Loads a model into host memory from the files of its directory: pairs of a path inside it, with forward
    /// slashes, and the file's bytes, which are copied as far as needed; or from one file made by [`Model::pack`], under any
    /// name. Otherwise as [`Model::load_ram`].
    pub fn load_ram_from_bytes(
        files: &[(&str, &[u8])],
        executor: &Executor,
        options: &LoadOptions,
    ) -> Result<Self> {
        let files: Vec<sys::uform_file_t> = files
            .iter()
            .map(|(name, bytes)| sys::uform_file_t {
                name: raw_text(name.as_bytes()),
                data: bytes.as_ptr(),
                length: bytes.len(),
            })
            .collect();
        let options = options.raw();
        Self::give(|handle, error| {
            // SAFETY: as for `load_ram`; names and bytes are borrowed from the arguments.
            unsafe {
                sys::uform_model_load_ram_from_bytes(
                    files.as_ptr(),
                    files.len(),
                    executor.handle(),
                    &options,
                    handle,
                    error,
                )
            }
        })
    }

    /// Would load a model into the memory of the GPUs at these positions of what [`gpu_devices`](crate::gpu_devices)
    /// lists. Answers [`Status::Unsupported`]: this version computes in RAM only.
    pub fn load_vram(
        path: impl AsRef<Path>,
        executor: &Executor,
        devices: &[i32],
        options: &LoadOptions,
    ) -> Result<Self> {
        let path = path_bytes(path.as_ref())?;
        let options = options.raw();
        Self::give(|handle, error| {
            // SAFETY: as for `load_ram`.
            unsafe {
                sys::uform_model_load_vram(
                    path.as_ptr().cast(),
                    path.len(),
                    executor.handle(),
                    devices.as_ptr(),
                    devices.len(),
                    &options,
                    handle,
                    error,
                )
            }
        })
    }

    /// Writes a model as one safetensors file, whose name ends in `.safetensors`: its weights, and in the metadata its
    /// configuration, tokenizer and pooling. `path` names the model as for [`Model::load_ram`], which loads what was
    /// written: the same model in that precision, to the bit. Takes no more memory than a few matrices. The file appears at
    /// its destination when it is whole, instead of one that was there.
    ///
    /// [`Status::Unsupported`] for a layout of other machines, or another precision than that of a model that is packed
    /// in i8 or for x86 already; [`Status::InvalidArgument`] for a destination among the files of the model;
    /// [`Status::Io`] where it cannot be written; else as [`Model::load_ram`].
    pub fn pack(path: impl AsRef<Path>, destination: impl AsRef<Path>, options: &PackOptions) -> Result<()> {
        let (path, destination) = (path_bytes(path.as_ref())?, path_bytes(destination.as_ref())?);
        let options = options.raw();
        // SAFETY: paths, options and record are live for the call.
        call(|error| unsafe {
            sys::uform_model_pack(
                path.as_ptr().cast(),
                path.len(),
                destination.as_ptr().cast(),
                destination.len(),
                &options,
                error,
            )
        })
    }

    fn give(
        make: impl FnOnce(*mut *mut sys::uform_model_t, *mut sys::uform_error_t) -> sys::uform_status_t,
    ) -> Result<Self> {
        let mut handle = ptr::null_mut();
        call(|error| make(&mut handle, error))?;
        let mut model = Self { handle, dimensions: 0, default_dimensions: 0, token_limit: 0 };
        let raw = model.raw_description()?;
        model.dimensions = raw.dimensions;
        model.default_dimensions = raw.default_dimensions;
        model.token_limit = raw.token_limit;
        Ok(model)
    }

    fn raw_description(&self) -> Result<sys::uform_model_description_t> {
        let empty = sys::uform_text_t { data: ptr::null(), length: 0 };
        let mut raw = sys::uform_model_description_t {
            size: size_of::<sys::uform_model_description_t>(),
            residency: 0,
            precision: 0,
            file_dtype: 0,
            normalized: 0,
            dimensions: 0,
            token_limit: 0,
            layers: 0,
            heads: 0,
            hidden: 0,
            vocabulary: 0,
            parameters: 0,
            weight_bytes: 0,
            architecture: empty,
            pooling: empty,
            similarity: empty,
            prompt_names: empty,
            default_prompt_name: empty,
            unread_keys: empty,
            default_dimensions: 0,
            intermediate: 0,
        };
        // SAFETY: the handle is live, and the structure says its size.
        call(|error| unsafe { sys::uform_model_describe(self.handle, &mut raw, error) })?;
        Ok(raw)
    }

    /// Says what the model is.
    pub fn describe(&self) -> Result<ModelDescription> {
        let raw = self.raw_description()?;
        // SAFETY: the texts are borrowed from the model, which lives.
        let text = |text: &sys::uform_text_t| unsafe { owned(text) };
        let some = |raw: &sys::uform_text_t| Some(text(raw)).filter(|text| !text.is_empty());
        let lines = |raw: &sys::uform_text_t| text(raw).lines().map(str::to_owned).collect();
        Ok(ModelDescription {
            residency: Residency::from_number(raw.residency).unwrap_or(Residency::Ram),
            precision: Precision::from_number(raw.precision).unwrap_or_default(),
            file_dtype: Dtype::from_number(raw.file_dtype).unwrap_or_default(),
            normalized: raw.normalized != 0,
            dimensions: raw.dimensions,
            default_dimensions: raw.default_dimensions,
            token_limit: raw.token_limit,
            layers: raw.layers,
            heads: raw.heads,
            hidden: raw.hidden,
            intermediate: raw.intermediate,
            vocabulary: raw.vocabulary,
            parameters: raw.parameters,
            weight_bytes: raw.weight_bytes,
            architecture: text(&raw.architecture),
            pooling: text(&raw.pooling),
            similarity: some(&raw.similarity),
            prompt_names: lines(&raw.prompt_names),
            default_prompt_name: some(&raw.default_prompt_name),
            unread_keys: lines(&raw.unread_keys),
        })
    }

    /// Says how many bytes an embedding call may need at most besides inputs, outputs and weights: `rows` texts of up
    /// to `tokens` tokens each, special ones included, on that executor with those options. Zero tokens are the
    /// model's limit.
    pub fn plan(
        &self,
        executor: &Executor,
        rows: usize,
        tokens: usize,
        options: &EmbedOptions,
    ) -> Result<u64> {
        let mut bytes = 0;
        let options = options.raw()?;
        // SAFETY: handles, options and record are live for the call.
        call(|error| unsafe {
            sys::uform_model_plan(self.handle, executor.handle(), rows, tokens, &options, &mut bytes, error)
        })?;
        Ok(bytes)
    }

    /// Splits one text into the tokens that the model reads: after the prompt that the options choose, cut at their
    /// limit, or refused as [`Status::InvalidArgument`] where they say so.
    pub fn tokenize(&self, text: &str, options: &EmbedOptions) -> Result<Vec<Token>> {
        let options = options.raw()?;
        let blank = sys::uform_token_t { id: 0, special: 0, begin: 0, end: 0 };
        // Few tokens take less than a byte, and prompts are short, so that one call is nearly always enough.
        let mut tokens = vec![blank; self.token_limit.min(text.len().saturating_add(64))];
        loop {
            let mut count = 0;
            // SAFETY: text, options, tokens and record are live for the call.
            let outcome = call(|error| unsafe {
                sys::uform_model_tokenize(
                    self.handle,
                    text.as_ptr().cast(),
                    text.len(),
                    &options,
                    tokens.as_mut_ptr(),
                    tokens.len(),
                    &mut count,
                    error,
                )
            });
            match outcome {
                Err(error) if error.status() == Status::BufferTooSmall && count > tokens.len() => {
                    tokens.resize(count, blank);
                }
                Err(error) => return Err(error),
                Ok(()) => {
                    return Ok(tokens[..count].iter().map(token).collect());
                }
            }
        }
    }

    /// The verbs that compute, on the threads of that executor.
    pub fn on<'call>(&'call self, executor: &'call Executor) -> On<'call> {
        On::new(self, Some(executor))
    }

    /// [`On::embed_texts`] on the calling thread.
    pub fn embed_texts(&self, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Result<Embeddings> {
        On::new(self, None).embed_texts(texts, options)
    }

    /// [`On::embed_queries`] on the calling thread.
    pub fn embed_queries(&self, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Result<Embeddings> {
        On::new(self, None).embed_queries(texts, options)
    }

    /// [`On::embed_documents`] on the calling thread.
    pub fn embed_documents(&self, texts: &[impl AsRef<str>], options: &EmbedOptions) -> Result<Embeddings> {
        On::new(self, None).embed_documents(texts, options)
    }

    /// [`On::embed_texts_into`] on the calling thread.
    pub fn embed_texts_into(
        &self,
        texts: &[impl AsRef<str>],
        options: &EmbedOptions,
        output: MatrixViewMut<'_>,
        reports: Option<&mut [Report]>,
    ) -> Result<()> {
        On::new(self, None).embed_texts_into(texts, options, output, reports)
    }

    pub(crate) fn handle(&self) -> *mut sys::uform_model_t {
        self.handle
    }

    /// The dimensions of an output row with these options.
    pub(crate) fn output_dimensions(&self, options: &EmbedOptions) -> Result<usize> {
        match options.dimensions {
            0 => Ok(self.default_dimensions),
            kept if kept <= self.dimensions => Ok(kept),
            asked => Err(Error::invalid(format!(
                "dimensions: expected at most the model's {}, found {asked}",
                self.dimensions
            ))),
        }
    }
}

fn token(raw: &sys::uform_token_t) -> Token {
    Token { id: raw.id, begin: raw.begin as usize, end: raw.end as usize, special: raw.special != 0 }
}

/// # Safety
/// The text addresses as many live bytes as it says.
unsafe fn owned(text: &sys::uform_text_t) -> String {
    if text.length == 0 {
        return String::new();
    }
    // SAFETY: the caller's promise is ours.
    let bytes = unsafe { std::slice::from_raw_parts(text.data.cast::<u8>(), text.length) };
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(unix)]
fn path_bytes(path: &Path) -> Result<&[u8]> {
    Ok(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}

#[cfg(not(unix))]
fn path_bytes(path: &Path) -> Result<&[u8]> {
    match path.to_str() {
        Some(path) => Ok(path.as_bytes()),
        None => Err(Error::invalid(format!("path: expected Unicode, found {}", path.display()))),
    }
}

impl Clone for Model {
    fn clone(&self) -> Self {
        let mut handle = ptr::null_mut();
        // SAFETY: the handle is live; place and record are live for the call.
        call(|error| unsafe { sys::uform_model_clone(self.handle, &mut handle, error) })
            .expect("a live model can be cloned");
        Self { handle, ..*self }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and nothing uses it after this.
        unsafe { sys::uform_model_free(self.handle) };
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.describe() {
            Ok(description) => formatter
                .debug_struct("Model")
                .field("architecture", &description.architecture)
                .field("dimensions", &description.dimensions)
                .field("parameters", &description.parameters)
                .field("precision", &description.precision)
                .finish_non_exhaustive(),
            Err(error) => formatter.debug_tuple("Model").field(&error).finish(),
        }
    }
}

/// What a model is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ModelDescription {
    /// Where the weights lie.
    pub residency: Residency,
    /// The type of the matmuls' inputs.
    pub precision: Precision,
    /// The type of the weights in the file.
    pub file_dtype: Dtype,
    /// Whether rows have norm one unless the options say otherwise.
    pub normalized: bool,
    /// The most dimensions of an output row.
    pub dimensions: usize,
    /// Dimensions of an output row when the options do not choose: fewer where the model's files say so.
    pub default_dimensions: usize,
    /// The most tokens of a text that are read, special ones included.
    pub token_limit: usize,
    /// Layers of the encoder.
    pub layers: usize,
    /// Attention heads of a layer.
    pub heads: usize,
    /// Dimensions of a token inside the encoder.
    pub hidden: usize,
    /// Dimensions of a token inside a feed-forward block of the encoder.
    pub intermediate: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Numbers that were learned.
    pub parameters: u64,
    /// Bytes of weights in memory.
    pub weight_bytes: u64,
    /// The architecture, like "bert".
    pub architecture: String,
    /// The modes of pooling, like "mean", separated by commas.
    pub pooling: String,
    /// How vectors are meant to be compared, like "cosine", if the model says.
    pub similarity: Option<String>,
    /// The names of the model's prompts.
    pub prompt_names: Vec<String>,
    /// The prompt that is used when the role is as given, if there is one.
    pub default_prompt_name: Option<String>,
    /// Keys of the configuration files that have no influence here, as "file: key".
    pub unread_keys: Vec<String>,
}
