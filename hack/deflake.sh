#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests until one fails, each time in another order, while loops keep the cores busy. Then it prints the log of the run that
# failed, and its seed. The environment says what to run:
#
#   PKG    the packages, such as ./pkg/dra or ./test/...
#   RUN    the tests, as go test -run takes them; all without it
#   COUNT  how many runs at most; without it, there is no end until one fails
#   SEED   the seed of the first run, to repeat one
#   LOAD   how many loops; as many as there are cores without it
#   LAG    how late the watches of test/env are at most, such as 300ms; not at all without it
#   RACE   yes turns the race detector on, which needs a C compiler
#   SHORT  yes leaves out the tests of make test-system
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -z "${PKG:-}" ]]; then
  echo "usage: make deflake PKG=./pkg/dra [RUN=TestName] [COUNT=10] [SEED=1] [LOAD=2] [LAG=300ms] [RACE=yes] [SHORT=yes]" >&2
  exit 2
fi
build=()
if [[ "${RACE:-}" == yes ]]; then
  hack/check-cc.sh
  export CGO_ENABLED=1
  build=(-race)
fi
flags=("-test.run=${RUN:-.}" -test.v -test.timeout=45m)
if [[ "${SHORT:-}" == yes ]]; then flags+=(-test.short); fi

if [[ -n "${LAG:-}" ]]; then export TEST_WATCH_LAG=${LAG}; fi

work=$(mktemp -d)
loops=()
cleanup() {
  if ((${#loops[@]} > 0)); then
    kill "${loops[@]}" 2>/dev/null || true
    wait "${loops[@]}" 2>/dev/null || true
  fi
  rm -rf "${work}"
}
trap cleanup EXIT
trap 'exit 1' TERM INT

# Each package is linked once, and not for each run.
folders=() paths=()
listed=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}}{{end}}' ${PKG})
while read -r folder path; do
  [[ -n "${path}" ]] || continue
  go test -c "${build[@]}" -o "${work}/${#paths[@]}.test" "${path}"
  folders+=("${folder}") paths+=("${path}")
done <<<"${listed}"

# A loop ends by itself if this script is killed.
for ((i = 0; i < ${LOAD:-$(nproc)}; i++)); do
  bash -c 'while kill -0 "$1" 2>/dev/null; do for ((n = 0; n < 100000; n++)); do :; done; done' loop "$$" &
  loops+=("$!")
done

for ((run = 1; run <= ${COUNT:-run}; run++)); do
  passed=0
  for i in "${!paths[@]}"; do
    seed=${SEED:-$((RANDOM * 32768 + RANDOM))} began=${SECONDS} status=0
    unset SEED
    (cd "${folders[i]}" && exec "${work}/${i}.test" "-test.shuffle=${seed}" "${flags[@]}") >"${work}/log" 2>&1 || status=$?
    took="$((SECONDS - began)) s, seed ${seed}"
    if ((status != 0)); then
      cat "${work}/log"
      echo "FAIL: run ${run} of ${paths[i]} after ${took}; the same order again: SEED=${seed}" >&2
      exit 1
    fi
    counted=$(grep -c '^--- PASS: ' "${work}/log" || true)
    passed=$((passed + counted))
    echo "ok: run ${run} of ${paths[i]}, ${counted} tests passed, ${took}"
  done
  if ((passed == 0)); then
    echo "error: no test of ${PKG} has run: RUN is ${RUN:-.}" >&2
    exit 1
  fi
done
