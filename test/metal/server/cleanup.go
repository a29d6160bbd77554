// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/util/wait"
)

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
