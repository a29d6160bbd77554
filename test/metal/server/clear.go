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

// startCleaner starts the process that clears up when this one ends, in a session of its own, for whoever kills our
// process group not to kill it too. It returns a function that tells it that the end has come, and waits for it.
func startCleaner(o Options, self string, output io.Writer) (finish func() error, err error) {
	input, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("telling its cleaner what server it is, %w", err)
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
		return nil, errors.Join(fmt.Errorf("telling its cleaner what server it is, %w", err), finish())
	}
	return finish, nil
}

// cleaner waits until whoever holds the other end of the input is gone, and clears up.
func cleaner(o Options, input io.Reader) error {
	if _, err := io.Copy(io.Discard, input); err != nil {
		return fmt.Errorf("waiting for the end of server %s, %w", o.Name, err)
	}
	if err := clearUp(context.Background(), o); err != nil {
		return fmt.Errorf("clearing up after server %s, %w", o.Name, err)
	}
	return nil
}

// clearing is how long what the kernel does for a process that is gone may take.
var clearing = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Steps: 16}

// clearUp removes what belongs to a server that is off, and is not gone with its processes.
func clearUp(ctx context.Context, o Options) error {
	// The kernel removes the network of processes that are gone at its leisure.
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
	err = wait.ExponentialBackoffWithContext(ctx, clearing, func(context.Context) (bool, error) {
		last = removeGroups(o.containerID(), found, string(own))
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	if err := os.RemoveAll(o.run()); err != nil {
		return fmt.Errorf("removing what belongs to the server while it runs, %w", err)
	}
	return nil
}
