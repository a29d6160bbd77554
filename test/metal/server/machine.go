// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"
)

// machine runs a server, and returns the exit status of the process. It changes the mounts of its namespace, and must
// be the first process of a process namespace.
func machine(o Options) (int, error) {
	if os.Getpid() != 1 {
		return 0, fmt.Errorf("starting the machine of server %s, this is process %d, and not the first in a namespace: only the "+
			"program that boots a server may start it", o.Name, os.Getpid())
	}
	// A stop of the server signals our whole process group. Our parent ends us and cleans up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	pid, err := start(o)
	if err != nil {
		return 0, fmt.Errorf("starting the machine of server %s, %w", o.Name, err)
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err == nil {
			break
		} else if err != syscall.EINTR {
			return 0, fmt.Errorf("waiting for server %s, %w", o.Name, err)
		}
	}
	return exitStatus(status)
}

// exitStatus interprets the end of a container's first process: reboot(2) ends it with a signal that stands for the
// request.
func exitStatus(status syscall.WaitStatus) (int, error) {
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGHUP:
		return exitReboot, nil
	case status.Signaled() && status.Signal() == syscall.SIGINT, status.Exited() && status.ExitStatus() == 0:
		return 0, nil
	case status.Signaled():
		return 0, fmt.Errorf("the server's first process was ended by signal %s", status.Signal())
	default:
		return 0, fmt.Errorf("the server's first process has ended with status %d", status.ExitStatus())
	}
}

// start mounts the server's file systems, starts it, and returns its first process.
func start(o Options) (int, error) {
	groups, err := machineGroups()
	if err != nil {
		return 0, err
	}
	capabilities, err := ownCapabilities()
	if err != nil {
		return 0, err
	}
	if err := prepareDisk(o); err != nil {
		return 0, err
	}
	if err := mountRoot(o); err != nil {
		return 0, err
	}
	if err := adapt(o, o.run("root"), groups); err != nil {
		return 0, err
	}
	if err := writeConfigDrive(o, o.run("root")); err != nil {
		return 0, err
	}
	if err := writeFile(o.run("server-entry"), entry, 0o755); err != nil {
		return 0, fmt.Errorf("writing the first program of the container, %w", err)
	}
	spec := containerSpec(o, groupOf(o.containerID(), groups), capabilities)
	pretended, err := overrideHardware(o)
	if err != nil {
		return 0, err
	}
	spec.Mounts = append(spec.Mounts, pretended...)
	if err := writeSpec(o.run("config.json"), spec); err != nil {
		return 0, err
	}
	if err := runc(o, "create", "--bundle", o.run(), "--pid-file", o.run("pid"), o.containerID()); err != nil {
		return 0, err
	}
	content, err := os.ReadFile(o.run("pid"))
	if err != nil {
		return 0, fmt.Errorf("reading the process that runc has made, %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("reading the process that runc has made, %w", err)
	}
	if err := plugIn(o, pid); err != nil {
		return 0, err
	}
	return pid, runc(o, "start", o.containerID())
}

// mountRoot mounts the server's root file system: the image, and over it what the server has written. All mounts are in
// a namespace that ends with us.
func mountRoot(o Options) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making our mounts our own, %w", err)
	}
	// The existing /proc is of another process namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc, %w", err)
	}
	if err := os.MkdirAll(o.run(), 0o700); err != nil {
		return fmt.Errorf("making the run directory of the server, %w", err)
	}
	if err := unix.Mount("tmpfs", o.run(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return fmt.Errorf("mounting a tmpfs as the run directory of the server, %w", err)
	}
	if err := os.MkdirAll(o.run("root"), 0o755); err != nil {
		return fmt.Errorf("making the directory of the root file system, %w", err)
	}
	// Relative paths, because the kernel splits at commas and colons.
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", escape(filepath.Join(o.Image, "rootfs")), escape(o.disk("upper")),
		escape(o.disk("work")))
	if err := unix.Mount("overlay", o.run("root"), "overlay", 0, layers); err != nil {
		return fmt.Errorf("mounting the root file system, an overlay with %s, %w", layers, err)
	}
	return nil
}

// escape writes a path as an option of an overlay.
func escape(path string) string {
	return strings.NewReplacer("\\", "\\\\", ",", "\\,", ":", "\\:").Replace(path)
}

// runc runs a command of runc, which was unpacked with its libraries and not installed.
func runc(o Options, args ...string) error {
	program, environment := o.runc()
	command := exec.Command(program, append([]string{"--root", o.run("runc")}, args...)...)
	command.Env = environment
	// Not a pipe: the container keeps them open while it runs.
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("running runc %s, %w", args[0], err)
	}
	return nil
}

func (o Options) runc() (program string, environment []string) { return o.Tool("usr/sbin/runc") }

func machineGroups() (groupVersion, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return 0, fmt.Errorf("looking for control groups, %w", err)
	}
	return versionOf(hierarchies(string(mounts))), nil
}

// ownCapabilities returns the names of all capabilities that we have.
func ownCapabilities() ([]string, error) {
	process, err := capability.NewPid2(0)
	if err != nil {
		return nil, fmt.Errorf("reading our capabilities, %w", err)
	}
	if err := process.Load(); err != nil {
		return nil, fmt.Errorf("reading our capabilities, %w", err)
	}
	var names []string
	for _, known := range capability.ListKnown() {
		if process.Get(capability.BOUNDING, known) && process.Get(capability.PERMITTED, known) {
			names = append(names, "CAP_"+strings.ToUpper(known.String()))
		}
	}
	return names, nil
}
