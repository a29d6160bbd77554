// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

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
)

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
