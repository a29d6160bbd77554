#!/usr/bin/env bash
# Copyright The karpenter-provider-metal3 Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes a disk image that boots by itself, bin/server-image/disk.qcow2, out of the root file system that
# hack/server-image.sh made: a boot loader, one partition, Debian's kernel. Servers that are virtual machines boot it,
# and Metal3 installs it as it would any other image. The name of its operating system ends with an ID, which is in
# disk.id, so that a Node's osImage identifies the disk. No loop device is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

dir="${PWD}/bin/server-image"
tools="${dir}/tools"
work="${dir}/disk"
# Bytes: the disk, and where its partition starts. The boot loader is in between.
size=$((4 << 30))
start=$((1 << 20))

stamp=$( (cat "${dir}/.layer"; cat hack/server-disk.sh) | sha256sum | cut -d' ' -f1)
id=${stamp::12}
if [[ "$(cat "${dir}/.disk" 2>/dev/null)" == "${stamp}" ]]; then exit 0; fi
if ! command -v mkfs.ext4 >/dev/null; then
  echo "error: there is no mkfs.ext4, which makes the disk of a server: it is in the package e2fsprogs" >&2
  exit 1
fi
began=${SECONDS}
rm -rf "${work}" "${dir}"/{.disk,disk.id,disk.qcow2}
mkdir -p "${work}"/{changes,temporary,root}
trap 'rm -rf "${work}"' EXIT

# The files of this disk only are in an overlay over the root file system, which does not change. The mounts end with
# the subshell.
export work id size start dir
unshare --mount --propagation private bash -euo pipefail <<'LAYERED'
if ! mount -t overlay overlay -o "lowerdir=${dir}/rootfs,upperdir=${work}/changes,workdir=${work}/temporary" "${work}/root"; then
  echo "error: the disk of a server is made over its root file system, and this machine cannot mount an overlay there" >&2
  exit 1
fi
cd "${work}/root"
sed -i "s/^PRETTY_NAME=\"\(.*\)\"/PRETTY_NAME=\"\1, image ${id}\"/" usr/lib/os-release
echo 'LABEL=root / ext4 defaults 0 1' >etc/fstab
# A kernel without modules that no such server needs is loaded in seconds.
echo MODULES=list >etc/initramfs-tools/conf.d/modules
printf '%s\n' virtio_pci virtio_blk ext4 >>etc/initramfs-tools/modules
chroot . update-initramfs -u -k all >"${work}/log" 2>&1 || { cat "${work}/log" >&2; exit 1; }
mkdir -p boot/grub
cat >boot/grub/grub.cfg <<'GRUB'
linux /vmlinuz root=LABEL=root rw console=ttyS0
initrd /initrd.img
boot
GRUB
truncate --size="${size}" "${work}/raw"
# The boot loader does not support newer features of ext4.
mkfs.ext4 -q -F -L root -m 0 -O '^metadata_csum_seed,^orphan_file' -E "offset=${start},lazy_itable_init=1,lazy_journal_init=1" \
  -d . "${work}/raw" $(((size - start) / 1024))k
LAYERED

export LD_LIBRARY_PATH="${tools}/usr/lib/x86_64-linux-gnu:${tools}/lib/x86_64-linux-gnu"
"${tools}/usr/bin/grub-mkimage" --format=i386-pc --directory="${tools}/usr/lib/grub/i386-pc" --prefix='(hd0,msdos1)/boot/grub' \
  --output="${work}/core.img" biosdisk part_msdos ext2 normal linux
write() { dd of="${work}/raw" bs=512 seek="$1" conv=notrunc status=none; }
# The master boot record: the loader's first 446 bytes, a table of one active Linux partition, and the signature.
little_endian() { printf '%b' "$(printf '\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255)))"; }
{
  head --bytes=446 "${tools}/usr/lib/grub/i386-pc/boot.img"
  printf '\x80\xfe\xff\xff\x83\xfe\xff\xff'
  little_endian $((start / 512))
  little_endian $(((size - start) / 512))
  head --bytes=48 /dev/zero
  printf '\x55\xaa'
} | write 0
write 1 <"${work}/core.img"
"${tools}/usr/bin/qemu-img" convert -f raw -O qcow2 "${work}/raw" "${dir}/disk.qcow2"
echo "${id}" >"${dir}/disk.id"
printf '%s' "${stamp}" >"${dir}/.disk"
echo "bin/server-image/disk.qcow2 made in $((SECONDS - began))s, $(du -sm "${dir}/disk.qcow2" | cut -f1) MB"
