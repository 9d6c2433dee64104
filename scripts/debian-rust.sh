#!/usr/bin/env bash
# Installs Debian's own Rust compiler as the toolchain `uform-debian`, beside what rustup has, with the packages that are
# named. Its library's source and its library for other processors are packaged at the very version of the compiler, so
# that it builds for targets that rustup was not asked for. Root or sudo. Safe to run again.
set -euo pipefail
sudo=$([ "$(id -u)" = 0 ] || echo sudo)

missing=()
for package in rustc-web cargo-web "$@"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} != 0 ]; then
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
rustup toolchain link uform-debian /usr
