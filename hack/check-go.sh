#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints one sentence if the Go installation does not fit.
set -euo pipefail
cd "$(dirname "$0")/.."

want=$(awk '$1 == "go" {print $2; exit}' go.mod)
if ! command -v go >/dev/null; then
  echo "error: the go command is not in PATH; install Go ${want} or newer from https://go.dev/dl/" >&2
  exit 1
fi
have=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null)
have=${have#go}
have=${have%% *}
# A newer toolchain that the go command downloads counts as installed.
if [[ "$(printf '%s\n%s\n' "${want}" "${have}" | sort -V | head -n1)" != "${want}" ]] && ! go list -m >/dev/null 2>&1; then
  echo "error: go.mod needs Go ${want} or newer, but $(command -v go) is ${have}: set GOTOOLCHAIN=auto, so that the go command gets it" \
    "from the module proxy (GOTOOLCHAIN is $(go env GOTOOLCHAIN)), or install it from https://go.dev/dl/" >&2
  exit 1
fi
