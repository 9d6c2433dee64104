//! The backend of the npm package `uform` in WebAssembly. Every class and function here is one item of the `Backend`
//! interface of `uform-node/src/backend.ts`, over the crate `uform`; `backend.mjs` adds what takes JavaScript. Arguments
//! were checked by the TypeScript layer; what reaches this one broken is refused, but in fewer words.
//!
//! There is one thread. Deferred calls run when they are submitted, so that executors only order calls.

// What the macros of wasm-bindgen export must be public, though no crate imports this one.
#![allow(unreachable_pub)]

mod arena;
mod devices;
mod embed;
mod errors;
mod executor;
mod model;
mod objects;
mod options;
mod progress;

use wasm_bindgen::prelude::wasm_bindgen;

/// Runs when the module is instantiated. A panic cannot be caught in it: its sentence is thrown instead, and the instance is
/// not to be used any more.
#[wasm_bindgen(start)]
fn begin() {
    std::panic::set_hook(Box::new(|panic| wasm_bindgen::throw_val(errors::panicked(&panic.to_string()))));
}
