// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vm"
)

// Programs that servers boot by.
const (
	// faithful servers are virtual machines, which boot the disk that Ironic has written.
	faithful = "boot-vm"
	// light servers are containers, which boot in seconds, and know what Ironic has written by its checksum.
	light = "boot-server"
)

// bestServers returns what the servers are that need not be light.
func bestServers(t *testing.T) string {
	t.Helper()
	wanted, err := vm.Wanted()
	if err != nil {
		t.Fatal(err)
	}
	if wanted {
		return faithful
	}
	return light
}

// missingDisk says what is not there that virtual machines need.
func missingDisk(bin string) error {
	var errs []error
	if _, err := os.Stat(filepath.Join(bin, faithful)); err != nil {
		errs = append(errs, errors.New("bin/boot-vm is missing: run `make boot-vm`"))
	}
	if _, err := os.Stat(filepath.Join(bin, "server-image", "disk.id")); err != nil {
		errs = append(errs, errors.New("bin/server-image/disk.qcow2 is missing: run `make server-disk`"))
	}
	return errors.Join(append(errs, vm.Check(vm.Options{Server: anyServer(bin), MemoryMiB: vm.DefaultMemoryMiB, CPUs: 1}))...)
}

// bootBy has servers that boot from now on do so by one of the programs, and returns the command that does.
func (w *world) bootBy(t *testing.T, program string) string {
	t.Helper()
	template, err := os.ReadFile(filepath.Join("testdata", "boot"))
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("@INVENTORY@", filepath.Join(w.dir, "inventory"), "@PROGRAM@", program, "@BIN@", w.bin,
		"@BRIDGE@", w.network.Name).Replace(string(template))
	command := filepath.Join(w.dir, "boot")
	// A server may be about to boot.
	writeFile(t, command+".new", []byte(script), 0o700)
	if err := os.Rename(command+".new", command); err != nil {
		t.Fatal(err)
	}
	return command
}

// serveImages serves two images, for servers that boot by one of the programs. Containers take anything for an image.
func (w *world) serveImages(t *testing.T, program string) (first, second stack.Image) {
	t.Helper()
	if program == light {
		return w.Media.Add("linux-1.qcow2", []byte("the first disk image of the test\n")),
			w.Media.Add("linux-2.qcow2", []byte("the second disk image of the test\n"))
	}
	id, err := os.ReadFile(filepath.Join(w.bin, "server-image", "disk.id"))
	if err != nil {
		t.Fatal(err)
	}
	id = bytes.TrimSpace(id)
	disk := filepath.Join(w.bin, "server-image", "disk.qcow2")
	// As the first, under another name.
	changed, other := filepath.Join(w.dir, "linux-2.qcow2"), []byte("the-2nd-disk")
	if err := copyWith(disk, changed, id, other); err != nil {
		t.Fatalf("making the second disk image, %v", err)
	}
	return w.serveDisk(t, "linux-1.qcow2", disk, id), w.serveDisk(t, "linux-2.qcow2", changed, other)
}

func (w *world) serveDisk(t *testing.T, name, path string, id []byte) stack.Image {
	t.Helper()
	image, err := w.Media.AddFile(name, path)
	if err != nil {
		t.Fatal(err)
	}
	w.ids[image.Checksum] = string(id)
	return image
}

// copyWith copies a file, and puts something else of the same length in the place of what must be there once.
func copyWith(from, to string, old, replacement []byte) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if count := bytes.Count(content, old); count != 1 {
		return fmt.Errorf("%q is in %s %d times, and must be there once", old, from, count)
	}
	if len(old) != len(replacement) {
		return fmt.Errorf("%q is not as long as %q, in whose place it is to be", replacement, old)
	}
	copy(content[bytes.Index(content, old):], replacement)
	return os.WriteFile(to, content, 0o600)
}

// imageOn returns what the operating system of a server must be named after, if an image was installed on it.
func (w *world) imageOn(t *testing.T, host string, image stack.Image) string {
	t.Helper()
	booted, err := os.ReadFile(filepath.Join(w.dir, "servers", host, "booted"))
	if err != nil {
		t.Fatalf("what server %s has booted by, %v", host, err)
	}
	if strings.TrimSpace(string(booted)) == faithful {
		return w.ids[image.Checksum]
	}
	const shown = 12
	return image.Checksum[:shown]
}
