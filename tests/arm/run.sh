#!/usr/bin/env bash
# 64-bit Arm, by emulation: the parity tests of the kernels and the conformance suite, on a processor that has NEON and
# nothing more, where the wider class is refused, and on one with everything that the emulator knows.
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
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() { # CPU COMMAND...: runs it on that processor, in the folder of the package
  local cpu=$1
  shift
  (cd uform-rs && qemu-aarch64 -cpu "$cpu" -L /usr/aarch64-linux-gnu "$@")
}

# Each processor with the widest class of its own kernels that it runs, the one that it lacks, and which parity tests: all
# on the wider one, whose classes are the narrower one's too; there as many as run each kernel once.
while read -r cpu class lacking tests; do
  echo "$cpu, class $class"
  # shellcheck disable=SC2086
  run "$cpu" "$parity" $tests 2>&1 | tee "$log"
  found=$(sed -n 's/.*NOT RUN on this machine: //p' "$log")
  [ "${found:-none}" = "$lacking" ] || { echo "arm: $cpu lacks '$found', not '$lacking'" >&2; exit 1; }
  for suite in "$engine" "$package"; do UFORM_CPU_CLASS=$class run "$cpu" "$suite"; done
  [ "$lacking" = none ] && continue
  if UFORM_CPU_CLASS=$lacking run "$cpu" "$package" >"$log" 2>&1; then
    echo "arm: $cpu does not refuse $lacking" >&2
    exit 1
  fi
  grep -q "CPU class $lacking cannot run here" "$log" || { cat "$log"; exit 1; }
  echo "$cpu refuses $lacking"
done <<'TABLE'
cortex-a72 aws-g2 apple-m2 rows:: support:: attention::attention_matches gemm::products_of_bytes gemm::layers_in_narrow
max apple-m2 none
TABLE
