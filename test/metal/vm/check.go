// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	// emulatorMemoryMiB is the emulator's own memory, beyond that of the server.
	emulatorMemoryMiB = 300
	// diskMiB is what a server's disk grows to: the image, and what is written to it.
	diskMiB = 1500
)

// Check returns every reason why this machine cannot boot such a server, with the alternative, or nil. It does not
// check the installed image.
func Check(o Options) error {
	errs := []error{o.Server.Check(), checkEmulator(o), tapError(probeTap())}
	spare, err := findCapacity(o.Dir)
	if err == nil {
		err = spare.suffices(o)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("%w\n%s", err, alternative)
	}
	return nil
}

func (o Options) emulator() (program string, environment []string) {
	return o.Tool("usr/bin/qemu-system-x86_64")
}

func checkEmulator(o Options) error {
	program, environment := o.emulator()
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%s is missing: make it with `make server-image`", program)
	}
	command := exec.Command(program, "--version")
	command.Env = environment
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("qemu does not run on this machine: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

// probeTap makes a tap interface, and removes it.
func probeTap() error {
	tap, err := openTap("")
	if err != nil {
		return err
	}
	return tap.Close()
}

// tapError explains an error of making a tap interface.
func tapError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("a virtual machine needs a network interface of its own, and there is no %s: load the module tun, or, in a container, "+
			"give the container that device (%w)", tunDevice, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("a virtual machine needs a network interface of its own, and making one is not allowed here: it takes root with "+
			"CAP_NET_ADMIN, and access to %s (%w)", tunDevice, err)
	default:
		return fmt.Errorf("a virtual machine needs a network interface of its own, and none can be made: %w", err)
	}
}

// spare is the free memory and disk space of the machine, in MiB.
type spare struct {
	memory, disk int
	// directory is where the disk is.
	directory string
}

func findCapacity(directory string) (spare, error) {
	processes, err := procfs.NewDefaultFS()
	if err != nil {
		return spare{}, fmt.Errorf("asking for free memory, %w", err)
	}
	memory, err := processes.Meminfo()
	if err != nil {
		return spare{}, fmt.Errorf("asking for free memory, %w", err)
	}
	if memory.MemAvailable == nil {
		return spare{}, errors.New("asking for free memory, /proc/meminfo does not say what is available")
	}
	var filesystem unix.Statfs_t
	if err := unix.Statfs(directory, &filesystem); err != nil {
		return spare{}, fmt.Errorf("asking for free space in %s, %w", directory, err)
	}
	disk := filesystem.Bavail * uint64(filesystem.Bsize) >> 20
	return spare{memory: int(*memory.MemAvailable >> 10), disk: int(disk), directory: filepath.Clean(directory)}, nil
}

// suffices returns an error that names the missing memory and disk space.
func (r spare) suffices(o Options) error {
	var errs []error
	if needed := o.MemoryMiB + emulatorMemoryMiB; r.memory < needed {
		errs = append(errs, fmt.Errorf("the virtual machine takes %d MiB of memory, and this machine has %d MiB to spare: free some, or give it "+
			"less with --memory", needed, r.memory))
	}
	if r.disk < diskMiB {
		errs = append(errs, fmt.Errorf("the disk of the virtual machine takes %d MiB, and %s has %d MiB to spare: free some", diskMiB,
			r.directory, r.disk))
	}
	return errors.Join(errs...)
}
