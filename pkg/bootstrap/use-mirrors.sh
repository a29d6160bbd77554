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

# The second place is that of Debian's images, whose sources name a file with the URLs.
packages() {
  for file in "$root"/etc/apt/sources.list "$root"/etc/apt/mirrors/*.list "$root"/etc/apt/sources.list.d/*.list \
    "$root"/etc/apt/sources.list.d/*.sources "$root"/etc/yum.repos.d/*.repo; do
    if [ ! -f "$file" ]; then continue; fi
    sed -E -i -f "$state/mirrors.sed" "$file"
    # A list of mirrors would win over a mirror.
    case $file in *.repo) sed -E -i 's/^(mirrorlist|metalink)=/#&/' "$file" ;; esac
  done
}

if [ -f "$state/mirrors-ca.crt" ]; then trust; fi
if [ -f "$state/mirrors.sed" ]; then packages; fi
