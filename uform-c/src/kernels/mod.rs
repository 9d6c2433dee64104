//! Layer 2: pure functions on views: no allocation, no threads, no globals.

/// The kernels of one CPU class.
pub struct Kernels {}
