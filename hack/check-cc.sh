#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints one sentence if there is no C compiler, which the race detector needs.
set -euo pipefail

compiler=$(go env CC)
if ! command -v "${compiler%% *}" >/dev/null; then
  echo "error: the race detector needs a C compiler, and ${compiler} is not in PATH; on Debian: apt-get install gcc libc6-dev" >&2
  exit 1
fi
if ! echo '#include <stdlib.h>' | ${compiler} -E - >/dev/null 2>&1; then
  echo "error: ${compiler} does not find the headers of the C library, which the race detector needs; on Debian: apt-get install libc6-dev" >&2
  exit 1
fi
