#!/usr/bin/env bash
# Smaller x86 machines, by emulation: the library loads, says its class, refuses wider ones with a status, and gives the
# reference's vectors. The same binary as everywhere else, so that a wide instruction outside dispatch is caught.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v qemu-x86_64 >/dev/null || { echo "emulated: qemu-x86_64 is missing; scripts/setup.sh test installs it" >&2; exit 1; }

binary() { # NAME ARGUMENTS: the executable of that test or program, built by cargo so
  local name=$1
  shift
  cargo "$@" --message-format=json 2>/dev/null | python3 -c '
import json, sys
built = [message for message in map(json.loads, sys.stdin) if message.get("executable")]
print([message["executable"] for message in built if message["target"]["name"] == sys.argv[1]][-1])' "$name"
}
conformance=$(binary conformance test --no-run -p uform --features cli,numa --test conformance)
program=$(binary uform build -p uform --features cli,numa --bin uform)

# Each CPU with the widest class that it can run, and those that it refuses.
while read -r cpu class refused; do
  classes=$(qemu-x86_64 -cpu "$cpu" "$program" info --classes 2>/dev/null)
  [ "${classes##*$'\n'}" = "$class" ] || { echo "$cpu: expected $class, found $classes" >&2; exit 1; }
  for wider in $refused; do
    if message=$(UFORM_CPU_CLASS=$wider qemu-x86_64 -cpu "$cpu" "$program" info --classes 2>&1); then
      echo "$cpu: class $wider was not refused" >&2
      exit 1
    fi
    grep -q "$wider" <<<"$message" || { echo "$cpu: the refusal of $wider does not name it: $message" >&2; exit 1; }
  done
  (cd uform-rs && qemu-x86_64 -cpu "$cpu" "$conformance" --quiet)
  echo "$cpu runs as $class and refuses $refused"
done <<'TABLE'
Nehalem serial intel-haswell
Haswell intel-haswell intel-skylake intel-sapphire intel-granite
TABLE
