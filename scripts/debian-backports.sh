#!/usr/bin/env bash
# Installs the packages that are named from the backports of the machine's own Debian release, where its own ones are too
# old. Root or sudo. Safe to run again.
set -euo pipefail
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
list=/etc/apt/sources.list.d/uform-backports.list
release=$(. /etc/os-release && echo "$VERSION_CODENAME")

missing=()
for package in "$@"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} = 0 ] && exit 0
if ! [ -e "$list" ]; then
  # The archive that the machine's own sources name, in whichever of the two forms they are written.
  archive=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $release-backports main" |
    $sudo tee "$list" >/dev/null
fi
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  -t "$release-backports" "${missing[@]}" >/dev/null
