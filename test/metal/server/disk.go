// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// installation is the file with the image and config drive that the disk was made from.
const installation = "installation"

// prepareDisk makes the disk of the server, or empties it after a new installation. Without one, the server keeps its
// disk.
func prepareDisk(o Options) error {
	want, err := installed(o)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(o.disk(installation))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading what the disk of the server was made from, %w", err)
	}
	if err == nil && string(content) == want {
		return nil
	}
	if err := os.RemoveAll(o.disk()); err != nil {
		return fmt.Errorf("emptying the disk of the server, %w", err)
	}
	for _, directory := range []string{"upper", "work", "containerd", "kubelet"} {
		if err := os.MkdirAll(o.disk(directory), 0o755); err != nil {
			return fmt.Errorf("making the disk of the server, %w", err)
		}
	}
	if err := os.WriteFile(o.disk(installation), []byte(want), 0o600); err != nil {
		return fmt.Errorf("writing what the disk of the server was made from, %w", err)
	}
	return nil
}

// installed describes the installation: image, config drive, and the root file system that replaces the image.
func installed(o Options) (string, error) {
	var description string
	for _, path := range []string{o.InstalledImage(), o.ConfigDrive(), filepath.Join(o.Image, ".layer")} {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			description += filepath.Base(path) + " none\n"
			continue
		}
		if err != nil {
			return "", fmt.Errorf("looking for what was installed on the server, %w", err)
		}
		description += fmt.Sprintf("%s %d bytes of %s\n", filepath.Base(path), info.Size(),
			info.ModTime().UTC().Format("2006-01-02T15:04:05.000000000Z"))
	}
	return description, nil
}
