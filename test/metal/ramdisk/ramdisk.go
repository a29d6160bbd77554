// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ramdisk is what a server boots by network to be inspected, installed and cleaned: Debian's kernel, and a root file system with
// one program, the agent of package deployagent on the hardware of the machine that it runs on.
package ramdisk

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/initramfs"
)

// Program is the name of the agent, in bin.
const Program = "deploy-agent"

// Kernel is the path of the kernel, of which `make server-image` has made the file.
func Kernel(bin string) string { return filepath.Join(bin, "server-image", "rootfs", "vmlinuz") }

// Build returns the root file system, compressed, with the agent in bin, and the modules for a virtual machine's disk and network.
func Build(bin string) ([]byte, error) {
	program, err := os.ReadFile(filepath.Join(bin, Program))
	if err != nil {
		return nil, fmt.Errorf("making the deploy ramdisk, %w", err)
	}
	archive := initramfs.New()
	archive.Add("/init", program)
	if err := archive.AddModules(filepath.Join(bin, "server-image", "rootfs"), "virtio_pci", "virtio_net", "virtio_blk"); err != nil {
		return nil, fmt.Errorf("making the deploy ramdisk, %w", err)
	}
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	if _, err := writer.Write(archive.End()); err != nil {
		return nil, fmt.Errorf("making the deploy ramdisk, %w", err)
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("making the deploy ramdisk, %w", err)
	}
	return compressed.Bytes(), nil
}
