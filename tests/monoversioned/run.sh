#!/usr/bin/env bash
# The build for one kind of machine: the parity tests of the kernels and the conformance suite with what the compiler assumes
# anyway and with AVX2, the refusal of every other class, and that of a machine with less.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v qemu-x86_64 >/dev/null ||
  { echo "monoversioned: qemu-x86_64 is missing; scripts/setup.sh test installs it" >&2; exit 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT

suites() { # FLAG...: both suites, built by cargo with those flags
  cargo test --quiet "$@" -p uform-c -p uform --features uform-c/numa,uform/monoversioned --test parity --test conformance
}

refused() { # TEXT COMMAND...: fails with a sentence that holds the text, and not by a signal
  local text=$1 status=0
  shift
  "$@" >"$log" 2>&1 || status=$?
  if [ $status = 0 ] || [ $status -ge 128 ] || ! grep -q "$text" "$log"; then
    cat "$log"
    echo "monoversioned: ended with $status, not by a refusal that says '$text'" >&2
    exit 1
  fi
}

echo "for every machine"
suites
refused "CPU class serial cannot run here; this machine runs monoversioned" env UFORM_CPU_CLASS=serial \
  cargo test --quiet -p uform --features uform-c/numa,monoversioned --test conformance

[ "$(uname -m)" = x86_64 ] || exit 0
echo "with AVX2"
export RUSTFLAGS="-C target-feature=+avx2,+fma,+f16c,+bmi1,+bmi2,+lzcnt,+popcnt"
built=${CARGO_TARGET_DIR:-target}/monoversioned
flags=(--target-dir "$built" --config 'profile.dev.package."*".opt-level=1' --config 'profile.dev.debug=0')
grep -qw avx2 /proc/cpuinfo || export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="qemu-x86_64 -cpu Haswell"
suites "${flags[@]}"

# Every call into the library first looks at the machine. A program of C has no AVX of its own that would end it before that.
cargo build --quiet "${flags[@]}" -p uform-c --features numa,monoversioned
gcc -Iinclude -D_POSIX_C_SOURCE=200809L tests/c/example.c -o "$built/example" "$built/debug/libuform_c.so" -lm
ln -sf libuform_c.so "$built/debug/libuform.so.4"
refused "CPU class monoversioned cannot run here" env LD_LIBRARY_PATH="$built/debug" \
  qemu-x86_64 -cpu Nehalem "$built/example" tests/conformance/models/bert-mean
cat "$log"
