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
	"runtime"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/util/wait"
)

// exitReboot is how the machine's process ends when the server wants to be started again.
const exitReboot = 64

// Run boots a server, and returns when it is off: nil if it has turned itself off, or if the context has ended, which is
// as if its power were cut. machine is the command that calls Machine, as the first process of the server's own process
// namespace; its standard output and error are where the server's messages go. Afterwards nothing of the server is left
// but its disk.
func Run(ctx context.Context, o Options, machine []string, output io.Writer) error {
	if err := errors.Join(o.Validate(), Check(o)); err != nil {
		return fmt.Errorf("booting server %s, %w", o.Name, err)
	}
	for {
		// What an earlier one has left whose end nobody could wait for.
		if err := clear(ctx, o); err != nil {
			return fmt.Errorf("booting server %s, %w", o.Name, err)
		}
		again, err := runOnce(ctx, o, machine, output)
		// The context may have ended, and what is cleared is not what it is for.
		err = errors.Join(err, clear(context.WithoutCancel(ctx), o))
		if ctx.Err() != nil && err == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("running server %s, %w", o.Name, err)
		}
		if !again {
			return nil
		}
		if _, err := fmt.Fprintf(output, "server %s reboots\n", o.Name); err != nil {
			return fmt.Errorf("running server %s, %w", o.Name, err)
		}
	}
}

// runOnce runs the machine until the server is off, and tells whether it wants to be started again.
func runOnce(ctx context.Context, o Options, machine []string, output io.Writer) (again bool, err error) {
	input, err := json.Marshal(o)
	if err != nil {
		return false, fmt.Errorf("telling its machine what to run, %w", err)
	}
	// The kernel ends the machine when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	reader, writer, err := os.Pipe()
	if err != nil {
		return false, fmt.Errorf("telling its machine what to run, %w", err)
	}
	defer func() { _ = reader.Close() }()
	if _, err := writer.Write(input); err != nil {
		_ = writer.Close()
		return false, fmt.Errorf("telling its machine what to run, %w", err)
	}
	if err := writer.Close(); err != nil {
		return false, fmt.Errorf("telling its machine what to run, %w", err)
	}
	// SIGKILL, for the first process of a namespace takes all others with it.
	command := exec.CommandContext(ctx, machine[0], machine[1:]...)
	command.Stdin, command.Stdout, command.Stderr = reader, output, output
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	err = command.Run()
	if ctx.Err() != nil {
		return false, nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitReboot {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("its machine has failed: %w", err)
	}
	return false, nil
}

// clearing is how long what the kernel does for a process that is gone may take.
var clearing = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Steps: 16}

// clear removes what belongs to a server that is off, and is not gone with its processes.
func clear(ctx context.Context, o Options) error {
	// The kernel removes the network of processes that are gone at its leisure.
	link, err := netlink.LinkByName(o.link())
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) && !errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("removing interface %s, %w", o.link(), err)
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
