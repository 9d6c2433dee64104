//! Layer 8: the C ABI, and the only hand-written declaration of it. `include/uform.h` is generated from these files,
//! in the order of the modules below; every other language is generated from or checked against that header.
//!
//! Every function goes through `guard`, takes inputs before options before outputs before the error, and says in
//! one line from which threads it may be called. ARCHITECTURE.md lists the conventions.

#![allow(non_camel_case_types)]
// Whoever calls an exported function is bound by its C declaration: live pointers of the counts that go with them,
// handles that were not freed, and the line on thread safety. The comments are written for the header and say so there.
#![allow(clippy::missing_safety_doc)]

mod guard;
mod handle;
mod options;

mod error;
mod values;

mod capabilities;
mod devices;

mod executor;

mod model;
mod pack;

mod embed;

mod deferred;

mod arena;

pub use arena::*;
pub use capabilities::*;
pub use deferred::*;
pub use devices::*;
pub use embed::*;
pub use error::*;
pub use executor::*;
pub use model::*;
pub use pack::*;
pub use values::*;
