#!/usr/bin/env bash
# 64-bit Arm, by emulation: the parity tests of the kernels and the conformance suite, class after class on a processor that has
# just what it needs, with streaming vectors of several lengths, and the refusal of classes that a processor lacks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for program in qemu-aarch64 aarch64-linux-gnu-g++; do
  command -v $program >/dev/null || { echo "arm: $program is missing; scripts/setup.sh test installs it" >&2; exit 1; }
done

# What is tested is compiled as everywhere, what it depends on sooner. Nothing else looks at warnings of this target.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-D warnings"
built=$(cargo +uform-debian test --quiet --no-run --target aarch64-unknown-linux-gnu \
  --target-dir "${CARGO_TARGET_DIR:-target}/arm" --message-format=json-render-diagnostics \
  --config 'profile.dev.package."*".opt-level=1' --config 'profile.dev.debug=0' \
  -p uform-c -p uform --no-default-features --test parity --test conformance)
binary() { # FOLDER NAME: the executable of that test
  python3 -c '
import json, sys
for message in map(json.loads, sys.stdin):
    if message.get("executable") and sys.argv[1] in message["manifest_path"].split("/"):
        if message["target"]["name"] == sys.argv[2]:
            print(message["executable"])' "$1" "$2" <<<"$built"
}
parity=$(binary uform-c parity)
engine=$(binary uform-c conformance)
package=$(binary uform-rs conformance)
sme() { # BITS: streaming vectors of that length, and no other
  echo "sme=on,sme$1=on,sme-default-vector-length=$(($1 / 8))"
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() { # CPU CLASS COMMAND...: runs it on that processor as that class, in the folder of the package
  local cpu=$1 class=$2
  shift 2
  (cd uform-rs && UFORM_CPU_CLASS=$class qemu-aarch64 -cpu "$cpu" -L /usr/aarch64-linux-gnu "$@")
}

# Each processor with a class, all classes that run there, one that it refuses, the suites, and the parity tests, all where none
# are named.
while read -r cpu class runnable refused suites tests; do
  echo "$cpu as $class"
  # shellcheck disable=SC2086
  run "$cpu" "$class" "$parity" --quiet $tests
  # The suites have one thread each.
  for suite in ${suites//,/ }; do run "$cpu" "$class" "${!suite}" --quiet & done
  for job in $(jobs -p); do wait "$job"; done
  if run "$cpu" "$refused" "$package" >"$log" 2>&1; then
    echo "arm: $cpu does not refuse $refused" >&2
    exit 1
  fi
  grep -q "CPU class $refused cannot run here; this machine runs $runnable\"" "$log" || { cat "$log"; exit 1; }
  echo "$cpu refuses $refused"
done <<TABLE
cortex-a72 aws-g2 serial,aws-g2 apple-m2 engine,package
neoverse-v1 apple-m2 serial,aws-g2,apple-m2 apple-m4 engine,package
neoverse-n2 aws-g5 serial,aws-g2,apple-m2,aws-g5 nvidia-vera engine support::
max,$(sme 512) apple-m4 serial,aws-g2,apple-m2,apple-m4,aws-g5 nvidia-vera engine,package gemm:: attention:: za:: support::
max,$(sme 256) apple-m4 serial,aws-g2,apple-m2,apple-m4,aws-g5 nvidia-vera , gemm::a_row gemm::any_cut za::
max,$(sme 128) apple-m4 serial,aws-g2,apple-m2,apple-m4,aws-g5 nvidia-vera , gemm::a_row gemm::any_cut za::
TABLE
