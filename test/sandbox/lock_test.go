// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// startHolder starts another process that holds the lock of dir.
func startHolder(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), dirKey+"="+dir)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "locked\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return command
}

func TestLockIsExclusive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	other := startHolder(t, dir)

	_, err := acquire(dir)
	var running *RunningError
	if !errors.As(err, &running) || running.PID != other.Process.Pid || running.Dir != dir {
		t.Fatalf("error is %v, want one that names pid %d", err, other.Process.Pid)
	}
	if !strings.Contains(err.Error(), "sandbox down --dir "+dir) {
		t.Errorf("the error does not say how to stop the other one: %v", err)
	}

	// A crash must not leave the directory locked.
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	l, err := acquire(dir)
	if err != nil {
		t.Fatalf("after the death of the other: %v", err)
	}
	l.release()
}

func TestDown(t *testing.T) {
	dir := t.TempDir()
	stopped, err := Down(t.Context(), dir)
	if stopped || err != nil {
		t.Fatalf("where none has ever run: stopped %t, %v", stopped, err)
	}
	other := startHolder(t, dir)
	stopped, err = Down(t.Context(), dir)
	if !stopped || err != nil {
		t.Fatalf("where one runs: stopped %t, %v", stopped, err)
	}
	if err := other.Wait(); err != nil {
		t.Errorf("it was not ended in order: %v", err)
	}
	stopped, err = Down(t.Context(), dir)
	if stopped || err != nil {
		t.Fatalf("where one has run: stopped %t, %v", stopped, err)
	}
}

// The pid in the lock file can be stale and reused by another process.
func TestDownIgnoresOtherProcesses(t *testing.T) {
	dir := t.TempDir()
	stranger := startHolder(t, t.TempDir())
	pid := strconv.Itoa(stranger.Process.Pid)
	if err := os.WriteFile(filepath.Join(dir, lockName), []byte(pid), 0o600); err != nil {
		t.Fatal(err)
	}
	stopped, err := Down(t.Context(), dir)
	if stopped || err != nil {
		t.Errorf("stopped %t, %v", stopped, err)
	}
	if _, ok := inspect("stranger", stranger.Process.Pid); !ok {
		t.Error("the stranger was killed")
	}
}

func TestAcquireRefusesForeignDirectories(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.tex"), []byte("..."), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(foreign, "thesis.tex")
	cases := map[string]struct{ reason, dir, want string }{
		"Foreign": {reason: "A directory with other files must not be emptied.", dir: foreign,
			want: "not empty, and not that of a sandbox"},
		"File":      {reason: "A file is no directory.", dir: file, want: "making the sandbox directory"},
		"Forbidden": {reason: "A directory that cannot be made is named.", dir: "/proc/sandbox", want: "/proc/sandbox"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := acquire(tc.dir); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nerror is %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
	entries, err := os.ReadDir(foreign)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("something was put into a foreign directory: %v", entries)
	}
}

func TestStatusNotRunning(t *testing.T) {
	report, err := Status(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if report.PID != 0 || len(report.Processes) != 0 {
		t.Errorf("report of nothing is %+v", report)
	}
}

func TestInspect(t *testing.T) {
	report, ok := inspect("me", os.Getpid())
	if !ok {
		t.Fatal("this process does not exist")
	}
	if report.Memory < 1<<20 || report.Uptime < 0 {
		t.Errorf("this process has %d bytes and is up for %s", report.Memory, report.Uptime)
	}
	if _, ok := inspect("missing", 1<<30); ok {
		t.Error("a pid beyond all pids exists")
	}
}
