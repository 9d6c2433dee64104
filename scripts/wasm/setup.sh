#!/usr/bin/env bash
# Makes a Debian machine able to build for wasm32-unknown-unknown: a compiler whose library source is packaged beside it,
# the linker, the standard library for the target (built once, about a minute), and the wasm-bindgen step.
# Afterwards `cargo +uform-debian build --target wasm32-unknown-unknown` works. Root or sudo. Safe to run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
target=wasm32-unknown-unknown
cache=${UFORM_CACHE:-$HOME/.cache/uform}
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
unset RUSTC RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR

../debian-rust.sh rust-web-src lld-22
# The targets of wasm name their linker rust-lld, which Debian's lld is under another name.
[ -e /usr/local/bin/rust-lld ] || $sudo ln -s /usr/lib/llvm-22/bin/lld /usr/local/bin/rust-lld

# The standard library, built from the very source of that compiler and put where it looks for it, so that a plain
# cargo build needs no unstable flag.
sysroot=$(/usr/bin/rustc --print sysroot)
library=$sysroot/lib/rustlib/$target/lib
if [ "$(cat "$library/.compiler" 2>/dev/null)" != "$(/usr/bin/rustc -V)" ]; then
  work=$(mktemp -d)
  cp -rL "$sysroot/lib/rustlib/src/rust/library" "$work/library"
  (cd "$work/library" && RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 __CARGO_DEFAULT_LIB_METADATA=std \
    CARGO_PROFILE_RELEASE_DEBUG=0 RUSTFLAGS="-Zforce-unstable-if-unmarked -Cembed-bitcode=yes" \
    /usr/bin/cargo build --quiet --release --manifest-path sysroot/Cargo.toml --target "$target" \
    --target-dir "$work/target" --no-default-features --features "panic-unwind compiler-builtins-mem")
  $sudo mkdir -p "$library"
  $sudo cp "$work/target/$target/release/deps/"*.rlib "$library/"
  /usr/bin/rustc -V | $sudo tee "$library/.compiler" >/dev/null
  rm -rf "$work"
fi

tool=$cache/tools/uform-wasm-bindgen
want=$(cat bindgen/Cargo.toml bindgen/src/main.rs | sha256sum)
if ! [ -x "$tool" ] || [ "$(cat "$tool.sum" 2>/dev/null)" != "$want" ]; then
  cargo build --quiet --manifest-path bindgen/Cargo.toml --target-dir "$cache/build/wasm-bindgen"
  mkdir -p "$cache/tools"
  cp "$cache/build/wasm-bindgen/debug/uform-wasm-bindgen" "$tool"
  echo "$want" >"$tool.sum"
fi
echo "wasm: $(/usr/bin/rustc -V), $tool"
