#!/bin/sh
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes a server fit to be a Kubernetes node: a container runtime that kubelet can talk to, kubelet, kubeadm, and the
# kernel settings that they need. What the image has is left as it is, and nothing is installed that it has.
#
# usage: prepare-node.sh [--ipv6] [MINOR]
#   --ipv6   the API server is joined by an IPv6 address
#   MINOR    the Kubernetes version to install where it is missing, such as v1.35
set -eu

ipv6=
if [ "${1:-}" = --ipv6 ]; then ipv6=$1; shift; fi
minor=${1:-}
# NODE_ROOT is empty on a server; tests set it.
root=${NODE_ROOT:-}
packages=https://pkgs.k8s.io/core:/stable:
# Where there are mirrors, use-mirrors.sh has come before.
mirrors=$root/var/lib/karpenter-metal3/mirrors.sed
if [ -f "$mirrors" ]; then packages=$(echo "$packages" | sed -E -f "$mirrors"); fi

say() { echo "prepare-node: $*" >&2; }
fail() { say "error: $*"; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
unit() { if has systemctl; then systemctl "$@"; fi; }

# A failure inside $(...) ends the script only where its result is assigned, so it always is.
manager() {
  for candidate in apt-get dnf yum; do
    if has "$candidate"; then echo "$candidate"; return; fi
  done
  fail "the image lacks $1 and has no apt-get, dnf or yum to install it with: use an image that has it"
}

install_packages() {
  with=$(manager "$1")
  say "installing $*"
  case $with in
    apt-get) DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@" ;;
    dnf) dnf install -y "$@" ;;
    yum) yum install -y "$@" ;;
  esac || fail "$with cannot install $*: its repositories lack it or do not answer; have one that does in the image, or a mirror of it"
}

refresh() {
  with=$(manager "$1")
  if [ "$with" = apt-get ]; then apt-get -o DPkg::Lock::Timeout=600 update; fi
}

# packaged says whether a configuration is as its Debian package brought it, so that no operator's work is overwritten.
packaged() {
  if ! has dpkg-query; then return 1; fi
  sum=$(md5sum <"$root$1")
  # dpkg-query expands it, not the shell.
  # shellcheck disable=SC2016
  dpkg-query --show --showformat '${Conffiles}\n' | grep -q "^ $1 ${sum%% *}"
}

# setting sets one of the kernel's, now and at each boot, unless it is so already. In the name of an interface, sysctl has / for a dot.
setting() {
  if [ "$(cat "$root/proc/sys/$1" 2>/dev/null)" = "$2" ]; then return; fi
  mkdir -p "$root/etc/sysctl.d"
  key=$(echo "$1" | tr ./ /.)
  echo "$key = $2" >>"$root/etc/sysctl.d/90-kubernetes-node.conf"
  sysctl -w "$key=$2" || say "$key cannot be set"
}

kernel() {
  for name in overlay br_netfilter; do
    if [ -d "$root/sys/module/$name" ]; then continue; fi
    mkdir -p "$root/etc/modules-load.d"
    echo "$name" >>"$root/etc/modules-load.d/kubernetes-node.conf"
    modprobe "$name" || say "no kernel module $name; it may be built in"
  done
  for name in net/ipv4/ip_forward net/bridge/bridge-nf-call-iptables net/bridge/bridge-nf-call-ip6tables; do setting "$name" 1; done
  if [ -n "$ipv6" ]; then forward_ipv6; fi
  if [ "$(wc -l <"$root/proc/swaps")" -gt 1 ]; then
    say "turning swap off, which kubelet does not start with"
    swapoff -a
    unit mask swap.target
  fi
}

# Without forwarding, kubeadm does not join by an IPv6 address. With it, an interface takes no more routes from router advertisements
# unless accept_ra is 2. The interfaces of pods must take none, so the default of interfaces to come stays.
forward_ipv6() {
  for file in "$root"/proc/sys/net/ipv6/conf/*/accept_ra; do
    name=${file#"$root/proc/sys/"}
    case $name in */all/* | */default/* | */lo/*) continue ;; esac
    if [ "$(cat "$file" 2>/dev/null)" = 1 ]; then setting "$name" 2; fi
  done
  for name in all default; do setting "net/ipv6/conf/$name/forwarding" 1; done
}

runtime() {
  if has crio; then
    unit enable --now crio
    return
  fi
  if ! has containerd; then
    refresh containerd
    install_packages containerd
  fi
  configuration=/etc/containerd/config.toml registries=/etc/containerd/certs.d
  # A package's file has kubelet's cgroup driver unset, and that of Docker's turns off the interface that kubelet uses.
  if [ ! -s "$root$configuration" ] || packaged "$configuration" || grep -q '^ *disabled_plugins *=.*"cri"' "$root$configuration"; then
    say "configuring containerd"
    mkdir -p "$root/etc/containerd"
    containerd config default | sed -e 's/SystemdCgroup = false/SystemdCgroup = true/' -e 's/enable_cdi = false/enable_cdi = true/' \
      -e "s,^\( *config_path = \)[\"']\{2\}\$,\1\"$registries\"," >"$root$configuration"
    unit restart containerd
  fi
  unit enable --now containerd
  # Without this line a pod would run, its claim would be allocated, and nothing would say why the container has no device.
  if ! containerd config dump | grep -q 'enable_cdi = true'; then
    say "warning: CDI is off: containerd is older than 1.7, which has none, or $configuration does not turn it on;" \
      "containers get no devices from DRA drivers"
  fi
  if [ -d "$root$registries" ] && ! containerd config dump | grep -q "^ *config_path = .*$registries"; then
    say "warning: mirrors of registries are not used: set config_path = \"$registries\" in $configuration"
  fi
}

kubernetes() {
  missing=
  for name in kubelet kubeadm; do
    if ! has "$name"; then missing="$missing $name"; fi
  done
  if [ -n "$missing" ]; then
    [ -n "$minor" ] || fail "the image lacks$missing, and the version to install is not known: use an image that has them"
    with=$(manager "$missing")
    case $with in
      apt-get)
        has curl || { refresh curl; install_packages curl ca-certificates; }
        mkdir -p "$root/etc/apt/keyrings" "$root/etc/apt/sources.list.d"
        curl -fsSL --retry 5 -o "$root/etc/apt/keyrings/kubernetes.asc" "$packages/$minor/deb/Release.key"
        echo "deb [signed-by=/etc/apt/keyrings/kubernetes.asc] $packages/$minor/deb/ /" >"$root/etc/apt/sources.list.d/kubernetes.list"
        refresh kubelet
        ;;
      *)
        mkdir -p "$root/etc/yum.repos.d"
        printf '[kubernetes]\nname=Kubernetes\nbaseurl=%s\nenabled=1\ngpgcheck=1\ngpgkey=%s\n' \
          "$packages/$minor/rpm/" "$packages/$minor/rpm/repodata/repomd.xml.key" >"$root/etc/yum.repos.d/kubernetes.repo"
        ;;
    esac
    # The list is meant to be split.
    # shellcheck disable=SC2086
    install_packages $missing
  fi
  unit enable kubelet
}

kernel
runtime
kubernetes
