#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks Debian's Chromium without a window, with the libraries and a font that it needs, into bin/chromium, so that tests can look at
# the page. Nothing is installed, and nothing is changed outside of bin/. Then bin/chromium/chromium runs it.
set -euo pipefail
cd "$(dirname "$0")/.."

dir="${PWD}/bin/chromium"
stamp="${dir}/.unpacked"
script=$(sha256sum "$0")

if [[ "$(cat "${stamp}" 2>/dev/null)" == "${script}" ]]; then
  exit 0
fi
for tool in apt-get apt-cache dpkg-deb; do
  if ! command -v "${tool}" >/dev/null; then
    echo "error: there is no ${tool}: the tests of the page need Debian, or something made of it" >&2
    exit 1
  fi
done

rm -rf "${dir}"
mkdir -p "${dir}/packages" "${dir}/root"
echo "unpacking Debian's Chromium into bin/chromium"
# The libraries that a machine has already are unpacked, too: another machine has others. That of C is the machine's. LLVM is for
# graphics cards.
download() {
  local packages=(chromium-headless-shell chromium-common fonts-dejavu-core) libraries
  mapfile -t libraries < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances chromium-headless-shell 2>"${dir}/log" | grep -E '^(lib|zlib)[^:]*$' | grep -vE '^(libc6|libcrypt1|libllvm.*)$' | sort -u)
  ((${#libraries[@]} > 0)) || { echo "apt does not know chromium-headless-shell" >>"${dir}/log"; return 1; }
  (cd "${dir}/packages" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}" "${libraries[@]}" 2>"${dir}/log")
}
# A new machine has no list of packages, or an old one.
if ! download && ! { apt-get -qq update && download; }; then
  cat "${dir}/log" >&2
  echo "error: Chromium cannot be downloaded from Debian" >&2
  exit 1
fi
for package in "${dir}"/packages/*.deb; do
  dpkg-deb --extract "${package}" "${dir}/root"
done
rm -rf "${dir}/packages" "${dir}/log" "${dir}"/root/{etc,usr/bin,usr/share/{doc,man,locale,lintian,bash-completion}}

cat >"${dir}/fonts.conf" <<FONTS
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>${dir}/root/usr/share/fonts</dir>
  <cachedir>${dir}/fonts</cachedir>
  <alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
FONTS
cat >"${dir}/chromium" <<'SCRIPT'
#!/bin/sh
dir=$(dirname "$(readlink -f "$0")")
machine=$(uname -m)-linux-gnu
export LD_LIBRARY_PATH="$dir/root/usr/lib/$machine:$dir/root/lib/$machine:$dir/root/usr/lib/$machine/pulseaudio"
export FONTCONFIG_FILE="$dir/fonts.conf"
exec "$dir/root/usr/lib/chromium/chromium-headless-shell" "$@"
SCRIPT
chmod +x "${dir}/chromium"
printf '%s' "${script}" >"${stamp}"
