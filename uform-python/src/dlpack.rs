//! Capsules of the DLPack protocol, in its first form and in the one with versions.
//!
//! Layouts: <https://dmlc.github.io/dlpack/latest/c_api.html>; the ownership of capsules:
//! <https://dmlc.github.io/dlpack/latest/python_spec.html>.

use std::ffi::{CStr, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use uform::Dtype;

use crate::arena::View;
use crate::matrix::{Matrix, format};

/// The device type and number of host memory.
pub(crate) const HOST: (i32, i32) = (1, 0);

const CODE_INT: u8 = 0;
const CODE_UINT: u8 = 1;
const CODE_FLOAT: u8 = 2;
const CODE_BFLOAT: u8 = 4;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

#[repr(C)]
struct DlManagedTensorVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensorVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// What a tensor refers to, freed by its deleter.
struct Owner {
    shape: [i64; 2],
    strides: [i64; 2],
    matrix: Option<Py<Matrix>>,
    view: Option<View>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.view.take());
        let matrix = self.matrix.take();
        // A consumer may let go on any thread, and as late as the end of the interpreter, where nothing is freed any more.
        let _ = Python::try_attach(move |_| drop(matrix));
    }
}

fn data_type(dtype: Dtype) -> DlDataType {
    let code = match dtype {
        Dtype::F32 | Dtype::F16 => CODE_FLOAT,
        Dtype::Bf16 => CODE_BFLOAT,
        Dtype::I8 => CODE_INT,
        Dtype::U8 | Dtype::B1 => CODE_UINT,
    };
    DlDataType { code, bits: format(dtype).1 as u8 * 8, lanes: 1 }
}

unsafe extern "C" fn delete_plain(tensor: *mut DlManagedTensor) {
    // SAFETY: both were made by `Box::into_raw` in `capsule`; a tensor is deleted once.
    unsafe {
        drop(Box::from_raw((*tensor).context.cast::<Owner>()));
        drop(Box::from_raw(tensor));
    }
}

unsafe extern "C" fn delete_versioned(tensor: *mut DlManagedTensorVersioned) {
    // SAFETY: as in `delete_plain`.
    unsafe {
        drop(Box::from_raw((*tensor).context.cast::<Owner>()));
        drop(Box::from_raw(tensor));
    }
}

/// Runs when a capsule goes. A consumer that took the tensor has renamed the capsule and frees the tensor itself.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter hands over its capsule, which holds a tensor of the kind that its name says.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) != 0 {
            delete_plain(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// A capsule with the matrix's memory.
pub(crate) fn capsule<'py>(matrix: &Bound<'py, Matrix>, versioned: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = matrix.py();
    let (shape, strides) = matrix.get().layout();
    let item = strides[1] as i64;
    let owner = Box::into_raw(Box::new(Owner {
        shape: shape.map(|extent| extent as i64),
        strides: strides.map(|stride| stride as i64 / item),
        view: matrix.get().view(py)?,
        matrix: Some(matrix.clone().unbind()),
    }));
    // SAFETY: just made; the arrays live as long as the owner, which the deleter frees.
    let (shape, strides) = unsafe { ((&raw mut (*owner).shape).cast(), (&raw mut (*owner).strides).cast()) };
    let tensor = DlTensor {
        data: matrix.get().pointer(),
        device_type: HOST.0,
        device_id: HOST.1,
        ndim: 2,
        dtype: data_type(matrix.get().element()),
        shape,
        strides,
        byte_offset: 0,
    };
    let context = owner.cast();
    let (pointer, name): (*mut c_void, _) = if versioned {
        let managed = DlManagedTensorVersioned {
            major: 1,
            minor: 0,
            context,
            deleter: Some(delete_versioned),
            flags: 0,
            tensor,
        };
        (Box::into_raw(Box::new(managed)).cast(), VERSIONED)
    } else {
        let managed = DlManagedTensor { tensor, context, deleter: Some(delete_plain) };
        (Box::into_raw(Box::new(managed)).cast(), PLAIN)
    };
    // SAFETY: the pointer is not NULL, and name and destructor live as long as the process.
    let made = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destroy)) };
    if made.is_null() {
        // SAFETY: no capsule took the tensor over.
        unsafe { if versioned { delete_versioned(pointer.cast()) } else { delete_plain(pointer.cast()) } }
    }
    // SAFETY: a new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}
