// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"regexp"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/vishvananda/netlink"
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

// plugIn makes a veth pair between the network namespace of a process and the bridge.
func plugIn(o Options, pid int) error {
	bridge, err := netlink.LinkByName(o.Bridge)
	if err != nil {
		return fmt.Errorf("finding bridge %s, %w", o.Bridge, err)
	}
	mac, err := net.ParseMAC(o.MAC)
	if err != nil {
		return fmt.Errorf("reading the server's MAC address, %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = o.Link(), bridge.Attrs().Index
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: interfaceName, PeerHardwareAddr: mac, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("plugging the server into bridge %s, %w", o.Bridge, err)
	}
	if err := netlink.LinkSetUp(cable); err != nil {
		return fmt.Errorf("bringing up the server's port of bridge %s, %w", o.Bridge, err)
	}
	return nil
}

// hardware is the size that a server reports. It limits nothing: programs can use all that the machine has.
type hardware struct {
	// CPUs is the number of logical processors.
	CPUs int `json:"cpus"`
	// MemoryMiB is the size of the memory, in MiB.
	MemoryMiB int `json:"memoryMiB"`
}

// Files in which the kernel reports the hardware. A kubelet reads them.
const (
	memoryFile     = "/proc/meminfo"
	cpusDirectory  = "/sys/devices/system/cpu"
	nodesDirectory = "/sys/devices/system/node"
)

var memoryTotal = regexp.MustCompile(`(?m)^MemTotal:.*$`)

// overrideHardware writes the kernel's files for the given hardware, and returns the mounts that put them in place.
// Without hardware.json it returns none, and the server reports the machine's hardware.
func overrideHardware(o Options) ([]specs.Mount, error) {
	content, err := os.ReadFile(o.hardware())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the hardware of the server, %w", err)
	}
	var has hardware
	if err := json.Unmarshal(content, &has); err != nil || has.CPUs < 1 || has.MemoryMiB < 1 {
		return nil, fmt.Errorf(`reading the hardware of the server, %s is not like {"cpus": 64, "memoryMiB": 262144} (%v)`, o.hardware(), err)
	}
	memory, err := os.ReadFile(memoryFile)
	if err != nil {
		return nil, fmt.Errorf("reading the memory of the machine, %w", err)
	}
	files := map[string][]byte{"meminfo": memoryTotal.ReplaceAll(memory, fmt.Appendf(nil, "MemTotal: %d kB", has.MemoryMiB<<10))}
	for _, name := range []string{"online", "possible", "present"} {
		files["cpu/"+name] = fmt.Appendf(nil, "0-%d\n", has.CPUs-1)
	}
	for name, content := range files {
		if err := writeFile(o.run("hardware", name), content, 0o444); err != nil {
			return nil, fmt.Errorf("writing the hardware of the server, %w", err)
		}
	}
	// Only the count. With IDs, a program could pin itself to a processor that does not exist.
	directories := []string{"node"}
	for i := range has.CPUs {
		directories = append(directories, fmt.Sprintf("cpu/cpu%d", i))
	}
	for _, name := range directories {
		if err := os.MkdirAll(o.run("hardware", name), 0o755); err != nil {
			return nil, fmt.Errorf("writing the hardware of the server, %w", err)
		}
	}
	return []specs.Mount{
		bind(o.run("hardware/meminfo"), memoryFile, "ro"),
		bind(o.run("hardware/cpu"), cpusDirectory, "ro"),
		bind(o.run("hardware/node"), nodesDirectory, "ro"),
	}, nil
}
