#!/usr/bin/env bash
# 64-bit Arm, by emulation: the parity tests of the kernels and the conformance suite, on a processor that has NEON and
# nothing more, where the wider class is refused, and on one with everything that the emulator knows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for program in qemu-aarch64 aarch64-linux-gnu-gcc; do
  command -v $program >/dev/null || { echo "arm: $program is missing; scripts/setup.sh test installs it" >&2; exit 1; }
done

# The tests of the same name on this machine have other features, which would be built for nothing else here.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
built=$(cargo +uform-debian test --quiet --no-run --target aarch64-unknown-linux-gnu \
  --target-dir "${CARGO_TARGET_DIR:-target}/arm" -p uform-c -p uform --no-default-features \
  --test parity --test conformance --message-format=json)
binary() { # NAME: the executable of that test
  python3 -c '
import json, sys
built = [message for message in map(json.loads, sys.stdin) if message.get("executable")]
print([message["executable"] for message in built if message["target"]["name"] == sys.argv[1]][-1])' "$1" <<<"$built"
}
parity=$(binary parity)
conformance=$(binary conformance)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() { # CPU COMMAND...: runs it on that processor
  local cpu=$1
  shift
  qemu-aarch64 -cpu "$cpu" -L /usr/aarch64-linux-gnu "$@"
}

# Each processor with the widest class of its own kernels that it runs, and the classes that it lacks.
while read -r cpu class lacking; do
  echo "$cpu"
  (cd uform-c && run "$cpu" "$parity" 2>&1) | tee "$log"
  found=$(sed -n 's/.*NOT RUN on this machine: //p' "$log")
  [ "$found" = "$lacking" ] || { echo "arm: $cpu lacks classes '$found', not '$lacking'" >&2; exit 1; }
  (cd uform-rs && UFORM_CPU_CLASS=$class run "$cpu" "$conformance" --quiet)
  if [ -n "$lacking" ]; then
    if (cd uform-rs && UFORM_CPU_CLASS=$lacking run "$cpu" "$conformance") >"$log" 2>&1; then
      echo "arm: $cpu did not refuse $lacking" >&2
      exit 1
    fi
    grep -q "CPU class $lacking cannot run here" "$log" || { cat "$log"; exit 1; }
  fi
done <<'TABLE'
cortex-a72 aws-g2 apple-m2
max apple-m2
TABLE
