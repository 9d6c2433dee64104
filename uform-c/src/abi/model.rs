//! Models: loading, describing, tokenizing, planning and sharing.

use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Result, err};
use crate::models::{self, LoadOptions, Model, Precision, Reading, Source};
use crate::system::float::DefaultState;

use super::capabilities::{cpu_class_of, uform_cpu_class_t};
use super::embed::{embed_options, uform_embed_options_t};
use super::error::{uform_error_t, uform_status_t};
use super::executor::{executor_of, uform_executor_t};
use super::guard::{guard, guard_value};
use super::handle::{self, Crossing};
use super::options;
use super::values::*;

/// The weights, tokenizer and configuration of a model. Immutable once loaded, and shared freely between threads.
pub struct uform_model_t {
    pub(super) model: Arc<Model>,
    texts: Arc<Texts>,
}

/// The lists of a description, as texts.
struct Texts {
    pooling: String,
    prompt_names: String,
    unread_keys: String,
}

impl Texts {
    fn of(description: &models::Description) -> Self {
        let names: Vec<&str> = description.prompts.iter().map(|(name, _)| name.as_str()).collect();
        Self {
            pooling: description.pooling.join(","),
            prompt_names: names.join("\n"),
            unread_keys: description.unread.join("\n"),
        }
    }
}

/// How the files of a model are read.
pub type uform_reading_t = i32;

/// Front to back into memory of the library. A file that shrinks meanwhile is an error.
pub const UFORM_READING_SEQUENTIAL: uform_reading_t = 0;
/// Through a memory map. That nobody changes the files meanwhile is then the caller's duty.
pub const UFORM_READING_MAPPED: uform_reading_t = 1;

/// How a model is loaded. Set `size` to the size of the structure; zero in any other field is its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_load_options_t {
    /// Bytes of this structure, set by the caller.
    pub size: usize,
    /// The type of the matmuls' inputs; zero is the file's own where the class has it, else f32, and always that of a packed
    /// file. One that is packed in i8 or for x86 has no other.
    pub precision: uform_precision_t,
    /// How the files are read; zero is sequentially.
    pub reading: uform_reading_t,
    /// The class that the layout of the weights is meant for; zero is this machine's. Any executor of the residency
    /// runs the model all the same.
    pub cpu_class: uform_cpu_class_t,
    /// Zero.
    pub reserved: u32,
    /// NUMA domains that the weights are spread over, interleaved, never replicated; none are all.
    pub memory_domains: *const i32,
    /// How many.
    pub memory_domains_count: usize,
    /// Told of the bytes of the weights' files that are read so far, and of all; may be NULL.
    pub progress: uform_progress_t,
    /// Handed to `progress`.
    pub progress_context: *mut std::ffi::c_void,
}

options::sized!(uform_load_options_t: size, precision, reading, cpu_class, reserved, memory_domains, memory_domains_count, progress, progress_context);

/// One file of a model that is given as bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_file_t {
    /// Its path inside the model's directory with forward slashes, like "1_Pooling/config.json".
    pub name: uform_text_t,
    /// Its first byte.
    pub data: *const u8,
    /// Its bytes.
    pub length: usize,
}

/// What a model is. Texts are borrowed from the model and live as long as it or any clone of it. Set `size` to the
/// size of the structure before asking.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_model_description_t {
    /// Bytes of this structure, set by the caller.
    pub size: usize,
    /// Where the weights lie.
    pub residency: uform_residency_t,
    /// The type of the matmuls' inputs.
    pub precision: uform_precision_t,
    /// The type of the weights in the file.
    pub file_dtype: uform_dtype_t,
    /// Whether rows have norm one unless the options say otherwise: 1 or 0.
    pub normalized: u32,
    /// The most dimensions of an output row.
    pub dimensions: usize,
    /// The most tokens of a text that are read, special ones included.
    pub token_limit: usize,
    /// Layers of the encoder.
    pub layers: usize,
    /// Attention heads of a layer.
    pub heads: usize,
    /// Dimensions of a token inside the encoder.
    pub hidden: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Numbers that were learned.
    pub parameters: u64,
    /// Bytes of weights in memory.
    pub weight_bytes: u64,
    /// The architecture, like "bert".
    pub architecture: uform_text_t,
    /// The modes of pooling, like "mean", separated by commas.
    pub pooling: uform_text_t,
    /// How vectors are meant to be compared, like "cosine"; empty when the model does not say.
    pub similarity: uform_text_t,
    /// The names of the model's prompts, one a line.
    pub prompt_names: uform_text_t,
    /// The prompt that is used when the role is as given; empty for none.
    pub default_prompt_name: uform_text_t,
    /// Keys of the configuration files that have no influence here, as "file: key", one a line.
    pub unread_keys: uform_text_t,
    /// Dimensions of an output row when the options do not choose: fewer where the model's files say so.
    pub default_dimensions: usize,
    /// Dimensions of a token inside a feed-forward block of the encoder.
    pub intermediate: usize,
}

options::sized!(uform_model_description_t: size, residency, precision, file_dtype, normalized, dimensions, token_limit, layers, heads, hidden, vocabulary, parameters, weight_bytes, architecture, pooling, similarity, prompt_names, default_prompt_name, unread_keys, default_dimensions, intermediate);

/// One token of a text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_token_t {
    /// Its number in the vocabulary.
    pub id: u32,
    /// Whether it is a special token of the vocabulary, put around the text or spelled by it: 1 or 0.
    pub special: u32,
    /// The first byte of the text, without its prompt, that it stands for; zero for tokens of the prompt and for those
    /// around the text.
    pub begin: u64,
    /// One past the last such byte.
    pub end: u64,
}

/// Reads the caller's load options. The domains and the callback stay borrowed.
unsafe fn load<'call>(
    source: Source<'call>,
    executor: *const uform_executor_t,
    options: *const uform_load_options_t,
) -> Result<uform_model_t> {
    // SAFETY: the caller's promises are ours.
    let (options, executor) = unsafe { (options::read(options)?, executor_of(executor)) };
    if options.reserved != 0 {
        return err!(
            Unsupported,
            "uform_load_options_t: reserved is {}, this library knows only 0",
            options.reserved
        );
    }
    // SAFETY: as above.
    let domains =
        unsafe { handle::slice(options.memory_domains, options.memory_domains_count, "memory_domains")? };
    let context = Crossing(options.progress_context);
    let progress = options.progress.map(|callback| {
        move |done: u64, total: u64| {
            // SAFETY: the caller gave the function for this very use and said that it does not unwind.
            (unsafe { callback(context.get(), done, total) }) == 0
        }
    });
    let options = LoadOptions {
        memory_domains: domains.to_vec(),
        class: cpu_class_of(options.cpu_class)?,
        precision: numbered(options.precision, "precision", "0 to 4", Precision::from_number)?,
        reading: numbered(options.reading, "reading", "0 (sequential) or 1 (mapped)", Reading::from_number)?,
        progress: progress.as_ref().map(|progress| progress as models::Progress),
    };
    let _state = DefaultState::enter();
    let model = Model::load_ram(source, &options, executor.map(|executor| &**executor))?;
    let texts = Arc::new(Texts::of(model.describe()));
    Ok(uform_model_t { model, texts })
}

/// Loads a model into host memory. `path` names a directory in the layout of sentence-transformers or Hugging Face, a
/// `model.safetensors` inside one, a file made by `uform_model_pack`, or, where no such file exists, a model in the local
/// Hugging Face cache; nothing is ever downloaded. `executor` lends its threads for loading and is not kept; NULL loads on the calling thread.
/// `NOT_FOUND` or `IO` for files, `CORRUPT_DATA` for their format, `UNSUPPORTED` for an architecture, a module or a
/// value of a key that this library does not know: the sentence names file and key.
///
/// Thread safety: any thread, while no other thread uses the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_model_load_ram(
    path: *const c_char,
    path_length: usize,
    executor: *mut uform_executor_t,
    options: *const uform_load_options_t,
    model_out: *mut *mut uform_model_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::give(model_out, "model_out", || {
                let text = uform_text_t { data: path, length: path_length };
                load(Source::Path(path_of(&text, "path")?), executor, options)
            })
        })
    }
}

/// A path in the system's own bytes where it has such, else in UTF-8.
///
/// # Safety
/// As [`handle::bytes`].
pub(super) unsafe fn path_of<'call>(text: &uform_text_t, name: &str) -> Result<&'call Path> {
    // SAFETY: the caller's promise is ours.
    let bytes = unsafe { handle::bytes(text, name)? };
    if bytes.is_empty() {
        return err!(InvalidArgument, "{name} is empty");
    }
    if let Some(place) = bytes.iter().position(|byte| *byte == 0) {
        return err!(InvalidArgument, "{name}: expected no zero byte, found one after {place} bytes");
    }
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)))
    }
    #[cfg(not(unix))]
    {
        // SAFETY: as above.
        Ok(Path::new(unsafe { handle::utf8(text, name)? }))
    }
}

/// Loads a model into host memory from the files of its directory, given as bytes, or from one file made by
/// `uform_model_pack`, under any name. They are copied as far as needed and not kept.
/// Otherwise as `uform_model_load_ram`.
///
/// Thread safety: any thread, while no other thread uses the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_model_load_ram_from_bytes(
    files: *const uform_file_t,
    files_count: usize,
    executor: *mut uform_executor_t,
    options: *const uform_load_options_t,
    model_out: *mut *mut uform_model_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::give(model_out, "model_out", || {
                let mut named = Vec::with_capacity(files_count.min(1 << 10));
                for file in handle::slice(files, files_count, "files")? {
                    let name = handle::utf8(&file.name, "the name of a file")?;
                    named.push((name, handle::slice(file.data, file.length, name)?));
                }
                load(Source::Files(&named), executor, options)
            })
        })
    }
}

/// Would load a model into the memory of the named GPUs. Answers `UNSUPPORTED`: this version computes in RAM only.
///
/// Thread safety: any thread, while no other thread uses the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_model_load_vram(
    path: *const c_char,
    path_length: usize,
    executor: *mut uform_executor_t,
    devices: *const i32,
    devices_count: usize,
    options: *const uform_load_options_t,
    model_out: *mut *mut uform_model_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    let _ = executor;
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::give(model_out, "model_out", || {
                path_of(&uform_text_t { data: path, length: path_length }, "path")?;
                handle::slice(devices, devices_count, "devices")?;
                options::read(options)?;
                err!(
                    Unsupported,
                    "load_vram: this version has no GPU kernels and computes in RAM only; use load_ram"
                )
            })
        })
    }
}

fn borrowed(text: &str) -> uform_text_t {
    uform_text_t { data: text.as_ptr().cast(), length: text.len() }
}

/// Says what the model is.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_model_describe(
    model: *const uform_model_t,
    description_out: *mut uform_model_description_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let handle = handle::borrow(model, "model")?;
            let (description, texts) = (handle.model.describe(), &handle.texts);
            options::write(
                description_out,
                uform_model_description_t {
                    size: size_of::<uform_model_description_t>(),
                    residency: UFORM_RESIDENCY_RAM,
                    precision: description.precision as uform_precision_t,
                    file_dtype: description.file_dtype as uform_dtype_t,
                    normalized: u32::from(description.normalizes),
                    dimensions: description.dimensions,
                    token_limit: description.token_limit,
                    layers: description.layers,
                    heads: description.heads,
                    hidden: description.hidden,
                    vocabulary: description.vocabulary,
                    parameters: description.parameters,
                    weight_bytes: description.weight_bytes,
                    architecture: borrowed(description.architecture),
                    pooling: borrowed(&texts.pooling),
                    similarity: borrowed(description.similarity.as_deref().unwrap_or("")),
                    prompt_names: borrowed(&texts.prompt_names),
                    default_prompt_name: borrowed(description.default_prompt.as_deref().unwrap_or("")),
                    unread_keys: borrowed(&texts.unread_keys),
                    default_dimensions: description.default_dimensions,
                    intermediate: description.intermediate,
                },
            )
        })
    }
}

/// Says how many bytes an embedding call may need at most besides inputs, outputs and weights: `rows` texts of up to
/// `tokens` tokens each, special ones included, on that executor with those options. Zero tokens are the model's limit.
/// A megabyte or two a thread are for tokenizing. Not counted is what that takes more, hundreds of times their size, for
/// texts above 2 KiB that cannot be cut at white space: single words, and all texts of models whose tokenizer is not of
/// the kind of BERT's or RoBERTa's; nor what a tokenizer takes that makes texts longer, nor a copy of a text a thread
/// where there is a prompt.
///
/// Thread safety: any thread, while no other thread uses the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_model_plan(
    model: *const uform_model_t,
    executor: *const uform_executor_t,
    rows: usize,
    tokens: usize,
    options: *const uform_embed_options_t,
    bytes_out: *mut u64,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let model = &handle::borrow(model, "model")?.model;
            let threads = match executor_of(executor) {
                Some(executor) => executor.describe()?.threads,
                None => 1,
            };
            let options = embed_options(options)?;
            let bytes = options.with(|options| model.plan(threads, rows, tokens, options))?;
            handle::write(bytes_out, "bytes_out", bytes)
        })
    }
}

/// Splits one text into the tokens that the model reads: after the prompt that the options choose, cut at their limit, or
/// `INVALID_ARGUMENT` above it where they refuse such a text. `tokens` has room for `capacity`; `count_out` receives how
/// many there are, also with `BUFFER_TOO_SMALL`, so that a first call may ask with no room at all.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_model_tokenize(
    model: *const uform_model_t,
    text: *const c_char,
    length: usize,
    options: *const uform_embed_options_t,
    tokens: *mut uform_token_t,
    capacity: usize,
    count_out: *mut usize,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let model = &handle::borrow(model, "model")?.model;
            let text = handle::utf8(&uform_text_t { data: text, length }, "text")?;
            let options = embed_options(options)?;
            let found = options.with(|options| model.tokenize(text.as_bytes(), options))?;
            handle::write(count_out, "count_out", found.len())?;
            if found.len() > capacity {
                return err!(BufferTooSmall, "tokens: expected room for {}, found {capacity}", found.len());
            }
            for (index, token) in found.iter().enumerate() {
                let (begin, end) = (token.begin as u64, token.end as u64);
                let token = uform_token_t { id: token.id, special: u32::from(token.special), begin, end };
                handle::write(tokens.wrapping_add(index), "tokens", token)?;
            }
            Ok(())
        })
    }
}

/// Makes another handle to the same weights.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_model_clone(
    model: *const uform_model_t,
    model_out: *mut *mut uform_model_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::give(model_out, "model_out", || {
                let from = handle::borrow(model, "model")?;
                Ok(uform_model_t { model: Arc::clone(&from.model), texts: Arc::clone(&from.texts) })
            })
        })
    }
}

/// Ends the handle; the weights go with the last handle and the last deferred call that uses them. NULL does nothing.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_model_free(model: *mut uform_model_t) {
    // SAFETY: the handle is used as the C declaration demands of the caller.
    guard_value((), || unsafe { handle::end(model) });
}

const _: () = assert!(Reading::Sequential as i32 == UFORM_READING_SEQUENTIAL);
const _: () = assert!(Reading::Mapped as i32 == UFORM_READING_MAPPED);
const _: () =
    assert!(Precision::Auto as i32 == UFORM_PRECISION_AUTO && Precision::F32 as i32 == UFORM_PRECISION_F32);
const _: () =
    assert!(Precision::Bf16 as i32 == UFORM_PRECISION_BF16 && Precision::F16 as i32 == UFORM_PRECISION_F16);
const _: () = assert!(Precision::I8 as i32 == UFORM_PRECISION_I8);
