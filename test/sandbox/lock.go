// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const lockName = "sandbox.lock"

// lockPoll is how often a lock is tried while another process is releasing it.
const lockPoll = 50 * time.Millisecond

// A lock marks a directory as that of a running sandbox. The kernel releases it when its holder ends, so it cannot be
// stale. The file stays, and marks the directory as one that a sandbox may empty.
type lock struct{ file *os.File }

// A RunningError means that a sandbox is already running in the directory.
type RunningError struct {
	Dir string
	PID int
}

// Error implements error.
func (e *RunningError) Error() string {
	return fmt.Sprintf("a sandbox is already running in %s (pid %d); stop it with `sandbox down --dir %s`, or choose another --dir", e.Dir,
		e.PID, e.Dir)
}

// acquire locks the directory, making it if need be. If a sandbox is running in it, the error is a RunningError.
func acquire(dir string) (*lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the sandbox directory, %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the sandbox directory, %w", err)
	}
	path := filepath.Join(dir, lockName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && len(entries) > 0 {
		return nil, fmt.Errorf("directory %s is not empty, and not that of a sandbox; choose another --dir", dir)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the sandbox, %w", err)
	}
	l := &lock{file: file}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			l.release()
			return nil, fmt.Errorf("locking %s, %w", path, err)
		}
		pid, err := holder(dir)
		if err == nil && pid != 0 {
			err = &RunningError{Dir: dir, PID: pid}
		}
		if err != nil {
			l.release()
			return nil, err
		}
		// Another process held it for a moment, to check whether it is held.
	}
	if err := l.sign(); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// sign writes the holder of the lock to the file.
func (l *lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("writing the lock of the sandbox, %w", err)
	}
	if _, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("writing the lock of the sandbox, %w", err)
	}
	return nil
}

func (l *lock) release() { _ = l.file.Close() }

// holder returns the process that runs a sandbox in dir, or zero if none does.
func holder(dir string) (int, error) {
	file, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("opening the lock of the sandbox, %w", err)
	}
	defer func() { _ = file.Close() }()
	// The pid in the file can be stale and reused. Only the lock proves that the process runs.
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, fmt.Errorf("testing the lock of the sandbox, %w", err)
	}
	content, err := os.ReadFile(file.Name())
	if err != nil {
		return 0, fmt.Errorf("reading the lock of the sandbox, %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("the lock %s is held, but has no process ID; try again", file.Name())
	}
	return pid, nil
}

// Down stops the sandbox that runs in dir, if there is one, and returns when it has ended. stopped is whether there was
// one.
func Down(ctx context.Context, dir string) (stopped bool, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return false, fmt.Errorf("finding the sandbox directory, %w", err)
	}
	pid, err := holder(dir)
	if err != nil || pid == 0 {
		return false, err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("stopping the sandbox with pid %d, %w", pid, err)
	}
	err = wait.PollUntilContextCancel(ctx, lockPoll, true, func(context.Context) (bool, error) {
		current, err := holder(dir)
		return current != pid, err
	})
	if err != nil {
		return false, fmt.Errorf("waiting for the sandbox with pid %d to end, %w", pid, err)
	}
	return true, nil
}
