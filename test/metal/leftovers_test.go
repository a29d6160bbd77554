// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

// watchedPlaces are the directories in which Ironic, its libraries and Metal3's operator write by default, and Ironic's
// own tree, which must not change.
var watchedPlaces = []string{
	filepath.Join(bin, "ironic"), "/etc/ironic", "/var/lib/ironic", "/var/log/ironic", "/var/cache/ironic", "/tftpboot", "/httpboot",
	"/opt/metal3",
}

// snapshot has a line for each file of the places.
type snapshot map[string]string

func takeSnapshot(watchedPlaces ...string) (snapshot, error) {
	state := snapshot{}
	for _, place := range watchedPlaces {
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
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("looking at the files in %s, %w", place, err)
		}
	}
	return state, nil
}

// processesOf finds the other processes with a directory in their arguments or their environment.
func processesOf(dir string) ([]string, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, process := range processes {
		if filepath.Base(process) == strconv.Itoa(os.Getpid()) {
			continue
		}
		for _, file := range []string{"cmdline", "environ"} {
			content, err := os.ReadFile(filepath.Join(process, file))
			if err == nil && bytes.Contains(content, []byte(dir)) { // or it has ended meanwhile, or is another user's
				found = append(found, fmt.Sprintf("process %s: %q", filepath.Base(process), bytes.ReplaceAll(content, []byte{0}, []byte{' '})))
				break
			}
		}
	}
	return found, nil
}

// checkNothingLeft fails if files outside of a directory have changed, or if processes of the directory are left.
func (s snapshot) checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	now, err := takeSnapshot(watchedPlaces...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, now); diff != "" {
		t.Errorf("the test has changed files outside of its directory (-before +after):\n%s", diff)
	}
	left, err := processesOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range left {
		t.Errorf("left: %s", process)
	}
}

// TestLeftoversAreFound: a check that finds nothing would always pass.
func TestLeftoversAreFound(t *testing.T) {
	dir := t.TempDir()
	before, err := takeSnapshot(dir, filepath.Join(dir, "missing"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := takeSnapshot(dir)
	if err != nil {
		t.Fatal(err)
	}
	if cmp.Equal(before, after) {
		t.Error("a new file is not seen")
	}
	command := exec.Command("sleep", "600")
	command.Env = []string{"TMPDIR=" + dir}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill() // it runs
		_ = command.Wait()         // it was killed
	}()
	env.Eventually(t, "the process to be found", func(context.Context) error {
		found, err := processesOf(dir)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("found are %v", found)
		}
		return err
	})
}

// pids are those of the programs that run.
func (w *fixture) pids() map[string]int {
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
		t.Error("nothing was running")
	}
	for name, pid := range pids {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err == nil {
			t.Errorf("%s, process %d, has been stopped and is still there", name, pid)
		}
	}
}

// showLogs logs the end of all programs' logs.
func (w *fixture) showLogs(t *testing.T) {
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
