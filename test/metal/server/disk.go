// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

// prettyName is the line of os-release that a Node reports as its operating system.
var prettyName = regexp.MustCompile(`(?m)^PRETTY_NAME="([^"]*)"$`)

// nameImage adds the checksum of the installed image to the name of the operating system, so that the Node shows it.
func nameImage(o Options, root string) error {
	image, err := os.Open(o.InstalledImage())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the image that was installed, %w", err)
	}
	defer func() { _ = image.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, image); err != nil {
		return fmt.Errorf("reading the image that was installed, %w", err)
	}
	release, err := os.ReadFile(filepath.Join(o.Image, "rootfs", osRelease))
	if err != nil {
		return fmt.Errorf("reading the name of the operating system, %w", err)
	}
	release = prettyName.ReplaceAll(release, fmt.Appendf(nil, `PRETTY_NAME="$1, image %x"`, hash.Sum(nil)[:6]))
	if err := writeFile(filepath.Join(root, osRelease), release, 0o644); err != nil {
		return fmt.Errorf("writing the name of the operating system, %w", err)
	}
	return nil
}

// writeDevices writes the list of the server's accelerators for the device plugin.
func writeDevices(o Options, root string) error {
	target := filepath.Join(root, "etc/server/devices.json")
	devices, err := os.ReadFile(o.Devices())
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the accelerators that the server had, %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the accelerators of the server, %w", err)
	}
	return writeFile(target, devices, 0o644)
}

// writeConfigDrive unpacks the config drive to where cloud-init looks for it. Without a config drive, cloud-init finds none. A server
// without network data asks for an address by DHCP.
func writeConfigDrive(o Options, root string) error {
	if err := unpackConfigDrive(o.ConfigDrive(), filepath.Join(root, configDriveSeed)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
