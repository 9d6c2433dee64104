//! What products by SME owe to a caller that uses the array ZA itself.

use std::arch::asm;

use uform_c::base::{Dtype, Matrix};
use uform_c::kernels::activation::Activation;
use uform_c::kernels::for_class;
use uform_c::ops::linear::Linear;
use uform_c::system::cpu::CpuClass;

use crate::support::{Guarded, numbers, with_context};

/// Where a caller wants ZA saved: Procedure Call Standard for the Arm 64-bit Architecture, "TPIDR2 block".
#[repr(C, align(16))]
struct SaveZa {
    buffer: *mut u8,
    slices: u16,
    reserved: [u8; 6],
}

#[test]
fn what_a_caller_left_in_za_is_saved_where_it_said() {
    let Ok(kernels) = for_class(CpuClass::AppleM4) else { return };
    let weights = numbers(50, 48 * 20);
    let layer = Linear::new(Dtype::F32, Matrix::dense(&weights, 48, 20), None).expect("a layer");
    let input = Guarded::filled(51, 16, 20, 0);
    let mut output = Guarded::new(16, 48, 0);
    let bytes: usize;
    // SAFETY: the machine has SME.
    unsafe { asm!(".arch_extension sme", "rdsvl {}, #1", out(reg) bytes) };
    let content: Vec<u8> = (0..bytes * bytes).map(|index| (index * 31 % 251) as u8).collect();
    let mut saved = vec![0u8; bytes * bytes];
    let block = SaveZa { buffer: saved.as_mut_ptr(), slices: bytes as u16, reserved: [0; 6] };
    with_context(kernels, 1, |context| {
        // SAFETY: a row of ZA has that many bytes, and so many rows there are. The block outlives the call that saves ZA.
        unsafe {
            asm!(
                ".arch_extension sme",
                "smstart za",
                "mov w12, wzr",
                "2: ldr za[w12, 0], [{from}]",
                "add {from}, {from}, {bytes}",
                "add w12, w12, #1",
                "cmp w12, {bytes:w}",
                "b.lo 2b",
                "msr tpidr2_el0, {block}",
                from = inout(reg) content.as_ptr() => _,
                bytes = in(reg) bytes,
                block = in(reg) std::ptr::from_ref(&block),
                out("x12") _,
            );
        }
        layer.forward(context, input.view(), output.view_mut(), Activation::None, None).expect("a product");
    });
    let (pending, state): (u64, u64);
    // SAFETY: reads two registers of this thread.
    unsafe {
        asm!(
            ".arch_extension sme",
            "mrs {pending}, tpidr2_el0",
            "mrs {state}, svcr",
            pending = out(reg) pending,
            state = out(reg) state,
        );
    }
    assert_eq!((pending, state), (0, 0), "nothing is left to save, and streaming mode and ZA are off");
    assert!(saved == content, "ZA was saved as it was");
}
