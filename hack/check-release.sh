#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Fails if the commit cannot be released: a release must be that of one commit, under one version.
#
# usage: check-release.sh VERSION DIRTY      VERSION is the charts' appVersion; anything for DIRTY lets through what no commit has
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -z "$2" && -n "$(git status --porcelain)" ]]; then
  echo "error: there are changes that no commit has, and a release could not be made again; commit them, or set RELEASE_DIRTY=yes:" >&2
  git status --short >&2
  exit 1
fi
tag=$(git describe --tags --exact-match --match 'v*' 2>/dev/null || true)
if [[ -n "${tag}" && "${tag}" != "$1" ]]; then
  echo "error: the commit has the tag ${tag}, and the charts the appVersion $1; set appVersion and version in charts/*/Chart.yaml" >&2
  exit 1
fi
