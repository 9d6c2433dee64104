//! Layer 3: host threads, scratch, deferred calls and arenas.

mod context;
mod scratch;

pub use context::{Cancel, Context, Team};
pub use scratch::{Element, Loan, Scratch};
