// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs programs as supervised children: each with a log file and a pid file, in a process group of its
// own, stopped in order, restarted with backoff after an unexpected exit, and killed by the kernel when the supervising
// process ends in any way. It runs on Linux.
package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// logTail is how many lines of a log are shown when a process fails.
const logTail = 12

// DefaultGrace is the default time between SIGTERM and SIGKILL.
const DefaultGrace = 10 * time.Second

// A Spec describes a process.
type Spec struct {
	// Name is unique within a Supervisor. Log and pid file are named after it.
	Name string
	// Path of the program.
	Path string
	// Args are the arguments, without the program's name.
	Args []string
	// Env holds KEY=VALUE pairs. Beyond them, a process sees only PATH, HOME and TMPDIR of its parent, so that a
	// KUBECONFIG or a proxy of the user's shell cannot divert it.
	Env []string
	// Credential is the user that the process runs as. None is the user of its parent; only root can have another.
	Credential *syscall.Credential
	// Restart restarts the process after an unexpected exit.
	Restart bool
	// Grace is the time between SIGTERM and SIGKILL; zero means DefaultGrace.
	Grace time.Duration
	// Rank orders StopAll: processes of a higher rank are stopped before those of a lower one, those of equal rank together.
	Rank int
}

// A State is the state of a process.
type State string

// The states of a process.
const (
	// Running means that the process is alive.
	Running State = "Running"
	// Waiting means that it exited and will be restarted.
	Waiting State = "Waiting"
	// Stopped means that it was stopped on request.
	Stopped State = "Stopped"
	// Failed means that it exited, and will not be restarted.
	Failed State = "Failed"
)

// Info describes a process at one moment.
type Info struct {
	Name  string
	State State
	// PID is zero unless the process is running.
	PID int
	// Started is when the running process was started; zero unless it is running.
	Started time.Time
	// Restarts counts how often it was started again after an unexpected death.
	Restarts int
	// LogFile holds what the process writes to standard output and standard error.
	LogFile string
}

// An Exit reports an unexpected exit of a process. It is an error.
type Exit struct {
	Name string
	// Reason is the exit status or the signal, as text.
	Reason string
	// Final means that the process will not be restarted; otherwise it is started again after Delay.
	Final bool
	Delay time.Duration
	// LogFile has the output of the process.
	LogFile string
}

// Error returns the reason, with the end of the log.
func (e Exit) Error() string {
	message := fmt.Sprintf("%s failed (%s); its log is %s", e.Name, e.Reason, e.LogFile)
	if lines, err := LastLines(e.LogFile, logTail); err == nil && len(lines) > 0 {
		message += ", and ends with:\n  " + strings.Join(lines, "\n  ")
	}
	return message
}

// tailSize bounds how much of a log is read for its last lines.
const tailSize = 64 << 10

// LastLines returns up to count of the last lines of a file, oldest first, without line ends.
func LastLines(path string, count int) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the last lines, %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the last lines, %w", err)
	}
	offset := max(0, info.Size()-tailSize)
	content, err := io.ReadAll(io.NewSectionReader(file, offset, tailSize))
	if err != nil {
		return nil, fmt.Errorf("reading the last lines of %s, %w", path, err)
	}
	content = bytes.TrimRight(content, "\n")
	if len(content) == 0 {
		return nil, nil
	}
	all := bytes.Split(content, []byte("\n"))
	if len(all) > count {
		all = all[len(all)-count:]
	}
	lines := make([]string, 0, len(all))
	for _, line := range all {
		lines = append(lines, string(line))
	}
	return lines, nil
}
