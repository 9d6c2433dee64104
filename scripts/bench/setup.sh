#!/usr/bin/env bash
# Sets up what scripts/bench/run.py compares UForm with, each from its Python packages:
#
#   scripts/bench/setup.sh [FOLDER]        FOLDER is ${UFORM_CACHE:-~/.cache/uform}/bench if not given
#
# FOLDER/onnxruntime            ONNX Runtime and what its worker needs
# FOLDER/sentence-transformers  the reference libraries; a link to an environment that scripts/fixtures/setup.sh made serves as well
# FOLDER/uform                  an empty environment with NumPy; install the wheel of uform there
# FOLDER/work                   the model as ONNX, the tokenizer and the texts
set -euo pipefail

folder=${1:-${UFORM_CACHE:-${HOME:?}/.cache/uform}/bench}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
onnxruntime=1.32.0 onnx=1.23.2 numpy=2.4.6 tokenizers=0.23.3

mkdir -p "$folder"
[ -e "$folder/sentence-transformers/bin/python" ] || "$root/scripts/fixtures/setup.sh" "$folder/sentence-transformers"
for name in onnxruntime uform; do
    [ -x "$folder/$name/bin/python" ] || python3 -m venv "$folder/$name"
done
pip="-m pip install --quiet --disable-pip-version-check"
"$folder/onnxruntime/bin/python" $pip "onnxruntime==$onnxruntime" "numpy==$numpy" "tokenizers==$tokenizers"
"$folder/uform/bin/python" $pip "numpy==$numpy"

# Only the export needs these, so that they do not count as a part of any engine.
"$folder/sentence-transformers/bin/python" $pip --target "$folder/tools" --upgrade --no-deps "onnx==$onnx" "onnxruntime==$onnxruntime" protobuf ml-dtypes flatbuffers
PYTHONPATH=$folder/tools "$folder/sentence-transformers/bin/python" "$here/prepare.py" "$("$root/scripts/get-model.sh")" "$folder/work"
