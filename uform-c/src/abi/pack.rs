//! Packing: a model as one file.

use std::ffi::c_char;

use crate::base::err;
use crate::models::{Layout, Model, PackOptions, Precision, Source};
use crate::system::float::DefaultState;

use super::error::{uform_error_t, uform_status_t};
use super::guard::guard;
use super::model::path_of;
use super::options;
use super::values::*;

/// How the weights of linear layers lie in a packed file.
pub type uform_layout_t = i32;

/// As their library names and shapes them, for every machine; they are rearranged when they are loaded.
pub const UFORM_LAYOUT_PORTABLE: uform_layout_t = 0;
/// As the kernels of all x86 classes read them, so that a mapped file is used in place. Other machines refuse the file.
pub const UFORM_LAYOUT_X86: uform_layout_t = 1;

/// How a model is packed. Set `size` to the size of the structure; zero in any other field is its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uform_pack_options_t {
    /// Bytes of this structure, set by the caller.
    pub size: usize,
    /// The type of the weights of linear layers; zero is that of the model's files. The others stay as they are.
    pub precision: uform_precision_t,
    /// How those weights lie; zero is portable.
    pub layout: uform_layout_t,
    /// Zero.
    pub reserved: u64,
}

options::sized!(uform_pack_options_t: size, precision, layout, reserved);

/// Writes a model as one safetensors file, whose name ends in ".safetensors": its weights, and in the metadata its
/// configuration, tokenizer and pooling. `path` names the model as for `uform_model_load_ram`, which loads what was
/// written: the same model in that precision, to the bit. Takes no more memory than a few matrices. The file appears at
/// its destination when it is whole, instead of one that was there. `UNSUPPORTED` for a layout of other machines, or
/// another precision than that of a model that is packed in i8 or for x86 already; `INVALID_ARGUMENT` for a destination
/// among the files of the model; `IO` where it cannot be written; else as `uform_model_load_ram`.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_model_pack(
    path: *const c_char,
    path_length: usize,
    destination: *const c_char,
    destination_length: usize,
    options: *const uform_pack_options_t,
    error: *mut uform_error_t,
) -> uform_status_t {
    // SAFETY: pointers are used as the C declaration demands of the caller.
    unsafe {
        guard(error, || {
            let path = uform_text_t { data: path, length: path_length };
            let destination = uform_text_t { data: destination, length: destination_length };
            let (path, destination) = (path_of(&path, "path")?, path_of(&destination, "destination")?);
            let options = options::read(options)?;
            if options.reserved != 0 {
                return err!(
                    Unsupported,
                    "uform_pack_options_t: reserved is {}, this library knows only 0",
                    options.reserved
                );
            }
            let options = PackOptions {
                precision: numbered(options.precision, "precision", "0 to 4", Precision::from_number)?,
                layout: numbered(options.layout, "layout", "0 (portable) or 1 (x86)", Layout::from_number)?,
            };
            let _state = DefaultState::enter();
            Model::pack(Source::Path(path), destination, &options)
        })
    }
}

const _: () = assert!(Layout::Portable as i32 == UFORM_LAYOUT_PORTABLE);
const _: () = assert!(Layout::X86 as i32 == UFORM_LAYOUT_X86);
