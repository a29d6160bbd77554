// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
)

// runBootCommand runs the boot command until it ends, or until the power is cut: then it gets SIGTERM and, after its grace
// period, SIGKILL, it and all that it has started in its process group. A server that dies has no grace. The error says how
// the command has ended by itself.
func (s *Server) runBootCommand(ctx context.Context) error {
	console, err := os.OpenFile(filepath.Join(s.disk.Dir, disk.ConsoleFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the console, %w", err)
	}
	defer func() { _ = console.Close() }()
	command := exec.Command(s.options.BootCommand)
	command.Dir = s.disk.Dir
	command.Stdout, command.Stderr = console, console
	command.Env = append(os.Environ(),
		"SERVER_NAME="+s.identity.Name, "SERVER_UUID="+s.identity.UUID, "SERVER_MAC="+s.hardware.NICs[0].MAC, "SERVER_DIR="+s.disk.Dir)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The signal for the death of the parent is for that of the thread, which must not end before the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			ended <- command.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting the boot command, %w", err)
	}
	group := -command.Process.Pid
	// The server is off when all of it is gone.
	defer func() { _ = syscall.Kill(group, syscall.SIGKILL) }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("the boot command has ended, %w", err)
		}
		return errors.New("the boot command has ended")
	case <-ctx.Done():
	}
	if errors.Is(context.Cause(ctx), errDied) {
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-ended
		return nil
	}
	if err := syscall.Kill(group, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping the boot command, %w", err)
	}
	timer := s.options.Clock.NewTimer(s.options.Grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C():
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-ended
	}
	return nil
}
