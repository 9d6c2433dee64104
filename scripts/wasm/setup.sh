#!/usr/bin/env bash
# Makes a Debian machine able to build for WebAssembly: a compiler whose library source is packaged beside it, the linker,
# the standard library (built once, about a minute a target), and the wasm-bindgen step. There are two targets:
# wasm32-unknown-unknown is that of the package, and wasm32-wasip1, with files and a clock, runs the engine's own tests.
# Afterwards `cargo +uform-debian build --target wasm32-unknown-unknown` works. Root or sudo. Safe to run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
cache=${UFORM_CACHE:-$HOME/.cache/uform}
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
unset RUSTC RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR

../debian-rust.sh rust-web-src lld-22
# The targets of wasm name their linker rust-lld, which Debian's lld is under another name.
[ -e /usr/local/bin/rust-lld ] || $sudo ln -s /usr/lib/llvm-22/bin/lld /usr/local/bin/rust-lld

sysroot=$(/usr/bin/rustc --print sysroot)

# The C library that wasm32-wasip1 stands on, where the compiler looks for it; the release's own is too old.
../debian-backports.sh wasi-libc
contained=$sysroot/lib/rustlib/wasm32-wasip1/lib/self-contained
$sudo mkdir -p "$contained"
$sudo cp /usr/lib/wasm32-wasi/crt1-command.o /usr/lib/wasm32-wasi/crt1-reactor.o /usr/lib/wasm32-wasi/libc.a "$contained/"

# The standard library, built from the very source of that compiler and put where it looks for it, so that a plain
# cargo build needs no unstable flag.
standard_library() { # TARGET
  local library=$sysroot/lib/rustlib/$1/lib work
  [ "$(cat "$library/.compiler" 2>/dev/null)" = "$(/usr/bin/rustc -V)" ] && return
  work=$(mktemp -d)
  cp -rL "$sysroot/lib/rustlib/src/rust/library" "$work/library"
  (cd "$work/library" && RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 __CARGO_DEFAULT_LIB_METADATA=std \
    CARGO_PROFILE_RELEASE_DEBUG=0 RUSTFLAGS="-Zforce-unstable-if-unmarked -Cembed-bitcode=yes" \
    /usr/bin/cargo build --quiet --release --manifest-path sysroot/Cargo.toml --target "$1" \
    --target-dir "$work/target" --no-default-features --features "panic-unwind compiler-builtins-mem")
  $sudo mkdir -p "$library"
  $sudo cp "$work/target/$1/release/deps/"*.rlib "$library/"
  /usr/bin/rustc -V | $sudo tee "$library/.compiler" >/dev/null
  rm -rf "$work"
}
standard_library wasm32-unknown-unknown
standard_library wasm32-wasip1

tool=$cache/tools/uform-wasm-bindgen
want=$(cat bindgen/Cargo.toml bindgen/src/main.rs | sha256sum)
if ! [ -x "$tool" ] || [ "$(cat "$tool.sum" 2>/dev/null)" != "$want" ]; then
  cargo build --quiet --manifest-path bindgen/Cargo.toml --target-dir "$cache/build/wasm-bindgen"
  mkdir -p "$cache/tools"
  cp "$cache/build/wasm-bindgen/debug/uform-wasm-bindgen" "$tool"
  echo "$want" >"$tool.sum"
fi
echo "wasm: $(/usr/bin/rustc -V), $tool"
