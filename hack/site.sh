#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the documentation as a site, with Hugo and the theme of tools/site.
#
# usage: site.sh DIRECTORY      it is emptied first. BASE_URL is the address that the site will have, / by default.
set -euo pipefail
if (($# != 1)); then
  echo "usage: site.sh DIRECTORY" >&2
  exit 2
fi
mkdir -p "$1"
directory=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
hack/build-tools.sh site
bin/hugo --source site --themesDir "${PWD}/bin/themes" --theme hextra --cacheDir "${PWD}/bin/.hugo" --noBuildLock --panicOnWarning \
  --cleanDestinationDir --destination "${directory}" --baseURL "${BASE_URL:-/}"
