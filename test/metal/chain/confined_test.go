// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// confined is /proc/PID/status of a process with the charts' security context: an unprivileged user, no capabilities,
// no privilege escalation, and a seccomp filter.
var confined = map[string]string{
	"Uid": "65532 65532 65532 65532", "Gid": "65532 65532 65532 65532",
	"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
}

// checkConfined compares /proc of the programs' processes with confined. Each program must have a process.
func (w *fixture) checkConfined(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		found := 0
		for _, process := range w.programs(t, program) {
			found++
			got := map[string]string{}
			status, err := os.ReadFile(filepath.Join(process, "status"))
			if err != nil {
				t.Errorf("looking at a process of the %s, %v", program, err)
				continue
			}
			for line := range strings.Lines(string(status)) {
				key, value, _ := strings.Cut(line, ":")
				if _, asked := confined[key]; asked {
					got[key] = strings.Join(strings.Fields(value), " ")
				}
			}
			if diff := cmp.Diff(confined, got); diff != "" {
				t.Errorf("a process of the %s is not confined as the chart says (-want +got):\n%s", program, diff)
			}
			if root := filepath.Join(process, "root"); isWritable(root) {
				t.Errorf("a process of the %s can write to its root file system", program)
			}
		}
		if found == 0 {
			t.Errorf("no process of the %s was found", program)
		}
	}
}

// programs are the processes of a program that run in containers of the management node.
func (w *fixture) programs(t *testing.T, name string) []string {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, process := range processes {
		command, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if err != nil || !strings.HasPrefix(string(command), "/"+name+"\x00") {
			continue // it has ended, or is another process
		}
		groups, err := os.ReadFile(filepath.Join(process, "cgroup"))
		if err == nil && w.leftovers.in(groups) {
			found = append(found, process)
		}
	}
	return found
}

// isWritable returns whether the mount of a root file system, as its process sees it, can be written to.
func isWritable(root string) bool {
	mounts, err := os.ReadFile(filepath.Join(filepath.Dir(root), "mounts"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && fields[1] == "/" {
			return !strings.HasPrefix(fields[3], "ro,") && fields[3] != "ro"
		}
	}
	return true
}
