// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
)

// exitReboot is the exit status of the machine's process when the server reboots.
const exitReboot = 64

// Parts of a server are processes of the program that boots it, which calls Part with its first argument.
const (
	// partMachine is the first process of the server's own process namespace.
	partMachine = "machine"
	// partCleaner cleans up even if the program is killed.
	partCleaner = "cleaner"
)

// Part runs the part of that name, if there is one, and returns the exit status. A program that calls Run must call
// Part first, with its first argument and its standard input.
func Part(name string, input io.Reader) (status int, known bool, err error) {
	if name != partMachine && name != partCleaner {
		return 0, false, nil
	}
	var o Options
	if err := json.NewDecoder(input).Decode(&o); err != nil {
		return 0, true, fmt.Errorf("reading the server of its %s, %w", name, err)
	}
	if name == partCleaner {
		return 0, true, cleaner(o, input)
	}
	status, err = machine(o)
	return status, true, err
}

// Run boots a server, and returns when it is off: nil if it has turned itself off, or if the context has ended, which
// is as if its power were cut. self is the program that calls it, and output is where the server's messages go. Only
// the disk of the server is left.
func Run(ctx context.Context, o Options, self string, output io.Writer) (err error) {
	for _, check := range []func(Options) error{Options.Validate, Check} {
		if err := check(o); err != nil {
			return fmt.Errorf("booting server %s, %w", o.Name, err)
		}
	}
	// Removes what an earlier run and its cleaner have left.
	if err := cleanUp(ctx, o); err != nil {
		return fmt.Errorf("booting server %s, %w", o.Name, err)
	}
	finish, err := startCleaner(o, self, output)
	if err != nil {
		return fmt.Errorf("booting server %s, %w", o.Name, err)
	}
	defer func() {
		if finished := finish(); err == nil && finished != nil {
			err = fmt.Errorf("cleaning up after server %s, %w", o.Name, finished)
		}
	}()
	for {
		again, err := runOnce(ctx, o, self, output)
		// The context may have ended; the cleanup runs all the same.
		err = errors.Join(err, cleanUp(context.WithoutCancel(ctx), o))
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

// runOnce runs the machine until the server is off, and returns whether it reboots.
func runOnce(ctx context.Context, o Options, self string, output io.Writer) (again bool, err error) {
	input, err := json.Marshal(o)
	if err != nil {
		return false, fmt.Errorf("passing the options to its machine, %w", err)
	}
	// The kernel ends the machine when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// SIGKILL: the kernel then ends all other processes of the namespace.
	command := exec.CommandContext(ctx, self, partMachine)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), output, output
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
