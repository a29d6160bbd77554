// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Mount is for the first process of the machine: it mounts the file systems of the kernel, and loads the modules.
func Mount() error {
	for _, mount := range []struct{ kind, path string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := unix.Mount(mount.kind, mount.path, mount.kind, 0, ""); err != nil {
			return fmt.Errorf("mounting %s, %w", mount.path, err)
		}
	}
	paths, err := filepath.Glob(modules + "/*")
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := load(path); err != nil {
			return fmt.Errorf("loading module %s, %w", path, err)
		}
	}
	return nil
}

func load(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing was written
	return unix.FinitModule(int(file.Fd()), "", 0)
}
