//! How models are loaded and texts are embedded.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use crate::classes::{CPUClass, Dtype, numbered, spelled};
use crate::error::{Error, Result};
use crate::sys;

/// Told now and then, on a computing thread, of the work done so far and the whole of it: bytes while loading, rows
/// while embedding. [`ControlFlow::Break`] stops the call, which then ends as
/// [`Status::Cancelled`](crate::Status::Cancelled); so does a panic in it.
pub type Progress = Arc<dyn Fn(u64, u64) -> ControlFlow<()> + Send + Sync>;

numbered! {
    /// The type of the factors of a transformer's matrix products. Sums are f32, or whole numbers of i8; embeddings, norms,
    /// pooling and the modules behind it are in f32 in each. Every class computes in every precision.
    #[derive(Default)]
    Precision {
        /// The type of the file where the class has instructions for it, else f32.
        #[default]
        Auto = 0,
        /// IEEE 754 binary32.
        F32 = 1,
        /// The upper half of a binary32, rounded to nearest even; so are the factors of attention where the class has it.
        Bf16 = 2,
        /// IEEE 754 binary16, with attention in f32.
        F16 = 3,
        /// Signed bytes with scales per row and per output channel, found from weights and texts alone; attention is as in
        /// bf16.
        I8 = 4,
    }
}
spelled!(Precision, "precision" {
    Auto => "auto", F32 => "f32", Bf16 => "bf16", F16 => "f16", I8 => "i8",
});

numbered! {
    /// How the files of a model are read.
    #[derive(Default)]
    Reading {
        /// From front to back, into memory of our own; a file that shrinks meanwhile is an error.
        #[default]
        Sequential = 0,
        /// Mapped into memory; the caller then sees to it that nobody changes the files while the model lives.
        Mapped = 1,
    }
}
spelled!(Reading, "reading" { Sequential => "sequential", Mapped => "mapped", });

numbered! {
    /// How the weights of linear layers lie in a packed file.
    #[derive(Default)]
    Layout {
        /// As their library names and shapes them, for every machine; they are rearranged when they are loaded.
        #[default]
        Portable = 0,
        /// As the kernels of all x86 classes read them, so that a mapped file is used in place. Other machines refuse the
        /// file.
        X86 = 1,
    }
}
spelled!(Layout, "layout" { Portable => "portable", X86 => "x86", });

/// How a model is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackOptions {
    /// The type of the weights of linear layers; auto is that of the model's files. The others stay as they are.
    pub precision: Precision,
    /// How those weights lie.
    pub layout: Layout,
}

impl PackOptions {
    /// The options as the C interface takes them.
    pub(crate) fn raw(self) -> sys::uform_pack_options_t {
        sys::uform_pack_options_t {
            size: size_of::<sys::uform_pack_options_t>(),
            precision: self.precision.number(),
            layout: self.layout.number(),
            reserved: 0,
        }
    }
}

numbered! {
    /// What a text is to the search that it is embedded for; chooses the model's prompt.
    #[derive(Default)]
    Role {
        /// The text as it is, with the model's default prompt if it has one.
        #[default]
        AsGiven = 0,
        /// Something to search with.
        Query = 1,
        /// Something to be found.
        Document = 2,
    }
}
spelled!(Role, "role" { AsGiven => "as-given", Query => "query", Document => "document", });

numbered! {
    /// Whether rows are scaled to norm one.
    #[derive(Default)]
    Normalize {
        /// As the model's own modules say.
        #[default]
        Model = 0,
        /// Always.
        Yes = 1,
        /// Never.
        No = 2,
    }
}
spelled!(Normalize, "normalize" { Model => "model", Yes => "yes", No => "no", });

numbered! {
    /// What happens to a text of more tokens than the limit.
    #[derive(Default)]
    Length {
        /// It is cut at the limit, and its report says so.
        #[default]
        Truncate = 0,
        /// Its row fails.
        Refuse = 1,
    }
}
spelled!(Length, "length" { Truncate => "truncate", Refuse => "refuse", });

/// Which prompt is put before every text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Prompt {
    /// The one that the model's files give for the role, or their default.
    #[default]
    Model,
    /// The model's prompt of that name; [`Status::NotFound`](crate::Status::NotFound) lists those there are.
    Name(String),
    /// This text, byte for byte; an empty one means no prompt, whatever the model says.
    Text(String),
}

/// How a model is loaded.
#[derive(Clone, Default)]
pub struct LoadOptions {
    /// NUMA domains that the weights are spread over, interleaved, never replicated; none are all.
    pub memory_domains: Vec<i32>,
    /// The class that the layout of the weights is meant for, this machine's if `None`. Any executor of the residency
    /// runs the model all the same.
    pub cpu_class: Option<CPUClass>,
    /// The type of the matmuls' inputs. A file that is packed in i8 or for x86 has but its own.
    pub precision: Precision,
    /// How the files are read.
    pub reading: Reading,
    /// Told of the bytes read and packed so far.
    pub progress: Option<Progress>,
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LoadOptions")
            .field("memory_domains", &self.memory_domains)
            .field("cpu_class", &self.cpu_class)
            .field("precision", &self.precision)
            .field("reading", &self.reading)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

impl LoadOptions {
    /// The options as the C interface takes them, borrowed from `self`.
    pub(crate) fn raw(&self) -> sys::uform_load_options_t {
        let (progress, progress_context) = raw_progress(&self.progress);
        sys::uform_load_options_t {
            size: size_of::<sys::uform_load_options_t>(),
            precision: self.precision.number(),
            reading: self.reading.number(),
            cpu_class: self.cpu_class.map_or(0, CPUClass::number),
            reserved: 0,
            memory_domains: self.memory_domains.as_ptr(),
            memory_domains_count: self.memory_domains.len(),
            progress,
            progress_context,
        }
    }
}

/// How texts are embedded.
///
/// ```
/// use uform::{EmbedOptions, Role};
///
/// let queries = EmbedOptions { role: Role::Query, dimensions: 128, ..Default::default() };
/// assert_eq!(queries.token_limit, 0); // the model's own
/// ```
#[derive(Clone, Default)]
pub struct EmbedOptions {
    /// What the texts are.
    pub role: Role,
    /// The prompt before every text.
    pub prompt: Prompt,
    /// Leading dimensions that are kept; zero keeps all, more than the model has is an error.
    pub dimensions: usize,
    /// Whether rows are scaled to norm one.
    pub normalize: Normalize,
    /// What happens to texts over the limit.
    pub length: Length,
    /// The most tokens of a text, special ones included; zero is the model's limit, which is never exceeded.
    pub token_limit: usize,
    /// Tokens that are computed together on one thread; zero lets the library choose. Bounds the memory of a call.
    pub token_budget: usize,
    /// Demands the bits that any batch, order and thread count give; every class of CPU gives them anyway.
    pub reproducible: bool,
    /// What values are multiplied with before they become signed or unsigned bytes; zero is 127.
    pub output_scale: f32,
    /// The type of the elements, in verbs that allocate their output.
    pub dtype: Dtype,
    /// Whether verbs that allocate their output report on every row. With reports, a call succeeds when it ran, and a
    /// bad row is NaN (zero in types without it); without, the first bad row fails the call with
    /// [`Status::RowFailed`](crate::Status::RowFailed).
    pub reports: bool,
    /// Told of the rows done so far.
    pub progress: Option<Progress>,
}

impl fmt::Debug for EmbedOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EmbedOptions")
            .field("role", &self.role)
            .field("prompt", &self.prompt)
            .field("dimensions", &self.dimensions)
            .field("normalize", &self.normalize)
            .field("length", &self.length)
            .field("token_limit", &self.token_limit)
            .field("token_budget", &self.token_budget)
            .field("reproducible", &self.reproducible)
            .field("output_scale", &self.output_scale)
            .field("dtype", &self.dtype)
            .field("reports", &self.reports)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

impl EmbedOptions {
    /// These options with the role that the name of a verb says, which another one contradicts.
    pub(crate) fn with_role(self, role: Role, verb: &str) -> Result<Self> {
        match self.role {
            found if found != Role::AsGiven && found != role => {
                Err(Error::invalid(format!("role: expected none or {role} in {verb}, found {found}")))
            }
            _ => Ok(Self { role, ..self }),
        }
    }

    /// The options as the C interface takes them, borrowed from `self`.
    pub(crate) fn raw(&self) -> Result<sys::uform_embed_options_t> {
        let (prompt_name, prompt) = match &self.prompt {
            Prompt::Model => (EMPTY, EMPTY),
            // To the interface, an empty name means the model's own prompt.
            Prompt::Name(name) if name.is_empty() => {
                return Err(Error::invalid(
                    "prompt: expected a name, found an empty one; an empty text is no prompt",
                ));
            }
            Prompt::Name(name) => (raw_text(name.as_bytes()), EMPTY),
            Prompt::Text(text) => (EMPTY, raw_text(text.as_bytes())),
        };
        let (progress, progress_context) = raw_progress(&self.progress);
        Ok(sys::uform_embed_options_t {
            size: size_of::<sys::uform_embed_options_t>(),
            role: self.role.number(),
            normalize: self.normalize.number(),
            length: self.length.number(),
            reproducible: u32::from(self.reproducible),
            prompt_name,
            prompt,
            dimensions: self.dimensions,
            token_limit: self.token_limit,
            token_budget: self.token_budget,
            output_scale: self.output_scale,
            reserved: 0,
            progress,
            progress_context,
        })
    }
}

const EMPTY: sys::uform_text_t = sys::uform_text_t { data: ptr::null(), length: 0 };

/// Borrows bytes; the pointer is never NULL, also for an empty slice.
pub(crate) fn raw_text(bytes: &[u8]) -> sys::uform_text_t {
    sys::uform_text_t { data: bytes.as_ptr().cast::<c_char>(), length: bytes.len() }
}

/// The callback and its context, which is the address of the `Arc` inside the options.
fn raw_progress(progress: &Option<Progress>) -> (sys::uform_progress_t, *mut c_void) {
    match progress {
        Some(progress) => (Some(report_progress), ptr::from_ref(progress).cast_mut().cast()),
        None => (None, ptr::null_mut()),
    }
}

unsafe extern "C" fn report_progress(context: *mut c_void, done: u64, total: u64) -> i32 {
    // SAFETY: the context is the address of a `Progress` inside options that live until the call has ended, and a
    // `Progress` may be shared between threads.
    let progress = unsafe { &*context.cast::<Progress>() };
    // An unwinding callback would abort the process at this border.
    match catch_unwind(AssertUnwindSafe(|| progress(done, total))) {
        Ok(ControlFlow::Continue(())) => 0,
        Ok(ControlFlow::Break(())) | Err(_) => 1,
    }
}
