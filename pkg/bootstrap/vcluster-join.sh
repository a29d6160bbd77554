#!/bin/sh
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Fetches the join script that a vCluster serves and runs it. The request holds the join token, so it is read from a
# file, where the list of processes does not show it, and deleted with the script when the join is done.
#
# usage: vcluster-join.sh REQUEST CA
set -eu

request=$1
ca=$2
script=$(mktemp)

command -v curl >/dev/null 2>&1 || { echo "vcluster-join: error: the image lacks curl: use an image that has it" >&2; exit 1; }

until curl --fail --silent --show-error --proto =https --max-time 60 --cacert "$ca" --config "$request" --output "$script"; do
  echo "vcluster-join: the tenant does not hand out its join script; trying again in 5 seconds" >&2
  sleep 5
done
sh "$script"
rm -f "$script" "$request"
