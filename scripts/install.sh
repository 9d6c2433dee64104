#!/usr/bin/env bash
# Builds the library and installs it for C and C++: shared and static library, headers, pkg-config and CMake files.
# Usage: scripts/install.sh PREFIX [--debug] [--numa]. Whatever lies in PREFIX may be moved elsewhere afterwards.
# `--debug` installs the development build; `--numa` builds in NUMA placement, for which hwloc has to be there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n 's/^# Usage: /usage: /p' "$0" >&2; exit 2; }
prefix=${1:-}
case $prefix in "" | -*) usage ;; esac
shift
profile=release flags=(--release) extra=""
for option in "$@"; do
  case $option in
    --debug) profile=debug flags=("${flags[@]/--release/}") ;;
    --numa) flags+=(--features numa) extra="-lhwloc" ;;
    *) usage ;;
  esac
done

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
major=${version%%.*}
case $(uname -s) in
  Linux) built=libuform_c.so shared=libuform.so.$version soname=libuform.so.$major plain=libuform.so ;;
  Darwin) built=libuform_c.dylib shared=libuform.$version.dylib soname=libuform.$major.dylib plain=libuform.dylib ;;
  *) echo "install.sh: knows Linux and macOS only, this is $(uname -s)" >&2; exit 1 ;;
esac

# shellcheck disable=SC2086 # an empty flag is no flag
cargo build -p uform-c ${flags[*]}

# What a program that links the static library needs: the system libraries of Rust, which rustc knows, and hwloc.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
private=$(rustc --crate-type staticlib --crate-name empty --print native-static-libs -o "$scratch/empty.a" - \
  </dev/null 2>&1 | sed -n 's/^note: native-static-libs: //p')
[ -n "$private" ] || { echo "install.sh: rustc does not say what static libraries need" >&2; exit 1; }
private="$private${extra:+ $extra}"

fill() { # fill TEMPLATE TARGET [SEPARATOR of libraries]
  sed -e "s|@VERSION@|$version|g" -e "s|@MAJOR@|$major|g" -e "s|@SHARED@|$shared|g" -e "s|@SONAME@|$soname|g" \
    -e "s|@PRIVATE@|${private// /${3:- }}|g" "scripts/package/$1" >"$2"
}

mkdir -p "$prefix/include/uform" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/uform"
install -m 644 include/uform.h include/uform.hpp "$prefix/include/"
install -m 644 include/uform/values.hpp "$prefix/include/uform/"
install -m 755 "target/$profile/$built" "$prefix/lib/$shared"
ln -sf "$shared" "$prefix/lib/$soname"
ln -sf "$soname" "$prefix/lib/$plain"
install -m 644 "target/$profile/libuform_c.a" "$prefix/lib/libuform.a"
fill uform.pc.in "$prefix/lib/pkgconfig/uform.pc"
fill uformConfig.cmake.in "$prefix/lib/cmake/uform/uformConfig.cmake" ";"
fill uformConfigVersion.cmake.in "$prefix/lib/cmake/uform/uformConfigVersion.cmake"
echo "installed UForm $version into $prefix"
