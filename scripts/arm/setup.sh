#!/usr/bin/env bash
# Makes a Debian machine able to build for aarch64-unknown-linux-gnu: a compiler with its standard library for that target
# and a C++ compiler that links. Afterwards `cargo +uform-debian build --target aarch64-unknown-linux-gnu` works, with
# CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc. Root or sudo. Safe to run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
target=aarch64-unknown-linux-gnu
sudo=$([ "$(id -u)" = 0 ] || echo sudo)

../debian-rust.sh g++-aarch64-linux-gnu

# The library for that target is Debian's own, of the other architecture but the same version. What it depends on there is
# not needed, so that it is unpacked, not installed, and looked up in lists apart from the machine's.
version=$(dpkg-query -W -f '${Version}' libstd-rust-web-dev)
library=$(/usr/bin/rustc --print sysroot)/lib/rustlib/$target
if [ "$(cat "$library/.version" 2>/dev/null)" != "$version" ]; then
  work=$(mktemp -d)
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  # The user that apt downloads as has to reach it.
  chmod -R a+rX "$work"
  arm=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$work/lists"
    -o Dir::Cache="$work/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=)
  apt-get "${arm[@]}" update
  (cd "$work" && apt-get "${arm[@]}" download "libstd-rust-web-dev:arm64=$version")
  dpkg-deb -x "$work"/libstd-rust-web-dev_*_arm64.deb "$work/unpacked"
  $sudo rm -rf "$library"
  $sudo cp -r "$work/unpacked/usr/lib/rustlib/$target" "$library"
  echo "$version" | $sudo tee "$library/.version" >/dev/null
  rm -rf "$work"
fi
echo "arm: $(/usr/bin/rustc -V), $(aarch64-linux-gnu-gcc -dumpfullversion)"
