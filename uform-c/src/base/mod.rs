//! Layer 1: errors, element types, views and the log. Imports nothing of ours.

mod dtype;
mod error;
pub mod log;
mod view;

pub use dtype::Dtype;
pub(crate) use error::err;
pub use error::{Error, Result, Status};
pub use view::{Matrix, MatrixMut};
