// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// A launcher starts processes that the kernel kills when the launcher's process ends.
//
// The kernel's parent-death signal fires when the thread that forked ends, not when its process does, and the Go
// runtime may end any thread. So one goroutine, locked to one thread while the launcher is open, does all the forking.
type launcher struct {
	requests chan launchRequest
	done     chan struct{}
	close    sync.Once
}

type launchRequest struct {
	command *exec.Cmd
	result  chan<- error
}

func newLauncher() *launcher {
	l := &launcher{requests: make(chan launchRequest), done: make(chan struct{})}
	go l.run()
	return l
}

func (l *launcher) run() {
	// Never unlocked: the thread ends with the goroutine, and with the thread all that it started.
	runtime.LockOSThread()
	defer close(l.done)
	for request := range l.requests {
		// A separate process group, so that Ctrl-C reaches only the supervisor, which then stops everything in order.
		request.command.SysProcAttr.Setpgid, request.command.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
		request.result <- request.command.Start()
	}
}

// start starts the command. The launcher must be open.
func (l *launcher) start(command *exec.Cmd) error {
	result := make(chan error, 1)
	l.requests <- launchRequest{command: command, result: result}
	return <-result
}

// shut ends the launcher. Processes that still run are killed.
func (l *launcher) shut() {
	l.close.Do(func() { close(l.requests) })
	<-l.done
}
