#!/usr/bin/env bash
# WebAssembly: over WASI in Node the parity tests of the kernels, the conformance suite on the engine and hostile models (but
# packed ones, as there are no temporary files to pack into); then the npm package over its module, in Node and in a browser.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The C library's threads are named by the standard library, but there are none to be started.
export CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="-C target-feature=+simd128 -C link-arg=--unresolved-symbols=ignore-all"
export CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $PWD/tests/wasm/wasi.mjs"
cargo +uform-debian test --quiet --target wasm32-wasip1 --target-dir "${CARGO_TARGET_DIR:-target}/wasi" \
  --config 'profile.dev.package."*".opt-level=1' --config 'profile.dev.debug=0' \
  -p uform-c --no-default-features --test parity --test conformance --test hostile -- --skip packed_files

scripts/wasm/build.sh --quick
for folder in uform-node tests/wasm/browser; do
  [ -d $folder/node_modules ] || (cd $folder && npm ci --silent --ignore-scripts)
done
(cd uform-node && npm run --silent build:wasm && npm run --silent test:wasm)
node --test tests/wasm/browser/*.test.mjs
