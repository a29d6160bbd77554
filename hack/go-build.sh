#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs "go build" (or "go test -c") for several programs at once: while one program is linked, others are compiled. It shows one line
# of progress, which counts first the Go modules that are downloaded, and then the packages that are compiled. Where everything is
# cached it prints nothing.
#
# usage: go-build.sh MODULE OUTPUT LDFLAGS TAGS PACKAGE...      MODULE is the folder of the Go module. OUTPUT is a folder, ending in "/",
#                                                               or the file of the only program. BUILD_COMMAND="test -c" builds tests.
set -euo pipefail
module=$1 output=$2 ldflags=$3 tags=$4
shift 4
read -r -a command <<<"${BUILD_COMMAND:-build}"
# The list of packages needs the same tags, or it downloads modules that the build does not need.
[[ -z "${tags}" ]] || export GOFLAGS="${GOFLAGS:-} -tags=${tags}"
cd "${module}"
work=$(mktemp -d)
trap 'rm -rf "${work}"' EXIT
shown=${SECONDS}

# say TEXT [final]: on a terminal the text replaces the last one; elsewhere it is a line every 15 seconds.
say() {
  if [[ -t 2 ]]; then
    printf '\r\033[K  %s' "$1" >&2
    [[ -z "${2:-}" ]] || echo >&2
  elif [[ -n "${2:-}" ]] || ((SECONDS - shown >= 15)); then
    printf '  %s\n' "$1" >&2
    shown=${SECONDS}
  fi
}

# count PATTERN FORMAT: counts the input's lines that match, says so by the format, and keeps all other lines.
count() {
  local n=0 line
  while IFS= read -r line; do
    if [[ "${line}" =~ $1 ]]; then
      n=$((n + 1))
      # shellcheck disable=SC2059
      say "$(printf "$2, %ds" "${n}" "${SECONDS}")"
    else
      printf '%s\n' "${line}" >>"${work}/other"
    fi
  done
  # shellcheck disable=SC2059
  ((n == 0)) || say "$(printf "$2, %ds" "${n}" "${SECONDS}")" final
}

fail() {
  cat "${work}/other" >&2
  exit 1
}
listed=(list -deps)
[[ "${command[0]}" != test ]] || listed+=(-test)
go "${listed[@]}" "$@" 2>&1 >"${work}/packages" | count '^go: (downloading|finding) ' '%d Go modules downloaded' || fail
# The go command names only packages that are not in its cache, so the total is an upper bound.
go "${command[@]}" -v -ldflags "${ldflags}" -o "${output}" "$@" 2>&1 |
  count '^[A-Za-z0-9_.~/-]+$' "%d packages compiled, of at most $(wc -l <"${work}/packages")" || fail
