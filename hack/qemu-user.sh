#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks the emulator of arm64 out of Debian's QEMU into bin/qemu-aarch64, for tests to run programs for arm64 on another machine.
# Nothing is installed, the kernel is not told of it, and nothing is changed outside of bin/.
set -euo pipefail
cd "$(dirname "$0")/.."

package=qemu-user-static
if [[ -x bin/qemu-aarch64 ]]; then
  exit 0
fi
for tool in apt-get dpkg-deb; do
  if ! command -v "${tool}" >/dev/null; then
    echo "error: there is no ${tool}: the emulator of arm64 needs Debian, or something made of it" >&2
    exit 1
  fi
done

mkdir -p bin
dir=$(mktemp -d)
trap 'rm -rf "${dir}"' EXIT
echo "unpacking the emulator of arm64 of Debian's QEMU into bin/qemu-aarch64"
download() { (cd "${dir}" && apt-get -qq -o APT::Sandbox::User=root download "${package}" 2>log); }
# A new machine has no list of packages, or an old one.
if ! download && ! { apt-get -qq update && download; }; then
  cat "${dir}/log" >&2
  echo "error: ${package} cannot be downloaded from Debian" >&2
  exit 1
fi
dpkg-deb --extract "${dir}"/*.deb "${dir}/root"
install "${dir}/root/usr/bin/qemu-aarch64-static" bin/qemu-aarch64
