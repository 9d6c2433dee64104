//! Every class of kernels that this machine runs, and the sixteen-lane class over a software vector, against references
//! in f64 and against itself: the bits of a row must not depend on anything but the row.

mod attention;
mod gemm;
mod halves;
mod rows;
mod support;
