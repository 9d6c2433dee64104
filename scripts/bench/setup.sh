#!/usr/bin/env bash
# Sets up what scripts/bench/run.py compares UForm with, each from its packages, in an environment of its own:
#
#   scripts/bench/setup.sh [--model all-MiniLM-L6-v2 | bert-base | bert-large] [FOLDER]
#
# FOLDER is ${UFORM_CACHE:-~/.cache/uform}/bench if not given. bert-base and bert-large have random weights; they need a
# run of this script each, 2 and 6 GB of disk, and 8 and 20 GB of memory while they are prepared.
#
# FOLDER/NAME      one environment per peer; a link to what scripts/fixtures/setup.sh made serves as sentence-transformers
# FOLDER/uform     an environment with NumPy; install the wheel of uform there
# FOLDER/node      transformers.js, and the package of uform where `npm pack` made one
# FOLDER/rust      the workers in Rust: candle, and uform of this checkout
# FOLDER/ceilings  a program that measures what the machine can do at most
# FOLDER/tools     what only preparing needs, so that it does not count as a part of any peer
# FOLDER/work      for each model: its files in the peers' formats, and the texts
set -euo pipefail

model=all-MiniLM-L6-v2
if [ "${1:-}" = --model ]; then
    model=${2:?--model needs a name}
    shift 2
fi
folder=${1:-${UFORM_CACHE:-${HOME:?}/.cache/uform}/bench}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
numpy=2.4.6 tokenizers=0.23.3 onnx=1.23.2 onnxruntime=1.32.0 openvino=2026.4.1 nncf=3.4.0 ctranslate2=4.8.5 fastembed=0.9.1

install() { # install ENVIRONMENT PACKAGE...
    [ -x "$folder/$1/bin/python" ] || python3 -m venv "$folder/$1"
    "$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"
}

mkdir -p "$folder"
[ -e "$folder/sentence-transformers/bin/python" ] || "$root/scripts/fixtures/setup.sh" "$folder/sentence-transformers"
install uform "numpy==$numpy"
install onnxruntime "onnxruntime==$onnxruntime" "numpy==$numpy" "tokenizers==$tokenizers"
install openvino "openvino==$openvino" "numpy==$numpy" "tokenizers==$tokenizers"
install ctranslate2 "ctranslate2==$ctranslate2" "numpy==$numpy" "tokenizers==$tokenizers"
install fastembed "fastembed==$fastembed" "onnxruntime==$onnxruntime"

# Without its scripts, which fetch what only a GPU needs.
mkdir -p "$folder/node"
cp "$here/node/package.json" "$here/node/package-lock.json" "$folder/node/"
npm ci --prefix "$folder/node" --silent --ignore-scripts

# candle chooses its instructions when it is built, UForm when it runs.
for name in candle uform; do
    RUSTFLAGS=$([ $name = candle ] && echo "-C target-cpu=native") cargo build --quiet --release --locked \
        --manifest-path "$here/rust/Cargo.toml" --features $name --target-dir "$folder/rust/$name"
done
rustc --edition 2024 -O "$here/ceilings.rs" -o "$folder/ceilings"

mkdir -p "$folder/tools"
"$folder/sentence-transformers/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$folder/tools/export" \
    "onnx==$onnx" "onnxruntime==$onnxruntime" "ctranslate2==$ctranslate2" protobuf ml-dtypes flatbuffers
install tools/quantize "nncf==$nncf" "openvino==$openvino" "tokenizers==$tokenizers" "numpy==$numpy"

source=$model
[ "$model" = all-MiniLM-L6-v2 ] && source=$("$root/scripts/get-model.sh")
"$root/scripts/get-model.sh" >/dev/null
PYTHONPATH=$folder/tools/export "$folder/sentence-transformers/bin/python" "$here/prepare.py" "$source" "$folder/work/$model"
"$folder/tools/quantize/bin/python" "$here/prepare_openvino.py" "$folder/work/$model"
