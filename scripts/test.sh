#!/usr/bin/env bash
# Everything that has to hold before a change lands, cheapest first. Each step can be run alone: scripts/test.sh NAME...
# A step that cannot run fails. Prints what each took beside its budget in seconds, on two cores.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export UFORM_CACHE=${UFORM_CACHE:-$HOME/.cache/uform}
export PATH=$HOME/.cargo/bin:$PATH
export CARGO_TERM_COLOR=never

step_setup() { scripts/setup.sh test && scripts/get-model.sh; }
step_format() { cargo fmt --all --check; }
step_checks() { cargo build --quiet -p uform-c --features numa && scripts/check.sh; }
step_lint() {
  cargo clippy --quiet --workspace --all-targets --features uform-c/numa,uform/cli,uform/numa -- -D warnings &&
    cargo clippy --quiet -p uform-c --no-default-features --all-targets -- -D warnings
}
step_engine() { cargo test --quiet -p uform-c --features numa; }
step_rust() { cargo test --quiet -p uform --features cli,numa; }
# Every class that this machine can run, pinned from outside, gives the reference's vectors.
step_classes() {
  local class classes
  classes=$(cargo run --quiet -p uform --features cli,numa --bin uform -- info --classes) || return 1
  [ -n "$classes" ] || return 1
  for class in $classes; do
    echo "class $class"
    UFORM_CPU_CLASS=$class cargo test --quiet -p uform --features cli,numa --test conformance || return 1
  done
}
step_emulated() { tests/emulated/run.sh; }
step_monoversioned() { tests/monoversioned/run.sh; }
step_arm() { tests/arm/run.sh; }
step_c() { tests/c/run.sh; }
step_package() { tests/package/run.sh; }
step_node() { (cd uform-node && npm ci --silent --ignore-scripts && npm run --silent build && npm test --silent); }
step_python() { uform-python/scripts/test.sh "$UFORM_CACHE/python"; }
step_wasm() { tests/wasm/run.sh; }
step_docs() {
  RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps -p uform -p uform-c --features uform-c/numa &&
    python3 scripts/readme.py
}

budget() {
  case $1 in
    setup) echo 420 ;; lint) echo 300 ;; engine) echo 300 ;; rust) echo 180 ;; c) echo 240 ;;
    arm | monoversioned | node | python | wasm) echo 240 ;; *) echo 120 ;;
  esac
}

all="setup format checks lint engine rust classes emulated monoversioned arm c package node python wasm docs"
passed=0 failed=0 lines=()
for name in ${*:-$all}; do
  echo "=== $name"
  start=$SECONDS
  if "step_$name"; then verdict=passed passed=$((passed + 1)); else verdict=FAILED failed=$((failed + 1)); fi
  took=$((SECONDS - start))
  over=$([ "$took" -le "$(budget "$name")" ] || echo "  over its budget")
  lines+=("$(printf '%-13s %-7s %5d s of %5d s%s' "$name" "$verdict" "$took" "$(budget "$name")" "$over")")
  echo "${lines[-1]}"
done
printf '\n%s\n' "steps:" "${lines[@]}" "all: $SECONDS s"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
