// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

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
