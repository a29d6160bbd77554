#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Signs a release that is complete. The program that signs gets COSIGN_KEY and COSIGN_PASSWORD, and no other: neither the compiler that
# builds it, nor what that starts.
#
# usage: release-sign.sh FOLDER
set -euo pipefail
key=${COSIGN_KEY:-} password=${COSIGN_PASSWORD:-}
unset COSIGN_KEY COSIGN_PASSWORD
cd "$(dirname "$0")/.."

hack/check-go.sh
scratch=$(mktemp -d)
trap 'rm -rf "${scratch}"' EXIT
go -C tools/release build -o "${scratch}/signer" .
COSIGN_KEY=${key} COSIGN_PASSWORD=${password} "${scratch}/signer" sign --from "$1"
