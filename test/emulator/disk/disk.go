// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disk is the disk of an emulated server: a directory with the installed image, the config drive, and all that
// the server has written since.
package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Files of a disk with an image.
const (
	// ImageFile is the image, in the format that it came in.
	ImageFile = "image"
	// ConfigDriveFile is an ISO file system with the label config-2; absent if the server was given none.
	ConfigDriveFile = "config-drive.iso"
	// ConsoleFile has the output of the boot command. It belongs to the BMC, and is not part of the disk.
	ConsoleFile = "console.log"
	// DeviceFile is the disk of a server that is a machine, sector by sector.
	DeviceFile = "disk"
	// infoFile describes the image.
	infoFile = "image.json"
	// partSuffix marks files that are still being written.
	partSuffix = ".part"
)

// Image describes the written image.
type Image struct {
	// URL that it was fetched from.
	URL string `json:"url"`
	// Format is qcow2 or raw, as Ironic calls it; may be empty.
	Format string `json:"format,omitempty"`
	// Checksum that it was found to have, with the name of the algorithm before it: sha256:...
	Checksum string `json:"checksum,omitempty"`
	// Bytes is its size.
	Bytes int64 `json:"bytes"`
}

// Disk is the directory of a server. It must exist.
type Disk struct{ Dir string }

// Installed returns the image on the disk, and nil if the disk is empty or was only half written.
func (d Disk) Installed() (*Image, error) {
	data, err := os.ReadFile(filepath.Join(d.Dir, infoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what is on the disk, %w", err)
	}
	image := &Image{}
	if err := json.Unmarshal(data, image); err != nil {
		return nil, fmt.Errorf("reading what is on the disk, %s, %w", infoFile, err)
	}
	return image, nil
}

// Create opens the file that the next image is written to. It erases the disk.
func (d Disk) Create() (io.WriteCloser, error) {
	if err := d.Erase(); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(d.Dir, ImageFile+partSuffix), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("writing the disk, %w", err)
	}
	return file, nil
}

// Commit makes the created file the image on the disk. Its record is written last: without it the disk counts as empty.
func (d Disk) Commit(image Image, configDrive []byte) error {
	if len(configDrive) > 0 {
		if err := os.WriteFile(filepath.Join(d.Dir, ConfigDriveFile), configDrive, 0o600); err != nil {
			return fmt.Errorf("writing the config drive, %w", err)
		}
	}
	path := filepath.Join(d.Dir, ImageFile)
	if err := os.Rename(path+partSuffix, path); err != nil {
		return fmt.Errorf("writing the disk, %w", err)
	}
	data, err := json.MarshalIndent(image, "", "  ")
	if err != nil {
		return fmt.Errorf("recording what is on the disk, %w", err)
	}
	record := filepath.Join(d.Dir, infoFile)
	if err := os.WriteFile(record+partSuffix, data, 0o600); err != nil {
		return fmt.Errorf("recording what is on the disk, %w", err)
	}
	if err := os.Rename(record+partSuffix, record); err != nil {
		return fmt.Errorf("recording what is on the disk, %w", err)
	}
	return nil
}

// MakeDevice makes the disk of a machine, of so many bytes, unless there is one. It takes no space until it is written to.
func (d Disk) MakeDevice(bytes int64) error {
	file, err := os.OpenFile(filepath.Join(d.Dir, DeviceFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("making a disk, %w", err)
	}
	if err := errors.Join(file.Truncate(bytes), file.Close()); err != nil {
		return fmt.Errorf("making a disk, %w", err)
	}
	return nil
}

// Erase removes the image, and everything else that the boot command has written to the directory. The console stays.
func (d Disk) Erase() error {
	// Without its record the disk counts as empty, even if the rest fails.
	if err := os.Remove(filepath.Join(d.Dir, infoFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("erasing the disk, %w", err)
	}
	entries, err := os.ReadDir(d.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("erasing the disk, %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == ConsoleFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.Dir, entry.Name())); err != nil {
			return fmt.Errorf("erasing the disk, %w", err)
		}
	}
	return nil
}
