//! Layer 1: what the machine is and what this process may use of it: CPU and GPU classes, cores, memory domains,
//! pages, the floating-point state of threads, and whether the process was forked.

pub mod budget;
pub mod cpu;
mod cpu_class;
mod cpu_features;
#[cfg(all(feature = "cuda", not(target_family = "wasm")))]
mod cuda;
pub mod float;
pub mod fork;
pub mod gpu;
#[cfg(all(feature = "numa", not(target_family = "wasm")))]
mod hwloc;
pub mod memory;
pub mod pages;
pub mod topology;
