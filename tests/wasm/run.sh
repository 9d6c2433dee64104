#!/usr/bin/env bash
# WebAssembly, in Node: the parity tests of the kernels and the conformance suite on the engine, over WASI; then the package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The C library's threads are named by the standard library, but there are none to be started. Nothing else looks at
# warnings of this target.
export CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="-C target-feature=+simd128 -C link-arg=--unresolved-symbols=ignore-all -D warnings"
export CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $PWD/tests/wasm/wasi.mjs"
cargo +uform-debian test --quiet --target wasm32-wasip1 --target-dir "${CARGO_TARGET_DIR:-target}/wasi" \
  --config 'profile.dev.package."*".opt-level=1' --config 'profile.dev.debug=0' \
  -p uform-c --no-default-features --test parity --test conformance

scripts/wasm/build.sh --test
