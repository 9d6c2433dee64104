#!/usr/bin/env bash
# Builds uform-wasm for wasm32-unknown-unknown with fixed-width SIMD, writes its JavaScript side to uform-wasm/dist, and
# with --test runs its tests in Node. scripts/wasm/setup.sh comes first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tool=${UFORM_CACHE:-$HOME/.cache/uform}/tools/uform-wasm-bindgen
target_dir=${CARGO_TARGET_DIR:-target}/wasm
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS='-C target-feature=+simd128 --cfg getrandom_backend="wasm_js"'
cargo +uform-debian build --release --target wasm32-unknown-unknown --target-dir "$target_dir" \
  -p uform-wasm --config 'profile.release.lto="off"' --config 'profile.release.codegen-units=16'
rm -rf uform-wasm/dist
"$tool" web "$target_dir/wasm32-unknown-unknown/release/uform_wasm.wasm" uform-wasm/dist
[ "${1:-}" != --test ] || node --test uform-wasm/test/
