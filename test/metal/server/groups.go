// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/util/wait"
)

// groupVersion is the version of control groups that a machine has its controllers in.
type groupVersion int

const (
	groupsV1 groupVersion = 1
	groupsV2 groupVersion = 2
)

// A hierarchy is one tree of control groups.
type hierarchy struct {
	// directory is where it is mounted.
	directory string
	// controllers of the hierarchy; none means version 2, which has them all.
	controllers []string
}

// hierarchies reads those that are mounted from the content of /proc/self/mounts.
func hierarchies(mounts string) []hierarchy {
	var found []hierarchy
	scanner := bufio.NewScanner(strings.NewReader(mounts))
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 4 {
			continue
		}
		switch fields[2] {
		case "cgroup2":
			found = append(found, hierarchy{directory: fields[1]})
		case "cgroup":
			// The list has all mount options, not only the controllers.
			found = append(found, hierarchy{directory: fields[1], controllers: strings.Split(fields[3], ",")})
		}
	}
	return found
}

// versionOf returns the version that the kubelet uses: 1 if memory has a hierarchy of its own.
func versionOf(found []hierarchy) groupVersion {
	if slices.ContainsFunc(found, func(h hierarchy) bool { return slices.Contains(h.controllers, "memory") }) {
		return groupsV1
	}
	return groupsV2
}

// groupOf returns the control group of a container, as runc takes it. With version 1 it is below our own, so that limits
// that we have are limits of the server; with version 2 a group that has processes cannot have groups with controllers,
// so it is at the top.
func groupOf(id string, version groupVersion) string {
	if version == groupsV1 {
		return id
	}
	return "/" + id
}

// removeGroups removes the control groups of a container whose processes are gone. own is the content of
// /proc/self/cgroup.
func removeGroups(id string, found []hierarchy, own string) error {
	var errs []error
	for _, h := range found {
		for _, parent := range []string{"", ownGroup(h, own)} {
			if err := removeTree(filepath.Join(h.directory, parent, id)); err != nil {
				errs = append(errs, fmt.Errorf("removing a control group of the server, %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// ownGroup returns the path of our own group in a hierarchy.
func ownGroup(h hierarchy, own string) string {
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if h.controllers == nil && parts[0] == "0" {
			return parts[2]
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			if controller != "" && slices.Contains(h.controllers, controller) {
				return parts[2]
			}
		}
	}
	return ""
}

// removeTree removes a group and those below it. The files in them cannot be removed, and go with them.
func removeTree(directory string) error {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(directory, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(directory); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rmdir %s: %w", directory, err)
	}
	return nil
}

// startCleaner starts the process that cleans up when this one ends. It has a session of its own, so that a signal to
// our process group does not kill it. The returned function starts the cleanup and waits for it.
func startCleaner(o Options, self string, output io.Writer) (finish func() error, err error) {
	input, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("passing the server to its cleaner, %w", err)
	}
	command := exec.Command(self, partCleaner)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting its cleaner, %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting its cleaner, %w", err)
	}
	finish = func() error { return errors.Join(pipe.Close(), command.Wait()) }
	if _, err := pipe.Write(input); err != nil {
		return nil, errors.Join(fmt.Errorf("passing the server to its cleaner, %w", err), finish())
	}
	return finish, nil
}

// cleaner waits until its input is closed, and cleans up.
func cleaner(o Options, input io.Reader) error {
	if _, err := io.Copy(io.Discard, input); err != nil {
		return fmt.Errorf("waiting for the end of server %s, %w", o.Name, err)
	}
	if err := cleanUp(context.Background(), o); err != nil {
		return fmt.Errorf("cleaning up after server %s, %w", o.Name, err)
	}
	return nil
}

// cleanUpTimeout bounds the kernel's own cleanup after a process.
var cleanUpTimeout = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Steps: 16}

// cleanUp removes what the kernel does not remove with the processes of a server.
func cleanUp(ctx context.Context, o Options) error {
	// The kernel removes network namespaces asynchronously.
	link, err := netlink.LinkByName(o.Link())
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) && !errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("removing interface %s, %w", o.Link(), err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("looking for control groups, %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("looking for our control groups, %w", err)
	}
	found := hierarchies(string(mounts))
	var last error
	err = wait.ExponentialBackoffWithContext(ctx, cleanUpTimeout, func(context.Context) (bool, error) {
		last = removeGroups(o.containerID(), found, string(own))
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	if err := os.RemoveAll(o.run()); err != nil {
		return fmt.Errorf("removing the run directory of the server, %w", err)
	}
	return nil
}
