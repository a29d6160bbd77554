// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Run boots a server, and returns when it is off: nil if it has turned itself off, or if the context has ended, which
// is as if its power were cut. A server that reboots goes on. output is where its serial console goes. Only the disk of
// the server is left.
func Run(ctx context.Context, o Options, output io.Writer) error {
	for _, check := range []func(Options) error{Options.Validate, Check, checkImage} {
		if err := check(o); err != nil {
			return fmt.Errorf("booting server %s, %w", o.Name, err)
		}
	}
	args, err := arguments(o)
	if err != nil {
		return fmt.Errorf("booting server %s, %w", o.Name, err)
	}
	tap, err := plugIn(o)
	if err != nil {
		return fmt.Errorf("booting server %s, %w", o.Name, err)
	}
	err = emulate(ctx, o, args, tap, output)
	if closed := tap.Close(); err == nil && closed != nil {
		err = fmt.Errorf("unplugging it, %w", closed)
	}
	if err != nil {
		return fmt.Errorf("running server %s, %w", o.Name, err)
	}
	return nil
}

// emulate runs the emulator until the server is off.
func emulate(ctx context.Context, o Options, args []string, tap *os.File, output io.Writer) error {
	program, environment := o.emulator()
	// The kernel ends it when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(ctx, program, args...)
	// The environment identifies the processes of a server.
	command.Env, command.Stdout, command.Stderr = append(os.Environ(), environment...), output, output
	command.ExtraFiles = []*os.File{tap}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := command.Run()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("its emulator has failed: %w", err)
	}
	return nil
}

// checkImage makes sure that what was installed can be a disk.
func checkImage(o Options) error {
	image, err := os.Open(o.InstalledImage())
	if err != nil {
		return fmt.Errorf("opening the image that was installed, %w", err)
	}
	defer func() { _ = image.Close() }() // nothing was written
	magic := make([]byte, 4)
	if _, err := io.ReadFull(image, magic); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("reading the image that was installed, %w", err)
	}
	if !bytes.Equal(magic, []byte("QFI\xfb")) {
		return fmt.Errorf("the image that was installed, %s, is not a disk image in the format qcow2, as `make server-disk` makes one",
			o.InstalledImage())
	}
	return nil
}
