#!/usr/bin/env bash
# Builds uform-wasm for wasm32-unknown-unknown with fixed-width SIMD, and writes the backend of the npm package to
# uform-wasm/dist. scripts/wasm/setup.sh comes first. With --quick the module is larger, and sooner there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tool=${UFORM_CACHE:-$HOME/.cache/uform}/tools/uform-wasm-bindgen
target_dir=${CARGO_TARGET_DIR:-target}/wasm
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS='-C target-feature=+simd128 --cfg getrandom_backend="wasm_js"'
options=()
case ${1:-} in
  --quick) options+=(--config 'profile.release.lto="off"' --config 'profile.release.codegen-units=16') ;;
  # The engine is built for speed, all else for size; in a folder of its own, or each kind would undo the other.
  *) target_dir+=-small
    options+=(--config 'profile.release.opt-level="s"' --config 'profile.release.package.uform-c.opt-level=3'
    --config 'profile.release.lto="fat"' --config 'profile.release.codegen-units=1') ;;
esac
cargo +uform-debian build --quiet --release --target wasm32-unknown-unknown --target-dir "$target_dir" \
  -p uform-wasm "${options[@]}"
rm -rf uform-wasm/dist
"$tool" web "$target_dir/wasm32-unknown-unknown/release/uform_wasm.wasm" uform-wasm/dist
cp uform-wasm/backend.mjs uform-wasm/dist/
size=$(gzip -9 -c uform-wasm/dist/uform_wasm_bg.wasm | wc -c)
echo "wasm: $size bytes after gzip"
[ "$size" -le 2500000 ] || { echo "wasm: more than 2.5 MB, which is what a page may be asked to fetch" >&2; exit 1; }
