//! Every class of kernels that this machine runs, and classes of x86 over a software vector of sixteen lanes and a model of AMX,
//! against references in f64 and against itself: the bits of a row must not depend on anything but the row.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod amx_model;
mod attention;
mod gemm;
mod halves;
mod rotary;
mod rows;
mod support;
#[cfg(target_arch = "aarch64")]
mod za;
