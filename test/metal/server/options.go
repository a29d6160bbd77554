// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server boots a server that is a container: systemd and all that it starts, from the root file system that
// `make server-image` makes of Debian's packages, in namespaces of its own, with a network interface on a bridge. The
// config drive that Ironic wrote is unpacked to where cloud-init looks for it. cloud-init sets up the network and runs
// the user data, by which the server joins a cluster, as on any other server.
//
// The kernel is the machine's. adapt.go has everything that needs to differ for that reason: the root file system
// itself is also the disk of a virtual machine (package vm).
//
// A server that runs is a tree of processes below one that was started by Run, in a process namespace of its own. When
// that one ends, for whatever reason, the kernel ends all others, and with them go mounts, network and interface. Control
// groups are removed afterwards.
package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

// Options of a boot.
type Options struct {
	// Server to boot. Its directory may have hardware.json, the processors and the memory that it reports, by default
	// the machine's. Its disk is the sub-directory disk, which a new installation empties. The directory must be on a
	// file system that can be the upper layer of an overlay.
	boot.Server
	// ContainerImages is a directory with archives of container images, which the server imports when it boots, as well
	// as those on its disk. May be empty.
	ContainerImages string
}

// Validate returns everything that is wrong with the options, or nil.
func (o Options) Validate() error {
	errs := []error{o.Server.Validate()}
	if o.ContainerImages != "" && !filepath.IsAbs(o.ContainerImages) {
		errs = append(errs, fmt.Errorf("the directory of container images, --container-images, is %q: it must be an absolute path, or empty",
			o.ContainerImages))
	}
	return errors.Join(errs...)
}

func (o Options) disk(elements ...string) string {
	return filepath.Join(append([]string{o.Dir, "disk"}, elements...)...)
}

// run is the directory of the files that exist only while the server is on.
func (o Options) run(elements ...string) string {
	return filepath.Join(append([]string{o.Dir, "run"}, elements...)...)
}

func (o Options) hardware() string { return filepath.Join(o.Dir, "hardware.json") }

// containerID names the container, and its control group.
func (o Options) containerID() string { return "server-" + o.UUID }

// Check returns every reason why this machine cannot boot such a server, or nil.
func Check(o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("a server in a container needs root, for its mounts and its network")
	}
	var errs []error
	runc, environment := o.runc()
	for _, path := range []string{filepath.Join(o.Image, "rootfs/sbin/init"), runc, filepath.Join(o.Image, ".layer")} {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: make it with `make server-image`", path))
		}
	}
	if len(errs) == 0 {
		command := exec.Command(runc, "--version")
		command.Env = environment
		if output, err := command.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("runc does not run on this machine: %w: %s", err, bytes.TrimSpace(output)))
		}
	}
	errs = append(errs, o.Server.Check())
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		errs = append(errs, fmt.Errorf("asking for the kernel's file systems, %w", err))
	} else if !slices.Contains(strings.Fields(string(filesystems)), "overlay") {
		errs = append(errs, errors.New("the kernel has no overlay file system: load the module overlay"))
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		errs = append(errs, fmt.Errorf("looking for control groups, %w", err))
	} else if len(hierarchies(string(mounts))) == 0 {
		errs = append(errs, errors.New("no control groups are mounted on this machine: containers need them"))
	}
	return errors.Join(errs...)
}
