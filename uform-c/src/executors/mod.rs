//! Layer 3: host threads, scratch, deferred calls and arenas.

mod arena;
mod calling_thread;
mod context;
mod core;
mod deferred;
mod executor;
mod pool;
mod scratch;

pub use arena::{Arena, ArenaDescription, ArenaMatrix, Residency};
pub use calling_thread::{describe_calling_thread, on_calling_thread, trim_calling_thread};
pub use context::{Alone, Cancel, Context, Team};
pub use deferred::Call;
pub use executor::{DEFAULT_DEFERRED_LIMIT, Description, Executor, Mood};
pub use scratch::{Element, Loan, Scratch};
