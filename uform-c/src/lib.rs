//! The engine of UForm and its C ABI. Layers from the bottom up, each importing only from those before it:
//! `base` and `system`, `kernels`, `executors`, `ops`, `models`, `abi`. ARCHITECTURE.md says what belongs where.

pub mod base;
pub mod system;

pub mod kernels;

pub mod executors;

pub mod ops;

pub mod models;

pub mod abi;
