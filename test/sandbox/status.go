// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// A Report is the state of the sandbox in a directory.
type Report struct {
	Dir string
	// PID of the process that runs the sandbox; zero if none does.
	PID int
	// Processes are those that run, the sandbox's own first, then by name. Empty if no sandbox runs.
	Processes   []ProcessReport
	Kubeconfigs Kubeconfigs
	// Screen is the address of the page about the fleet; empty if there is none.
	Screen string
}

// ProcessReport is one running process.
type ProcessReport struct {
	Name string
	PID  int
	// Memory is the resident memory, in bytes.
	Memory int64
	Uptime time.Duration
	// LogFile is empty for the sandbox's own process.
	LogFile string
}

// Status returns the state of the sandbox in dir.
func Status(dir string) (Report, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Report{}, fmt.Errorf("finding the sandbox directory, %w", err)
	}
	report := Report{Dir: dir, Kubeconfigs: KubeconfigsIn(dir)}
	if report.PID, err = holder(dir); err != nil || report.PID == 0 {
		return report, err
	}
	if own, ok := inspect("sandbox", report.PID); ok {
		report.Processes = append(report.Processes, own)
	}
	files, err := filepath.Glob(filepath.Join(dir, "run", "*.pid"))
	if err != nil {
		return Report{}, fmt.Errorf("listing the processes of the sandbox, %w", err)
	}
	slices.Sort(files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) { // it has ended meanwhile
			continue
		}
		if err != nil {
			return Report{}, fmt.Errorf("reading a pid file, %w", err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
		if err != nil {
			continue // it is being written
		}
		name := strings.TrimSuffix(filepath.Base(file), ".pid")
		if process, ok := inspect(name, pid); ok {
			process.LogFile = filepath.Join(dir, "log", name+".log")
			if name == screenName {
				report.Screen = screenOf(dir)
			}
			report.Processes = append(report.Processes, process)
		}
	}
	return report, nil
}

// inspect reads a process from /proc; false if there is none.
func inspect(name string, pid int) (ProcessReport, bool) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return ProcessReport{}, false
	}
	stat, err := process.Stat()
	if err != nil {
		return ProcessReport{}, false
	}
	started, err := stat.StartTime()
	if err != nil {
		return ProcessReport{}, false
	}
	return ProcessReport{
		Name: name, PID: pid, Memory: int64(stat.ResidentMemory()),
		Uptime: max(0, time.Since(time.UnixMilli(int64(started*1000)))),
	}, true
}

// Memory returns the resident memory of all processes, in bytes. Shared pages are counted for each.
func (r Report) Memory() int64 {
	var sum int64
	for _, process := range r.Processes {
		sum += process.Memory
	}
	return sum
}
