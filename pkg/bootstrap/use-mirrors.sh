#!/bin/sh
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Has a server trust the CA of mirrors, and has the repositories that its package manager is configured with be those of mirrors.
#
# usage: use-mirrors.sh
set -eu

# NODE_ROOT is empty on a server; tests set it.
root=${NODE_ROOT:-}
state=$root/var/lib/karpenter-metal3

has() { command -v "$1" >/dev/null 2>&1; }

trust() {
  if has update-ca-certificates; then
    directory=$root/usr/local/share/ca-certificates update=update-ca-certificates
  elif has update-ca-trust; then
    directory=$root/etc/pki/ca-trust/source/anchors update=update-ca-trust
  else
    echo "use-mirrors: error: the image has neither update-ca-certificates nor update-ca-trust, and the mirrors cannot be verified:" \
      "use an image that has the package ca-certificates" >&2
    exit 1
  fi
  mkdir -p "$directory"
  cat "$state/mirrors-ca.crt" >"$directory/karpenter-metal3-mirrors.crt"
  "$update"
}

# A list of mirrors would win over a mirror. A repository whose baseurl has not changed has no mirror, and keeps its list.
without_lists() {
  awk 'FNR == 1 { file++; repository = "" }
    /^\[/ { repository = $0 }
    file == 1 { was[FNR] = $0; next }
    file == 2 { if (/^baseurl/ && $0 != was[FNR]) mirrored[repository] = 1; next }
    mirrored[repository] && /^(mirrorlist|metalink)/ { $0 = "#" $0 }
    { print }' "$1" "$2" "$2"
}

# The second place is that of Debian's images, whose sources name a file with the URLs.
packages() {
  changed=$state/mirrors.changed
  for file in "$root"/etc/apt/sources.list "$root"/etc/apt/mirrors/*.list "$root"/etc/apt/sources.list.d/*.list \
    "$root"/etc/apt/sources.list.d/*.sources "$root"/etc/yum.repos.d/*.repo; do
    if [ ! -f "$file" ]; then continue; fi
    sed -E -f "$state/mirrors.sed" "$file" >"$changed"
    case $file in *.repo) without_lists "$file" "$changed" ;; *) cat "$changed" ;; esac >"$state/mirrors.new"
    cat "$state/mirrors.new" >"$file" # the file keeps its mode and its label
  done
}

if [ -f "$state/mirrors-ca.crt" ]; then trust; fi
if [ -f "$state/mirrors.sed" ]; then packages; fi
