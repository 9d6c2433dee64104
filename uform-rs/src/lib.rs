//! The safe Rust interface of UForm, over its C interface.
//!
#![doc = include_str!("../README.md")]

#[allow(dead_code)]
mod sys;

// The engine is used for its symbols only; every call goes through the declarations in `sys`.
use uform_c as _;

mod arena;
mod capabilities;
mod classes;
mod deferred;
mod devices;
mod embeddings;
mod error;
mod executor;
mod matrix;
mod model;
mod on;
mod options;

pub use arena::{Arena, ArenaDescription, ArenaMatrix, ArenaOutput};
pub use capabilities::{
    capabilities_available, capabilities_compiled, cpu_class_detected, set_log_callback, version,
};
pub use classes::{CPUClass, Dtype, GPUClass, GPUVendor, Mood, Residency};
pub use deferred::Deferred;
pub use devices::{GPUDevice, gpu_devices};
pub use embeddings::{Embeddings, Report, Token};
pub use error::{Error, Result, Status};
pub use executor::{Executor, ExecutorDescription};
pub use matrix::{MatrixViewMut, OwnedOutput, RawMatrix};
pub use model::{Model, ModelDescription};
pub use on::{On, OnDeferred};
pub use options::{
    EmbedOptions, Layout, Length, LoadOptions, Normalize, PackOptions, Precision, Progress, Prompt, Reading,
    Role,
};
