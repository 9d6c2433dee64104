#!/usr/bin/env bash
# Builds and runs the C and C++ programs of this folder against the library in target/debug, which it builds first:
# every language standard and compiler that the header promises, then the sanitizers and valgrind.
# `tests/c/run.sh plain`, `standards`, `sanitizers` or `valgrind` runs that step alone.
# Needs gcc, clang, cJSON (libcjson-dev) and valgrind; scripts/setup.sh installs them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

model=${UFORM_TEST_MODEL:-tests/conformance/models/bert-mean}
cases=tests/conformance
built=target/c
folder=$PWD/target/c # of the library under its installed names
warnings=(-Wall -Wextra -Wpedantic -Werror)
programs=(example layout misuse pack threads conformance)
mkdir -p "$built"

compile() { # compile OUTPUT SOURCE COMPILER FLAG...
  local output=$1 source=$2
  shift 2
  "$@" "${warnings[@]}" -g -D_POSIX_C_SOURCE=200809L -Iinclude -isystem /usr/include/cjson "$source" -o "$built/$output" \
    -L"$folder" -Wl,-rpath,"$folder" -luform -lcjson -lpthread -lm
}

run() { # run PROGRAM [PREFIX...]: each with the argument that it takes
  local program=$1
  shift
  case ${program%%-*} in
    layout) "$@" "$built/$program" ;;
    conformance) "$@" "$built/$program" "$cases" ;;
    # Every text is as like to itself as can be.
    example) "$@" "$built/$program" "$model" | awk '{ print } $NR != "1.000" { exit 1 }' ;;
    *) "$@" "$built/$program" "$model" ;;
  esac
}

step() { echo "== $*"; }

plain() {
  for program in "${programs[@]}"; do
    step "$program"
    compile "$program" "tests/c/$program.c" gcc -std=c11
    run "$program"
  done
}

standards() {
  for compiler in gcc clang; do
    for standard in c99 c11 c17; do
      for program in "${programs[@]}"; do
        step "$program with $compiler as $standard"
        compile "$program-$compiler-$standard" "tests/c/$program.c" "$compiler" -std=$standard
      done
      run "layout-$compiler-$standard"
      run "misuse-$compiler-$standard"
    done
  done
  for compiler in g++ clang++; do
    for program in layout misuse pack threads conformance; do
      step "$program with $compiler as c++17"
      compile "$program-$compiler" "tests/c/$program.c" "$compiler" -x c++ -std=c++17
    done
    run "layout-$compiler"
    for exceptions in exceptions no-exceptions; do
      step "cpp with $compiler and $exceptions"
      compile "cpp-$compiler-$exceptions" tests/c/cpp.cpp "$compiler" -std=c++17 "-f$exceptions"
      run "cpp-$compiler-$exceptions"
    done
  done
}

sanitizers() {
  local flags=(-O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  for program in misuse pack threads conformance; do
    step "$program with sanitizers and a search for leaks"
    compile "$program-sanitized" "tests/c/$program.c" gcc -std=c11 "${flags[@]}"
    run "$program-sanitized" env ASAN_OPTIONS=detect_leaks=1
  done
  step "cpp with sanitizers and a search for leaks"
  compile cpp-sanitized tests/c/cpp.cpp g++ -std=c++17 "${flags[@]}"
  run cpp-sanitized env ASAN_OPTIONS=detect_leaks=1
}

valgrind_() {
  for program in misuse threads; do
    step "$program under valgrind"
    compile "$program-valgrind" "tests/c/$program.c" gcc -std=c11 -O1 -DTEST_SHORT
    run "$program-valgrind" valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite
  done
}

cargo build --quiet -p uform-c --features numa
for name in libuform.so libuform.so.4; do ln -sf ../debug/libuform_c.so "$built/$name"; done
case ${1:-all} in
  all) plain; standards; sanitizers; valgrind_ ;;
  plain | standards | sanitizers) "$1" ;;
  valgrind) valgrind_ ;;
  *) echo "run.sh: no step '$1'; there are plain, standards, sanitizers, valgrind" >&2; exit 2 ;;
esac
step "all passed"
