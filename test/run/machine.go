// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

const gibibyte = 1 << 30

// perPackage is the memory that a package may need: a sandbox has two control planes, and its packages are linked meanwhile.
const perPackage = 3 * gibibyte

// machine has the resources for tests.
type machine struct {
	cores  int
	memory int64
}

// thisMachine has the cores and the memory that this process may use.
func thisMachine() machine {
	m := machine{cores: runtime.GOMAXPROCS(0)}
	if content, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.memory = memTotal(string(content))
	}
	if content, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err == nil { // or it is "max"
			m.memory = min(m.memory, limit)
		}
	}
	return m
}

// memTotal returns the memory in /proc/meminfo, in bytes; 0 if it cannot be parsed.
func memTotal(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "MemTotal:" {
			kibibytes, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0
			}
			return kibibytes << 10
		}
	}
	return 0
}

// packages is how many packages to test at a time: one more than there are cores, because the longest ones wait most of the
// time, if the memory allows it, and never less than two.
func (m machine) packages() int {
	return max(2, min(m.cores+1, int(m.memory/perPackage)))
}

func (m machine) String() string {
	return fmt.Sprintf("%d cores and %d GiB of memory", m.cores, m.memory/gibibyte)
}
