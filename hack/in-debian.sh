#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command that needs Debian 12 and root, such as hack/server-image.sh: here, if this is both, and otherwise in a privileged
# container of golang's image, with this checkout at its own path. Go's caches are in the volume karpenter-metal3-go. What the command
# makes in bin/ then belongs to you, but for the root file system of servers, whose owners count: `hack/in-debian.sh rm -rf bin` removes
# it.
#
# usage: in-debian.sh COMMAND...
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "error: $*" >&2; exit 1; }
(($# > 0)) || { echo "usage: in-debian.sh COMMAND..." >&2; exit 2; }

# Those made of Debian have its name as well as their own.
is_debian() (
  . "${OS_RELEASE:-/etc/os-release}" 2>/dev/null || exit 1
  [[ "${DEBIAN_CODENAME:-}" == bookworm || ("${ID:-}" == debian && "${VERSION_ID:-}" == 12) ]]
)
if is_debian && [[ "$(id -u)" == 0 ]]; then exec "$@"; fi

reason="this is not Debian 12"
if is_debian; then reason="you are not root"; fi
machine="$(uname -s) on $(uname -m)"
[[ "${machine}" == "Linux on x86_64" ]] || fail "servers are made for Linux on x86-64 only (hack/server-image.sh), and this is ${machine}"
command -v docker >/dev/null || fail "$1 needs Debian 12 and root, and ${reason}: install Docker, for it to run in a container, or run it on such a machine"
problem=$(docker version 2>&1 >/dev/null) || fail "$1 needs a container, for ${reason}, and Docker does not answer: ${problem##*$'\n'}"

# Tools that another version of Go has built are built again: so it is the version that make uses here.
version=$(go env GOVERSION 2>/dev/null || awk '$1 == "go" {print $2; exit}' go.mod)
version=${version#go}
image="golang:${version%% *}-bookworm"
echo "running $1 in a container of ${image}, for ${reason}"
status=0
docker run --rm --privileged --volume "${PWD}:${PWD}" --workdir "${PWD}" --volume karpenter-metal3-go:/caches \
  --env GOMODCACHE=/caches/modules --env GOCACHE=/caches/build --env GOFLAGS=-buildvcs=false --env CGO_ENABLED=0 --env DEBIAN_MIRROR \
  --env OWNER="$(id -u):$(id -g)" "${image}" bash -c '
    status=0
    "$@" || status=$?
    if [[ -d bin ]]; then find bin -path bin/server-image/rootfs -prune -o -user 0 -exec chown --no-dereference "${OWNER}" {} +; fi
    exit "${status}"' in-debian "$@" || status=$?
if ((status == 125)); then fail "the container of ${image} was not started: docker has said why"; fi
exit "${status}"
