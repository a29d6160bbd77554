#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes the root file system of a server that can become a Kubernetes node, out of Debian's packages, in
# bin/server-image/rootfs: systemd, cloud-init, and our containerd, kubelet, kubeadm and CNI plugins. There too are the
# tools that start such a server (tools/), container images that need no registry (images/), and packages for servers that
# have theirs from a mirror (mirror/). Nothing is installed, and nothing is changed outside of bin/. It needs root for file
# owners and chroot.
#
# Environment: DEBIAN_MIRROR, the URL of Debian's packages; by default where apt gets them from.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=bookworm
mirror=${DEBIAN_MIRROR:-}
bin="${PWD}/bin"
dir="${bin}/server-image"
rootfs="${dir}/rootfs"
tools="${dir}/tools"
tool_packages=(debootstrap debian-archive-keyring runc libseccomp2 genisoimage libmagic1 libmagic-mgc
  # For servers that are virtual machines, and their disks: an emulator, a boot loader, and their libraries.
  qemu-system-x86 qemu-system-common qemu-system-data qemu-utils seabios ipxe-qemu grub-pc-bin grub-common libaio1 libbpf1 libcapstone4 libdaxctl1
  libdevmapper1.02.1 libelf1 libfdt1 libffi8 libfuse3-3 libglib2.0-0 libgmp10 libgnutls30 libhogweed6 libibverbs1 libidn2-0
  libjpeg62-turbo libkmod2 libndctl6 libnettle8 libnl-3-200 libnl-route-3-200 libnuma1 libp11-kit0 libpixman-1-0 libpmem1 libpng16-16
  librdmacm1 libsasl2-2 libslirp0 libtasn1-6 libunistring2 liburing2 libvdeplug2
  # For the switch of servers, which is a virtual machine, too.
  openvswitch-switch openvswitch-common libcap-ng0 libevent-2.1-7 libssl3 libunbound8 libxdp1 zlib1g)
# cloud-init's ifupdown configuration needs net-tools for routes; debootstrap misses the dependency on
# python3-cffi-backend. curl fetches the join script of a vCluster.
packages=(systemd systemd-sysv dbus udev ifupdown net-tools iproute2 iputils-ping netbase procps mount kmod sudo ca-certificates curl openssh-server
  cloud-init python3-cffi-backend containerd runc iptables ebtables ethtool conntrack socat linux-image-cloud-amd64 initramfs-tools)
# For servers that install packages at their first boot: of a node, and of Slurm with what the root file system lacks for it.
mirror_packages=(containerd runc libhwloc15 liblua5.1-0 libmunge2 libnuma1 munge slurm-client slurm-wlm-basic-plugins slurmctld slurmd)

fail() { echo "error: $*" >&2; exit 1; }
# A stamp holds what a part was made from. Without that, the part is made again.
made() { [[ "$(cat "${dir}/.$1" 2>/dev/null)" == "$2" ]]; }

check() {
  [[ "$(uname -s)-$(uname -m)" == Linux-x86_64 ]] || fail "a server image can be made on Linux on x86-64 only, and this is $(uname -s) on $(uname -m)"
  ((EUID == 0)) || fail "making a root file system needs root, for its owners and for chroot; without it, everything but \`make e2e-metal\` still runs"
  local tool missing=()
  for tool in apt-get dpkg-deb gpgv unshare chroot; do
    command -v "${tool}" >/dev/null || missing+=("${tool}")
  done
  ((${#missing[@]} == 0)) || fail "there is no ${missing[*]}: server images are made on Debian, or something made of it (gpgv is in the package of that name, unshare is in util-linux)"
  unshare --mount --propagation private true 2>/dev/null || fail "this machine does not allow mount namespaces (unshare --mount), even for root: are we in a container that lacks CAP_SYS_ADMIN?"
}

# A machine that is new has no list of packages, or an old one.
download() {
  local directory=$1
  shift
  rm -rf "${directory}"
  mkdir -p "${directory}"
  fetch() { (cd "${directory}" && apt-get -qq -o APT::Sandbox::User=root download "$@" 2>"${dir}/log"); }
  if ! fetch "$@" && ! { apt-get -qq update && fetch "$@"; }; then
    cat "${dir}/log" >&2
    fail "$* cannot be downloaded from Debian"
  fi
  rm -f "${dir}/log"
}

fetch_mirror() {
  local stamp="${mirror_packages[*]}"
  if made mirror "${stamp}"; then return; fi
  echo "downloading ${stamp} into bin/server-image/mirror"
  download "${dir}/mirror" "${mirror_packages[@]}"
  printf '%s' "${stamp}" >"${dir}/.mirror"
}

unpack_tools() {
  local stamp="${tool_packages[*]}"
  if made tools "${stamp}"; then return; fi
  echo "unpacking debootstrap, runc, genisoimage, qemu, grub and Open vSwitch into bin/server-image/tools"
  rm -rf "${tools}"
  mkdir -p "${tools}"
  download "${dir}/download" "${tool_packages[@]}"
  local package
  for package in "${dir}"/download/*.deb; do dpkg-deb --extract "${package}" "${tools}"; done
  rm -rf "${dir}/download"
  printf '%s' "${stamp}" >"${dir}/.tools"
}

bootstrap() {
  local stamp="${suite} ${packages[*]}"
  if made rootfs "${stamp}"; then return; fi
  local start=${SECONDS} include
  if [[ -z "${mirror}" ]]; then
    mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' | awk -v suite="${suite}" '$1 == suite && $2 == "main" {print $3; exit}')
    [[ -n "${mirror}" ]] || fail "apt knows of no Debian ${suite} on this machine: set DEBIAN_MIRROR to the URL of one"
  fi
  include=$(IFS=,; echo "${packages[*]}")
  echo "making a Debian root file system in bin/server-image/rootfs, which takes minutes"
  rm -rf "${rootfs}" "${dir}/.rootfs" "${dir}/.layer"
  mkdir -p "${dir}/packages" "${rootfs}/etc/dpkg/dpkg.cfg.d"
  # No fsync for each file: an incomplete file system is made again.
  echo force-unsafe-io >"${rootfs}/etc/dpkg/dpkg.cfg.d/unsafe-io"
  # In a separate mount namespace, so that the mounts of debootstrap are gone even if it fails.
  if ! DEBOOTSTRAP_DIR="${tools}/usr/share/debootstrap" unshare --mount --propagation private \
    "${tools}/usr/sbin/debootstrap" --variant=minbase --include="${include}" --cache-dir="${dir}/packages" \
    --keyring="${tools}/usr/share/keyrings/debian-archive-keyring.gpg" "${suite}" "${rootfs}" "${mirror}" >"${dir}/debootstrap.log" 2>&1; then
    tail -n 5 "${dir}/debootstrap.log" >&2
    tail -n 10 "${rootfs}/debootstrap/debootstrap.log" >&2 || true
    fail "debootstrap has failed; ${dir}/debootstrap.log says more"
  fi
  # Remove what no server needs, and what must differ between servers.
  rm -rf "${rootfs}"/var/cache/apt/* "${rootfs}"/var/lib/apt/lists/* "${rootfs}"/usr/share/{doc,man,locale,info} "${rootfs}"/etc/ssh/ssh_host_* \
    "${rootfs}/var/lib/dbus/machine-id" "${rootfs}/etc/dpkg/dpkg.cfg.d/unsafe-io"
  : >"${rootfs}/etc/machine-id"
  : >"${rootfs}/etc/resolv.conf"
  echo localhost >"${rootfs}/etc/hostname"
  rm -rf "${dir}/packages"
  printf '%s' "${stamp}" >"${dir}/.rootfs"
  echo "made in $((SECONDS - start))s, $(du -sm "${rootfs}" | cut -f1) MB"
}

# Our part: configuration, Kubernetes, and container images.
layer() {
  local stamp
  stamp=$( (cat "${dir}/.rootfs" "${bin}"/.stamps/{kubelet,kubeadm,containerd,containerd-shim-runc-v2,ctr,cni/*}; go version; find hack/server-image.sh test/metal/image test/metal/images go.sum -type f -print0 | sort -z | xargs -0 sha256sum) | sha256sum)
  if made layer "${stamp}"; then return; fi
  rm -f "${dir}/.layer"
  cp -a --no-preserve=ownership test/metal/image/rootfs/. "${rootfs}/"
  # Debian's containerd is 1.6, which has no CDI: the devices of a DRA driver would not reach a container. Its service and runc fit ours.
  install -m 0755 "${bin}"/{kubelet,kubeadm,containerd,containerd-shim-runc-v2,ctr} "${rootfs}/usr/bin/"
  mkdir -p "${rootfs}/opt/cni/bin" "${rootfs}/usr/share/container-images" "${rootfs}/etc/kubernetes/manifests" "${dir}/images"
  install -m 0755 "${bin}"/cni/* "${rootfs}/opt/cni/bin/"
  go run ./test/metal/images/build --output "${dir}/images"
  # The device plugin runs beside the kubelet, as a program of the image.
  install -m 0644 "${dir}/images"/{pause,workload}.tar "${rootfs}/usr/share/container-images/"
  install -m 0755 "${dir}/images/bin/device-plugin" "${rootfs}/usr/local/bin/"
  unshare --mount --propagation private chroot "${rootfs}" systemctl --quiet enable kubelet container-images device-plugin
  printf '%s' "${stamp}" >"${dir}/.layer"
  echo "bin/server-image is up to date"
}

check
mkdir -p "${dir}"
hack/build-tools.sh cluster node
unpack_tools
fetch_mirror
bootstrap
layer
