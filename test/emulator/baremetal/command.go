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

// runBootCommand runs the boot command until it ends or the power is cut: then its process group gets SIGTERM and,
// after the grace period, SIGKILL. A server that dies has no grace period. The error describes how the command ended by
// itself.
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
		// The parent death signal is sent when the thread ends, so the thread must live as long as the process.
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
