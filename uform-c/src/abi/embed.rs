//! Texts to vectors, at once or as a deferred call.

use std::ffi::c_void;
use std::sync::Arc;

use crate::base::{Dtype, Error, Result, Status, err};
use crate::executors::{Call, Context, on_calling_thread};
use crate::models::{EmbedOptions, Length, Model, Normalize, Output, Prompt, Report, Role};

use super::deferred::uform_deferred_t;
use super::error::{UFORM_STATUS_OK, uform_error_t, uform_status_t};
use super::executor::{executor_of, run, uform_executor_t};
use super::guard::guard;
use super::handle::{self, Crossing};
use super::model::uform_model_t;
use super::options;
use super::values::*;

/// What a text is to the search that it is embedded for; chooses the model's prompt.
pub type uform_role_t = i32;

/// The text as it is, with the model's default prompt if it has one.
pub const UFORM_ROLE_AS_GIVEN: uform_role_t = 0;
/// Something to search with.
pub const UFORM_ROLE_QUERY: uform_role_t = 1;
/// Something to be found.
pub const UFORM_ROLE_DOCUMENT: uform_role_t = 2;

/// Whether rows are scaled to norm one.
pub type uform_normalize_t = i32;

/// As the model's own modules say.
pub const UFORM_NORMALIZE_MODEL: uform_normalize_t = 0;
/// Always.
pub const UFORM_NORMALIZE_YES: uform_normalize_t = 1;
/// Never.
pub const UFORM_NORMALIZE_NO: uform_normalize_t = 2;

/// What happens to a text of more tokens than the limit.
pub type uform_length_t = i32;

/// It is cut at the limit, and its report says so.
pub const UFORM_LENGTH_TRUNCATE: uform_length_t = 0;
/// Its row fails with `INVALID_ARGUMENT`.
pub const UFORM_LENGTH_REFUSE: uform_length_t = 1;

/// How texts are embedded. Set `size` to the size of the structure; zero in any other field is its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_embed_options_t {
    /// Bytes of this structure, set by the caller.
    pub size: usize,
    /// What the texts are; chooses the prompt of that name unless one is given below.
    pub role: uform_role_t,
    /// Whether rows are scaled to norm one.
    pub normalize: uform_normalize_t,
    /// What happens to texts over the limit.
    pub length: uform_length_t,
    /// 1 demands the bits that any batch, order and thread count give; every class of CPU does so anyway.
    pub reproducible: u32,
    /// The name of one of the model's prompts; empty for none. `NOT_FOUND` lists those there are.
    pub prompt_name: uform_text_t,
    /// A prompt put before every text, byte for byte; not NULL with length zero means none, whatever the model says.
    pub prompt: uform_text_t,
    /// Leading dimensions that are kept; zero keeps all.
    pub dimensions: usize,
    /// The most tokens of a text, special ones included; zero is the model's limit, which is never exceeded.
    pub token_limit: usize,
    /// Tokens that are computed together on one thread; zero lets the library choose. Bounds the memory of a call.
    pub token_budget: usize,
    /// What values are multiplied with before they become signed or unsigned bytes; zero is 127.
    pub output_scale: f32,
    /// Zero.
    pub reserved: u32,
    /// Told of the rows done so far; may be NULL. Runs on a computing thread.
    pub progress: uform_progress_t,
    /// Handed to `progress`.
    pub progress_context: *mut c_void,
}

options::sized!(uform_embed_options_t: size, role, normalize, length, reproducible, prompt_name, prompt, dimensions, token_limit, token_budget, output_scale, reserved, progress, progress_context);

/// What became of one row.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_report_t {
    /// `OK`, or why the row could not be embedded; its values are then NaN, or zero in types without NaN.
    pub status: uform_status_t,
    /// Whether tokens were cut off: 1 or 0.
    pub truncated: u32,
    /// Tokens of the text, prompt and special ones included.
    pub tokens_found: u64,
    /// Tokens that were read.
    pub tokens_kept: u64,
}

/// Options as the engine takes them, with the texts owned, so that they may cross to the thread of a deferred call.
pub(super) struct OwnedOptions {
    raw: Crossing<uform_embed_options_t>,
    role: Role,
    normalize: Normalize,
    length: Length,
    prompt_name: Option<String>,
    prompt: Option<String>,
}

/// Reads and checks the caller's embedding options.
///
/// # Safety
/// `options` is NULL or addresses a structure of the size that its first field says, with live texts in it.
pub(super) unsafe fn embed_options(options: *const uform_embed_options_t) -> Result<OwnedOptions> {
    // SAFETY: the caller's promise is ours.
    let raw = unsafe { options::read(options)? };
    if raw.reserved != 0 || raw.reproducible > 1 {
        return err!(InvalidArgument, "uform_embed_options_t: reproducible is 0 or 1 and reserved is 0");
    }
    if !(raw.output_scale >= 0.0 && raw.output_scale.is_finite()) {
        return err!(
            InvalidArgument,
            "output_scale: expected a positive number or 0, found {}",
            raw.output_scale
        );
    }
    // SAFETY: as above.
    let (name, prompt) =
        unsafe { (handle::utf8(&raw.prompt_name, "prompt_name")?, handle::utf8(&raw.prompt, "prompt")?) };
    let prompt = (!raw.prompt.data.is_null()).then(|| prompt.to_owned());
    let prompt_name = (!name.is_empty()).then(|| name.to_owned());
    if let (Some(prompt), Some(name)) = (&prompt, &prompt_name) {
        return err!(
            InvalidArgument,
            "both prompt {prompt:?} and prompt_name {name:?} are given; expected one"
        );
    }
    Ok(OwnedOptions {
        role: numbered(raw.role, "role", "0 to 2", Role::from_number)?,
        normalize: numbered(raw.normalize, "normalize", "0 to 2", Normalize::from_number)?,
        length: numbered(raw.length, "length", "0 (truncate) or 1 (refuse)", Length::from_number)?,
        prompt_name,
        prompt,
        raw: Crossing(raw),
    })
}

impl OwnedOptions {
    /// Hands the options to `body` in the engine's form.
    pub(super) fn with<R>(&self, body: impl FnOnce(&EmbedOptions<'_>) -> R) -> R {
        let raw = self.raw.get();
        let context = Crossing(raw.progress_context);
        let progress = raw.progress.map(|callback| {
            // SAFETY: the caller gave the function for this very use and said that it does not unwind.
            move |done: u64, total: u64| unsafe { callback(context.get(), done, total) } == 0
        });
        body(&EmbedOptions {
            role: self.role,
            prompt: match (&self.prompt, &self.prompt_name) {
                (Some(text), _) => Prompt::Text(text),
                (None, Some(name)) => Prompt::Name(name),
                (None, None) => Prompt::Model,
            },
            dimensions: raw.dimensions,
            normalize: self.normalize,
            length: self.length,
            token_limit: raw.token_limit,
            token_budget: raw.token_budget,
            reproducible: raw.reproducible == 1,
            output_scale: raw.output_scale,
            progress: progress.as_ref().map(|progress| progress as &(dyn Fn(u64, u64) -> bool + Sync)),
        })
    }
}

/// Everything of one embedding call that was checked when it was submitted.
struct Job {
    model: Arc<Model>,
    texts: Crossing<(*const uform_text_t, usize)>,
    options: OwnedOptions,
    output: Output<'static>,
    reports: Crossing<*mut uform_report_t>,
}

impl Job {
    /// # Safety
    /// Pointers are NULL or address what the C declarations say until the call has ended.
    unsafe fn new(
        model: *const uform_model_t,
        texts: (*const uform_text_t, usize),
        options: *const uform_embed_options_t,
        output: *const uform_matrix_t,
        reports: *mut uform_report_t,
    ) -> Result<Self> {
        // SAFETY: the caller's promise is ours.
        unsafe {
            let model = Arc::clone(&handle::borrow(model, "model")?.model);
            handle::slice(texts.0, texts.1, "texts")?;
            let options = embed_options(options)?;
            let output = output_of(handle::borrow(output, "output")?)?;
            Ok(Self { model, texts: Crossing(texts), options, output, reports: Crossing(reports) })
        }
    }

    fn compute(&self, context: &Context<'_>) -> Result<()> {
        let (texts, count) = self.texts.get();
        // SAFETY: `new` was promised that the texts live until the call has ended.
        let given = unsafe { handle::slice(texts, count, "texts")? };
        let mut texts: Vec<&[u8]> = room(count, "texts")?;
        for (row, text) in given.iter().enumerate() {
            // SAFETY: as above.
            texts.push(unsafe { handle::bytes(text, format_args!("text {row}"))? });
        }
        let reports = self.reports.get();
        if reports.is_null() {
            return self
                .options
                .with(|options| self.model.embed_texts(context, &texts, options, self.output, None));
        }
        let nothing = Report { status: Status::Ok, truncated: false, tokens_found: 0, tokens_kept: 0 };
        let mut found = room(count, "reports")?;
        found.resize(count, nothing);
        self.options.with(|options| {
            self.model.embed_texts(context, &texts, options, self.output, Some(&mut found))
        })?;
        for (row, report) in found.iter().enumerate() {
            let report = uform_report_t {
                status: report.status as uform_status_t,
                truncated: u32::from(report.truncated),
                tokens_found: report.tokens_found,
                tokens_kept: report.tokens_kept,
            };
            // SAFETY: `new` was promised room for one report per text.
            unsafe { reports.add(row).write_unaligned(report) };
        }
        Ok(())
    }
}

/// An empty list with room for `count` elements; `OutOfMemory` where that cannot be had.
fn room<T>(count: usize, name: &str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    match list.try_reserve_exact(count) {
        Ok(()) => Ok(list),
        Err(_) => Err(Error::out_of_memory(name, count as u128 * size_of::<T>() as u128)),
    }
}

/// The caller's matrix as the engine writes it, which checks its shape and place.
fn output_of(matrix: &uform_matrix_t) -> Result<Output<'static>> {
    let (dtype, row_stride) = matrix.layout("output")?;
    // SAFETY: the caller of the ABI promises that the matrix addresses memory that is its own until the call ends.
    Ok(unsafe { Output::new(matrix.data.cast(), matrix.rows, matrix.columns, row_stride, dtype) })
}

/// Embeds texts, one row each. `texts` are `texts_count` borrowed UTF-8 texts. `output` has as many rows, and as many
/// columns as the options keep dimensions; its elements may be of any type. `reports` is NULL or has room for one
/// report per text: with it, the call is `OK` when it ran, whatever became of single rows; without it, the first bad
/// row makes the call `ROW_FAILED`. Unless the call is `OK`, its outputs are unspecified. `executor` may be NULL:
/// the call then computes on the calling thread. The vector of a text depends on that text, the options and the
/// executor's class alone.
///
/// Thread safety: any thread, while no other thread uses the executor; blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_embed_texts(
    model: *const uform_model_t,
    executor: *mut uform_executor_t,
    texts: *const uform_text_t,
    texts_count: usize,
    options: *const uform_embed_options_t,
    output: *const uform_matrix_t,
    reports: *mut uform_report_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let job = Job::new(model, (texts, texts_count), options, output, reports)?;
            run(executor_of(executor), |context| job.compute(context))
        })
    }
}

/// Submits what `uform_embed_texts` does, and returns before it is done. Texts, output and reports must live, and not
/// be touched, until the call has ended or its handle is freed; the model and the options may go before. `CONTENDED`
/// when the executor tracks as many unfinished calls as it may. On the null executor the call runs at once.
///
/// Thread safety: any thread, while no other thread uses the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_embed_texts_deferred(
    model: *const uform_model_t,
    executor: *mut uform_executor_t,
    texts: *const uform_text_t,
    texts_count: usize,
    options: *const uform_embed_options_t,
    output: *const uform_matrix_t,
    reports: *mut uform_report_t,
    deferred_out: *mut *mut uform_deferred_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            handle::give(deferred_out, "deferred_out", || {
                let job = Job::new(model, (texts, texts_count), options, output, reports)?;
                let call = match executor_of(executor) {
                    Some(executor) => executor.defer(Box::new(move |context| job.compute(context)))?,
                    None => {
                        Arc::new(Call::completed(on_calling_thread(None, |context| job.compute(context))))
                    }
                };
                Ok(uform_deferred_t { call })
            })
        })
    }
}

const _: () = assert!(Status::Ok as i32 == UFORM_STATUS_OK && Dtype::B1 as i32 == UFORM_DTYPE_B1);
const _: () = assert!(Role::AsGiven as i32 == UFORM_ROLE_AS_GIVEN && Role::Query as i32 == UFORM_ROLE_QUERY);
const _: () =
    assert!(Role::Document as i32 == UFORM_ROLE_DOCUMENT && Normalize::No as i32 == UFORM_NORMALIZE_NO);
const _: () =
    assert!(Normalize::Model as i32 == UFORM_NORMALIZE_MODEL && Normalize::Yes as i32 == UFORM_NORMALIZE_YES);
const _: () =
    assert!(Length::Truncate as i32 == UFORM_LENGTH_TRUNCATE && Length::Refuse as i32 == UFORM_LENGTH_REFUSE);
