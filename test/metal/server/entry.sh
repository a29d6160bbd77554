#!/bin/sh
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The first program of a server that is a container. It sets up what cannot be set up from outside, and executes
# systemd.
set -eu

# The settings of the network are the server's own.
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,rw /proc/sys/net

# Other settings are the machine's and must not change. The kubelet requires some: files with the required values
# replace them.
mkdir -p /run/server-settings
setting() {
  name=$1
  if [ ! -e "/proc/sys/$name" ]; then return; fi
  file=/run/server-settings/$(echo "$name" | tr / .)
  echo "$2" >"$file"
  mount --bind "$file" "/proc/sys/$name"
}
setting vm/overcommit_memory 1
setting vm/panic_on_oom 0
setting kernel/panic 10
setting kernel/panic_on_oops 1
setting kernel/keys/root_maxkeys 1000000
setting kernel/keys/root_maxbytes 25000000

exec /sbin/init
