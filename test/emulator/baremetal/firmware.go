// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/deployagent"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
)

// boot runs the server from power-on until the context ends, or until the server switches itself off for the returned
// reason.
func (s *Server) boot(ctx context.Context) error {
	boot := s.system.TakeBoot()
	if s.options.Machine {
		return s.bootMachine(ctx, boot.Target)
	}
	switch installed, err := s.disk.Installed(); {
	case err != nil:
		s.stay(ctx, "no bootable device: %v", err)
	case boot.Target == schemas.PxeBootSource:
		s.bootNetwork(ctx)
	case boot.Target == schemas.CdBootSource && boot.Media[bmc.CdSlot] == "":
		s.stay(ctx, "no bootable device: the boot target is the virtual CD, which is empty")
	case boot.Target == schemas.CdBootSource, installed == nil && boot.Media[bmc.CdSlot] != "":
		s.bootMedium(ctx, boot.Media)
	case installed == nil:
		s.stay(ctx, "no bootable device: the disk is empty")
	case s.options.BootCommand == "":
		s.stay(ctx, "running the image from %s", installed.URL)
	default:
		s.doing("running the image from %s", installed.URL)
		return s.runBootCommand(ctx)
	}
	return nil
}

// What a machine boots, in the variable SERVER_BOOT of its boot command.
const (
	bootDisk    = "disk"
	bootNetwork = "network"
)

// bootMachine runs the boot command with a disk that is empty at first. It boots by network only if the BMC says so.
func (s *Server) bootMachine(ctx context.Context, target schemas.BootSource) error {
	if err := s.disk.MakeDevice(int64(s.hardware.Disks[0].Bytes())); err != nil {
		return err
	}
	from := bootDisk
	if target == schemas.PxeBootSource {
		from = bootNetwork
	}
	s.doing("a machine that boots from its %s", from)
	return s.runBootCommand(ctx, "SERVER_BOOT="+from)
}

// stay does nothing until the power is cut.
func (s *Server) stay(ctx context.Context, format string, args ...any) {
	s.doing(format, args...)
	<-ctx.Done()
}

// bootMedium boots the deploy ramdisk from virtual media, with the parameters that Ironic has put on it.
func (s *Server) bootMedium(ctx context.Context, media map[string]string) {
	parameters := deployagent.Parameters{IronicURL: s.options.IronicURL}
	for _, slot := range []string{bmc.CdSlot, bmc.UsbSlot} {
		if media[slot] == "" {
			continue
		}
		s.doing("reading %s", media[slot])
		if err := readParameters(ctx, media[slot], &parameters); err != nil {
			s.stay(ctx, "no bootable device: %v", err)
			return
		}
	}
	s.runAgent(ctx, parameters, "from "+media[bmc.CdSlot])
}

// bootNetwork boots the deploy ramdisk by network, with the parameters in the configuration that Ironic has written for one of the MAC
// addresses. There is no DHCP and no TFTP: the firmware has iPXE, and knows where the configurations are.
func (s *Server) bootNetwork(ctx context.Context) {
	parameters := deployagent.Parameters{IronicURL: s.options.IronicURL}
	if s.options.NetworkBoot == "" {
		s.runAgent(ctx, parameters, "by network")
		return
	}
	var err error
	for _, mac := range s.hardware.MACs() {
		from := s.options.NetworkBoot + "/pxelinux.cfg/" + strings.ReplaceAll(mac, ":", "-")
		if err = readParameters(ctx, from, &parameters); err == nil {
			s.runAgent(ctx, parameters, "from "+from)
			return
		}
	}
	s.stay(ctx, "no bootable device: no configuration of the network boot: %v", err)
}

func (s *Server) runAgent(ctx context.Context, parameters deployagent.Parameters, from string) {
	agent := deployagent.New(deployagent.Options{
		Server: deployagent.Server{
			Name: s.identity.Name, Hardware: s.hardware, Disk: s.disk, Faults: &s.faults,
			PowerOff: func() { s.press(schemas.ForceOffResetType) },
			Reboot:   func() { s.press(schemas.ForceRestartResetType) },
		},
		Parameters: parameters, Listen: s.options.AgentHost, Heartbeat: s.options.Heartbeat, Retry: s.options.Retry,
		Clock: s.options.Clock, Logger: s.logger,
	})
	s.logger.Info("Booted the deploy agent", "from", from)
	s.set(schemas.OnPowerState, func() string { return "deploy agent " + from + ": " + agent.State() })
	if err := agent.Run(ctx); err != nil {
		s.stay(ctx, "deploy agent has failed: %v", err)
	}
}

// overlap is longer than any parameter: a parameter that two blocks share is found in the second.
const overlap = 4096

// readParameters reads a whole medium, as the firmware does, and returns the agent's parameters.
func readParameters(ctx context.Context, from string, parameters *deployagent.Parameters) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return fmt.Errorf("reading the medium, %w", err)
	}
	// A BMC does not check the certificate of a medium unless it is told to.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("reading the medium, %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("reading the medium, %s: %s", from, response.Status)
	}
	block, kept := make([]byte, 1<<20), 0
	for {
		n, err := io.ReadFull(response.Body, block[kept:])
		text := block[:kept+n]
		parameters.Read(text)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the medium, %s: %w", from, err)
		}
		kept = copy(block, text[len(text)-overlap:])
	}
}

// runBootCommand runs the boot command until it ends or the power is cut: then its process group gets SIGTERM and,
// after the grace period, SIGKILL. A server that dies has no grace period. The error describes how the command ended by
// itself.
func (s *Server) runBootCommand(ctx context.Context, environment ...string) error {
	console, err := os.OpenFile(filepath.Join(s.disk.Dir, disk.ConsoleFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the console, %w", err)
	}
	defer func() { _ = console.Close() }()
	command := exec.Command(s.options.BootCommand)
	command.Dir = s.disk.Dir
	command.Stdout, command.Stderr = console, console
	command.Env = append(append(os.Environ(), "SERVER_NAME="+s.identity.Name, "SERVER_UUID="+s.identity.UUID,
		"SERVER_MAC="+s.hardware.NICs[0].MAC, "SERVER_DIR="+s.disk.Dir), environment...)
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
