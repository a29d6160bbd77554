// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// entryPath is the program that the container starts with; it becomes systemd.
const entryPath = "/run/server-entry"

// containerSpec returns the specification for runc. capabilities are those of this process: more cannot be granted.
func containerSpec(o Options, group string, capabilities []string) *specs.Spec {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		// Read-only: systemd then leaves devices alone.
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "rw"}},
		{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=755"}},
		{Destination: "/run/lock", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "noexec"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev"}},
		bind(o.run("server-entry"), entryPath, "ro"),
		// The kubelet reads OOM kills from there.
		bind("/dev/kmsg", "/dev/kmsg", "ro"),
		// Containers have overlays too, and one overlay cannot be the upper layer of another.
		bind(o.disk("containerd"), "/var/lib/containerd", "rw"),
		bind(o.disk("kubelet"), "/var/lib/kubelet", "rw"),
	}
	if o.ContainerImages != "" {
		mounts = append(mounts, bind(o.ContainerImages, "/mnt/container-images", "ro"))
	}
	return &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: o.run("root")},
		// cloud-init replaces it.
		Hostname: "server",
		Mounts:   mounts,
		Process: &specs.Process{
			Args: []string{"/bin/sh", entryPath},
			// The second tells systemd that it is in a container.
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "container=runc"},
			Cwd: "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
		},
		Linux: &specs.Linux{
			CgroupsPath: group,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
			},
			// Containers on the server may need mount propagation.
			Resources:         &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}},
			RootfsPropagation: "shared",
			// Settings outside of the namespaces are the machine's.
			ReadonlyPaths: []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"},
		},
	}
}

func bind(source, destination, mode string) specs.Mount {
	return specs.Mount{Destination: destination, Type: "bind", Source: source, Options: []string{"rbind", mode}}
}
