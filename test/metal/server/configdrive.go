// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kdomanski/iso9660"
)

const (
	// configDriveLabel is the volume label of a config drive.
	configDriveLabel = "config-2"
	// configDriveSeed is where cloud-init's datasource ConfigDrive looks for an unpacked config drive.
	configDriveSeed = "var/lib/cloud/seed/config_drive"
)

// unpackConfigDrive writes the files of a config drive, an ISO 9660 image, below a directory. Mounting it would need
// kernel support and a loop device, and a machine has few of those.
func unpackConfigDrive(image, directory string) error {
	file, err := os.Open(image)
	if err != nil {
		return fmt.Errorf("opening the config drive, %w", err)
	}
	defer func() { _ = file.Close() }()
	volume, err := iso9660.OpenImage(file)
	if err != nil {
		return fmt.Errorf("reading config drive %s, it is not an ISO 9660 image: %w", image, err)
	}
	label, err := volume.Label()
	if err != nil {
		return fmt.Errorf("reading the label of config drive %s, %w", image, err)
	}
	if label = strings.TrimSpace(label); !strings.EqualFold(label, configDriveLabel) {
		return fmt.Errorf("config drive %s is labelled %q: cloud-init requires %q", image, label,
			configDriveLabel)
	}
	root, err := volume.RootDir()
	if err != nil {
		return fmt.Errorf("reading config drive %s, %w", image, err)
	}
	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("removing what was unpacked before, %w", err)
	}
	if err := unpackDirectory(root, directory); err != nil {
		return fmt.Errorf("unpacking config drive %s, %w", image, err)
	}
	return nil
}

func unpackDirectory(source *iso9660.File, target string) error {
	// It holds tokens.
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	children, err := source.GetChildren()
	if err != nil {
		return err
	}
	for _, child := range children {
		if !filepath.IsLocal(child.Name()) || strings.ContainsRune(child.Name(), filepath.Separator) {
			return fmt.Errorf("%q is not the name of a file", child.Name())
		}
		path := filepath.Join(target, child.Name())
		if child.IsDir() {
			if err := unpackDirectory(child, path); err != nil {
				return err
			}
			continue
		}
		if err := unpackFile(child, path); err != nil {
			return err
		}
	}
	return nil
}

func unpackFile(source *iso9660.File, path string) error {
	target, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source.Reader())
	return errors.Join(err, target.Close())
}
