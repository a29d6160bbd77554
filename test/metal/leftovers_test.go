// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/sandbox/process"
)

// places are where Ironic, its libraries, and Metal3's operator keep files unless they are told otherwise. Ironic's own tree
// is one of them: it is unpacked once, and is not to change by being used.
var places = []string{
	filepath.Join(bin, "ironic"), "/etc/ironic", "/var/lib/ironic", "/var/log/ironic", "/var/cache/ironic", "/tftpboot", "/httpboot", "/opt/metal3",
}

// snapshot has a line for each file of the places.
type snapshot map[string]string

func machineState(t *testing.T) snapshot {
	t.Helper()
	state := snapshot{}
	for _, place := range places {
		err := filepath.WalkDir(place, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				state[path] = fmt.Sprintf("%d bytes, %s", info.Size(), info.ModTime())
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return state
}

// checkNothingLeft looks for files outside of a directory, and for processes that have anything to do with it.
func (s snapshot) checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if diff := cmp.Diff(s, machineState(t)); diff != "" {
		t.Errorf("the test has changed files outside of its directory (-before +after):\n%s", diff)
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		for _, file := range []string{"cmdline", "environ"} {
			content, err := os.ReadFile(filepath.Join(process, file))
			if err != nil {
				continue // it has ended meanwhile, or is somebody else's
			}
			if bytes.Contains(content, []byte(dir)) {
				t.Errorf("process %s is left: %q", filepath.Base(process), bytes.ReplaceAll(content, []byte{0}, []byte{' '}))
			}
		}
	}
}

// pids are those of the programs that run.
func (w *world) pids() map[string]int {
	pids := map[string]int{}
	for _, info := range w.Processes.List() {
		if info.State == process.Running {
			pids[info.Name] = info.PID
		}
	}
	return pids
}

func checkGone(t *testing.T, pids map[string]int) {
	t.Helper()
	if len(pids) == 0 {
		t.Error("nothing was running: there is nothing to check")
	}
	for name, pid := range pids {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err == nil {
			t.Errorf("%s, process %d, has been stopped and is still there", name, pid)
		}
	}
}

// showLogs shows the last words of all programs.
func (w *world) showLogs(t *testing.T) {
	t.Helper()
	const last = 30
	for _, info := range w.Processes.List() {
		lines, err := process.LastLines(info.LogFile, last)
		t.Logf("the last of %s (%v):", info.LogFile, err)
		for _, line := range lines {
			t.Log("    " + line)
		}
	}
}
