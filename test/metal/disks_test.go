// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

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
	// virtualMachine boots the disk that Ironic wrote, in qemu.
	virtualMachine = "boot-vm"
	// container boots in seconds, and shows the checksum of the image that Ironic wrote.
	container = "boot-server"
)

// serverKind returns virtualMachine, or container where virtual machines cannot run or are not wanted.
func serverKind(t *testing.T) string {
	t.Helper()
	wanted, err := vm.Enabled()
	if err != nil {
		t.Fatal(err)
	}
	if wanted {
		return virtualMachine
	}
	return container
}

// missingDisk returns an error if a file is missing that virtual machines need.
func missingDisk() error {
	errs := []error{programs(virtualMachine)()}
	if _, err := os.Stat(filepath.Join(bin, "server-image", "disk.id")); err != nil {
		errs = append(errs, errors.New("bin/server-image/disk.qcow2 is missing: run `make server-disk`"))
	}
	return errors.Join(append(errs, vm.Check(vm.Options{Server: anyServer(), MemoryMiB: vm.DefaultMemoryMiB, CPUs: 1}))...)
}

// bootBy makes servers boot by the program from now on, and returns the boot command.
func (w *stackFixture) bootBy(t *testing.T, program string) string {
	t.Helper()
	command, err := w.writeBoot(program, w.network.Name)
	if err != nil {
		t.Fatal(err)
	}
	return command
}

// writeBoot writes the boot command of servers that are plugged into a bridge.
func (w *stackFixture) writeBoot(program, bridge string) (string, error) {
	template, err := os.ReadFile(filepath.Join("testdata", "boot"))
	if err != nil {
		return "", err
	}
	script := strings.NewReplacer("@INVENTORY@", filepath.Join(w.dir, "inventory"), "@PROGRAM@", program, "@BIN@", bin,
		"@BRIDGE@", bridge).Replace(string(template))
	command := filepath.Join(w.dir, "boot")
	// Rename, because a server may be reading the file.
	err = os.WriteFile(command+".new", []byte(script), 0o700)
	return command, errors.Join(err, os.Rename(command+".new", command))
}

// serveImages serves two images, for servers that boot by one of the programs. Containers take anything for an image.
func (w *stackFixture) serveImages(t *testing.T, program string) (first, second stack.Image) {
	t.Helper()
	if program == container {
		return w.Media.Add("linux-1.qcow2", []byte("the first disk image of the test\n")),
			w.Media.Add("linux-2.qcow2", []byte("the second disk image of the test\n"))
	}
	disk, id := serverDisk(t)
	// The same disk with another operating system name.
	changed, other := filepath.Join(w.dir, "linux-2.qcow2"), []byte("the-2nd-disk")
	if err := copyReplacing(disk, changed, id, other); err != nil {
		t.Fatalf("making the second disk image, %v", err)
	}
	return w.serveDisk(t, "linux-1.qcow2", disk, id), w.serveDisk(t, "linux-2.qcow2", changed, other)
}

// serverDisk is the disk image of servers, and its ID.
func serverDisk(t *testing.T) (disk string, id []byte) {
	t.Helper()
	id, err := os.ReadFile(filepath.Join(bin, "server-image", "disk.id"))
	if err != nil {
		t.Fatalf("there is no disk image, which `make server-disk` makes: %v", err)
	}
	return filepath.Join(bin, "server-image", "disk.qcow2"), bytes.TrimSpace(id)
}

func (w *stackFixture) serveDisk(t *testing.T, name, path string, id []byte) stack.Image {
	t.Helper()
	image, err := w.Media.AddFile(name, path)
	if err != nil {
		t.Fatal(err)
	}
	w.ids[image.Checksum] = string(id)
	return image
}

// copyReplacing copies a file and replaces a text that occurs once by another one of the same length.
func copyReplacing(from, to string, old, replacement []byte) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if count := bytes.Count(content, old); count != 1 {
		return fmt.Errorf("%q occurs in %s %d times, want once", old, from, count)
	}
	if len(old) != len(replacement) {
		return fmt.Errorf("%q is not as long as %q, which it replaces", replacement, old)
	}
	copy(content[bytes.Index(content, old):], replacement)
	return os.WriteFile(to, content, 0o600)
}

// expectedOSImage returns the image ID that the Node's osImage must end with.
func (w *stackFixture) expectedOSImage(t *testing.T, host string, image stack.Image) string {
	t.Helper()
	booted, err := os.ReadFile(filepath.Join(w.dir, "servers", host, "booted"))
	if err != nil {
		t.Fatalf("what server %s has booted by, %v", host, err)
	}
	if strings.TrimSpace(string(booted)) == virtualMachine {
		return w.ids[image.Checksum]
	}
	const shown = 12
	return image.Checksum[:shown]
}
