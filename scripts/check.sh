#!/usr/bin/env bash
# Checks that the sources keep the rules of the house. `scripts/check.sh` runs all of them, `scripts/check.sh abi docs`
# only those two, `scripts/check.sh --list` says what each demands. Needs Python 3.11 alone, besides what scripts/generate.sh
# needs for `generated`, a C compiler, nm and a built library for `abi`, and objdump for `assembly`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec python3 scripts/checks "$@"
