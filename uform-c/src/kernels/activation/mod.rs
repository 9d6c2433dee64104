//! Activation functions, alone or as part of a matrix product's end.
//!
//! Numerical notes: a value's bits depend on the value and the class alone, not on its lane or on where a row ends, as
//! the last lanes of a row go through the same vector code. NaN stays NaN. `simd/math.rs` states the errors; GELU
//! is that of PyTorch within 1e-7.
//!
//! Why not a table per function: the ends of products would need one entry per pair, and a branch per tile costs nothing.

use crate::base::MatrixMut;

use super::Kernels;
use super::simd::{Kernel, Vector, math};

/// What is done to each element.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Activation {
    /// Nothing.
    None,
    /// x · Φ(x) with the normal distribution Φ: "gelu" of PyTorch and Hugging Face.
    Gelu,
    /// The same within 1e-4, for results that are rounded to bf16 or bytes next.
    GeluCoarse,
    /// The approximation of it by tanh: "gelu_new", "gelu_pytorch_tanh".
    GeluTanh,
    /// max(x, 0).
    Relu,
    /// The hyperbolic tangent.
    Tanh,
    /// x / (1 + e⁻ˣ): "silu", "swish".
    Silu,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
}

/// A function of each lane.
pub(super) trait Function {
    /// # Safety
    /// The machine has the instructions of `V`.
    unsafe fn of<V: Vector>(x: V) -> V;
}

/// Code that is compiled once for each activation.
pub(super) trait Apply {
    /// # Safety
    /// The machine has the instructions of `V`, and the implementation's pointers are good.
    unsafe fn apply<V: Vector, F: Function>(self);
}

macro_rules! functions {
    ($($name:ident($x:ident) $value:expr;)+) => {
        $(struct $name;
        impl Function for $name {
            #[inline(always)]
            unsafe fn of<V: Vector>($x: V) -> V {
                // SAFETY: the caller's promise.
                #[allow(unused_unsafe)]
                unsafe { $value }
            }
        })+

        impl Activation {
            /// Runs `code` for this activation.
            ///
            /// # Safety
            /// As [`Apply::apply`].
            #[inline(always)]
            pub(super) unsafe fn with<V: Vector, A: Apply>(self, code: A) {
                // SAFETY: the caller's promise.
                unsafe {
                    match self {
                        $(Self::$name => code.apply::<V, $name>(),)+
                    }
                }
            }
        }
    };
}

functions! {
    None(x) x;
    Gelu(x) math::gelu(x);
    GeluCoarse(x) math::gelu_coarse(x);
    GeluTanh(x) math::gelu_tanh(x);
    Relu(x) V::splat(0.0).max(x);
    Tanh(x) math::tanh(x);
    Silu(x) x * math::sigmoid(x);
    Sigmoid(x) math::sigmoid(x);
}

/// Applies `activation` in place to `rows` × `columns`. Callers promise that the machine has the instructions.
pub(super) type ActivateFunction = unsafe fn(Activation, MatrixMut<f32>);

/// [`ActivateFunction`] for an instruction set.
///
/// # Safety
/// See [`ActivateFunction`].
pub(super) unsafe fn activate<V: Vector>(activation: Activation, rows: MatrixMut<f32>) {
    // SAFETY: the caller's promise.
    unsafe { V::run(ActivateKernel { activation, rows }) }
}

struct ActivateKernel<'a> {
    activation: Activation,
    rows: MatrixMut<'a, f32>,
}

impl Kernel for ActivateKernel<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // SAFETY: the caller's promise.
        unsafe { self.activation.with::<V, _>(self) }
    }
}

impl Apply for ActivateKernel<'_> {
    #[inline(always)]
    unsafe fn apply<V: Vector, F: Function>(mut self) {
        for row in 0..self.rows.rows() {
            let values = self.rows.row_mut(row);
            let (count, values) = (values.len(), values.as_mut_ptr());
            for index in (0..count).step_by(V::LANES) {
                // SAFETY: `count - index` elements of the row are left.
                unsafe {
                    let value = V::load_up_to(values.add(index), count - index, V::splat(0.0));
                    F::of(value).store_up_to(values.add(index), count - index);
                }
            }
        }
    }
}

impl Kernels {
    /// Applies `activation` to each element, in place.
    pub fn activate(&self, activation: Activation, rows: MatrixMut<f32>) {
        // SAFETY: kernels of a class exist only where its instructions do.
        unsafe { (self.activate)(activation, rows) }
    }
}
