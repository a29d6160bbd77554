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

// exitReboot is how the machine's process ends when the server wants to be started again.
const exitReboot = 64

// Parts of a server are processes of the program that boots it. It calls Part with its first argument.
const (
	// partMachine is the first process of the server's own process namespace.
	partMachine = "machine"
	// partCleaner sees to what is left if the program is killed, and does not come to do it.
	partCleaner = "cleaner"
)

// Part does the work of that name, if there is any, and returns the status that the process shall end with. A program
// that calls Run must call it before it does anything else, with its first argument and its standard input.
func Part(name string, input io.Reader) (status int, known bool, err error) {
	if name != partMachine && name != partCleaner {
		return 0, false, nil
	}
	var o Options
	if err := json.NewDecoder(input).Decode(&o); err != nil {
		return 0, true, fmt.Errorf("reading what server this is the %s of, %w", name, err)
	}
	if name == partCleaner {
		return 0, true, cleaner(o, input)
	}
	status, err = machine(o)
	return status, true, err
}

// Run boots a server, and returns when it is off: nil if it has turned itself off, or if the context has ended, which is
// as if its power were cut. self is the program that calls it, and output is where the server's messages go. Afterwards
// nothing of the server is left but its disk.
func Run(ctx context.Context, o Options, self string, output io.Writer) (err error) {
	for _, check := range []func(Options) error{Options.Validate, Check} {
		if err := check(o); err != nil {
			return fmt.Errorf("booting server %s, %w", o.Name, err)
		}
	}
	// What an earlier one has left, with its cleaner.
	if err := clearUp(ctx, o); err != nil {
		return fmt.Errorf("booting server %s, %w", o.Name, err)
	}
	finish, err := startCleaner(o, self, output)
	if err != nil {
		return fmt.Errorf("booting server %s, %w", o.Name, err)
	}
	defer func() {
		if finished := finish(); err == nil && finished != nil {
			err = fmt.Errorf("clearing up after server %s, %w", o.Name, finished)
		}
	}()
	for {
		again, err := runOnce(ctx, o, self, output)
		// The context may have ended, and what is cleared is not what it is for.
		err = errors.Join(err, clearUp(context.WithoutCancel(ctx), o))
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
func runOnce(ctx context.Context, o Options, self string, output io.Writer) (again bool, err error) {
	input, err := json.Marshal(o)
	if err != nil {
		return false, fmt.Errorf("telling its machine what to run, %w", err)
	}
	// The kernel ends the machine when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// SIGKILL, for the first process of a namespace takes all others with it.
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
