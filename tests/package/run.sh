#!/usr/bin/env bash
# Installs the library into a fresh prefix, moves that elsewhere, and builds and runs a project against it: by pkg-config
# and by CMake, shared and static, in C and C++. Needs pkg-config, CMake, gcc.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

model=$(realpath "${UFORM_TEST_MODEL:-tests/conformance/models/bert-mean}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { echo "== $*"; }

step "install into a fresh prefix, and move it"
scripts/install.sh "$work/first" --debug --numa
mv "$work/first" "$work/prefix"
prefix=$work/prefix
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
unset LD_LIBRARY_PATH

needed() { readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(libuform.*\)\]/\1/p'; }
expect() { # expect PROGRAM shared|static: runs, and is linked as said
  "$1" "$model" >"$work/output"
  tail -1 "$work/output"
  local found expected=""
  found=$(needed "$1")
  if [ "$2" = shared ]; then expected=$(readelf -d "$prefix/lib/libuform.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p'); fi
  [ "$found" = "$expected" ] || { echo "$1 is linked to '$found', expected '$expected'" >&2; exit 1; }
}

version=$(pkg-config --modversion uform)
step "pkg-config finds version $version"
[ "$version" = "$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)" ]

read -ra cflags <<<"$(pkg-config --cflags uform)"
read -ra shared <<<"$(pkg-config --libs uform) -Wl,-rpath,$(pkg-config --variable=libdir uform)"
read -ra static <<<"$(pkg-config --variable=libdir uform)/libuform.a $(pkg-config --static --libs uform | sed 's/-luform\b//')"
for kind in shared static; do
  declare -n libraries=$kind
  step "pkg-config, $kind, C"
  gcc -std=c99 "${cflags[@]}" tests/c/example.c -o "$work/c-$kind" "${libraries[@]}"
  expect "$work/c-$kind" $kind
  step "pkg-config, $kind, C++"
  g++ -std=c++17 "${cflags[@]}" tests/package/consumer/main.cpp -o "$work/cpp-$kind" "${libraries[@]}"
  expect "$work/cpp-$kind" $kind
done

for kind in shared static; do
  step "CMake, $kind"
  [ $kind = shared ] && wanted=ON || wanted=OFF
  cmake -S tests/package/consumer -B "$work/build-$kind" -DCMAKE_PREFIX_PATH="$prefix" -DBUILD_SHARED_LIBS=$wanted \
    -DCMAKE_BUILD_TYPE=Debug >"$work/log" || { cat "$work/log"; exit 1; }
  cmake --build "$work/build-$kind" >"$work/log" || { cat "$work/log"; exit 1; }
  expect "$work/build-$kind/consumer_c" $kind
  expect "$work/build-$kind/consumer_cpp" $kind
done

step "CMake refuses another major version"
mkdir "$work/other"
sed 's/find_package(uform 4.0/find_package(uform 5.0/' tests/package/consumer/CMakeLists.txt >"$work/other/CMakeLists.txt"
if cmake -S "$work/other" -B "$work/other/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1; then
  echo "version 5.0 was accepted" >&2
  exit 1
fi
grep -q 'considered but not accepted' "$work/log" || { cat "$work/log"; exit 1; }
step "all passed"
