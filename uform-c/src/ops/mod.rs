//! Layer 4: what models are made of. An op takes views, asks the scratch of a thread for what it needs on the way, splits
//! the work over the team of its context and calls kernels. It allocates nothing and owns no result.

pub mod attention;
pub mod embed;
pub mod linear;
pub mod norm;
pub mod pool;
mod split;
