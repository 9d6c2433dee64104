//! The addon of the npm package `uform`: what its TypeScript layer enters in Node, Bun, Deno and Electron. Every class
//! and function here is one item of the `Backend` interface in `backend.ts`, over the crate `uform`. Arguments were
//! checked by that layer; what reaches this one broken is refused, but in fewer words.

// What the macros of napi export must be public, though no crate imports this one.
#![allow(unreachable_pub)]

mod arena;
mod devices;
mod embed;
mod environment;
mod errors;
mod executor;
mod loading;
mod log;
mod model;
mod options;
mod progress;
mod rows;
mod shared;
