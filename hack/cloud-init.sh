#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks Debian's cloud-init, with the Python packages that it needs, into bin/cloud-init, so that tests can check our
# documents with it. Nothing is installed, and nothing is changed outside of bin/. Then bin/cloud-init/cloud-init runs
# it, with the system's Python.
set -euo pipefail
cd "$(dirname "$0")/.."

dir="${PWD}/bin/cloud-init"
stamp="${dir}/.unpacked"
packages=(cloud-init python3-attr python3-configobj python3-jinja2 python3-markupsafe python3-json-pointer python3-jsonpatch
  python3-jsonschema python3-pyrsistent python3-netifaces python3-oauthlib python3-requests python3-urllib3 python3-chardet
  python3-charset-normalizer python3-idna python3-certifi python3-yaml python3-six python3-serial)

if [[ "$(cat "${stamp}" 2>/dev/null)" == "${packages[*]}" ]]; then
  exit 0
fi
for tool in apt-get dpkg-deb /usr/bin/python3; do
  if ! command -v "${tool}" >/dev/null; then
    echo "error: there is no ${tool}: the tests of user data and network data need Debian, or something made of it" >&2
    exit 1
  fi
done

rm -rf "${dir}"
mkdir -p "${dir}/packages" "${dir}/root"
echo "unpacking Debian's cloud-init into bin/cloud-init"
download() { (cd "${dir}/packages" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}" 2>"${dir}/log"); }
# A new machine has no list of packages, or an old one.
if ! download && ! { apt-get -qq update && download; }; then
  cat "${dir}/log" >&2
  echo "error: cloud-init cannot be downloaded from Debian" >&2
  exit 1
fi
for package in "${dir}"/packages/*.deb; do
  dpkg-deb --extract "${package}" "${dir}/root"
done
rm -rf "${dir}/packages" "${dir}/log"

cat >"${dir}/cloud-init" <<'SCRIPT'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/root
export PYTHONPATH="$root/usr/lib/python3/dist-packages" PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 -W ignore -c 'import sys; sys.argv[0] = "cloud-init"; from cloudinit.cmd.main import main; sys.exit(main())' "$@"
SCRIPT
chmod +x "${dir}/cloud-init"
printf '%s' "${packages[*]}" >"${stamp}"
