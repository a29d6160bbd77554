// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

const (
	firstDelay = 250 * time.Millisecond
	maxDelay   = 15 * time.Second
	// A process that ran this long had started properly: its next exit counts as the first.
	settled = 20 * time.Second
	// A process that exits this often in a row is not restarted.
	maxQuickDeaths = 5
)

// A child is one process over its restarts.
type child struct {
	spec    Spec
	logFile string
	pidFile string
	clock   clock.Clock
	onExit  func(Exit)

	stop     chan struct{} // closed to request the end
	stopOnce sync.Once
	done     chan struct{} // closed when the process has ended for good

	mu       sync.Mutex
	state    State
	command  *exec.Cmd
	started  time.Time
	restarts int
}

// launch starts the process once.
func (c *child) launch() error {
	log, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s, %w", c.spec.Name, err)
	}
	// The process has its own copy of the descriptor.
	defer func() { _ = log.Close() }()

	command := exec.Command(c.spec.Path, c.spec.Args...)
	command.Env = append(inherited(), c.spec.Env...)
	command.Stdout, command.Stderr = log, log
	// A separate process group, so that Ctrl-C reaches only the supervisor, which then stops everything in order.
	command.SysProcAttr = &syscall.SysProcAttr{Credential: c.spec.Credential, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting %s, %w", c.spec.Name, err)
	}
	pid := strconv.Itoa(command.Process.Pid) + "\n"
	if err := os.WriteFile(c.pidFile, []byte(pid), 0o600); err != nil {
		_ = command.Process.Kill()
		_ = command.Wait()
		return fmt.Errorf("writing the pid file of %s, %w", c.spec.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.command, c.state, c.started = command, Running, c.clock.Now()
	return nil
}

// supervise starts the process, waits for it, and starts it again when it dies and may be restarted. It sends whether the first start
// succeeds, and does no more if not.
func (c *child) supervise(started chan<- error) {
	// The kernel kills a process when the thread ends that has started it, not when that thread's process does, and the Go runtime may end
	// any thread but a locked one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	err := c.launch()
	started <- err
	if err != nil {
		return
	}
	quickDeaths := 0
	for {
		exited := make(chan error, 1)
		go func() { exited <- c.command.Wait() }()
		var reason error
		select {
		case <-c.stop:
			c.terminate(exited)
			c.ended(Stopped)
			return
		case reason = <-exited:
		}
		select {
		case <-c.stop: // it ended on request, or just before it
			c.ended(Stopped)
			return
		default:
		}

		quickDeaths++
		if c.clock.Since(c.started) >= settled {
			quickDeaths = 1
		}
		if !c.spec.Restart || quickDeaths >= maxQuickDeaths {
			c.ended(Failed)
			c.onExit(Exit{Name: c.spec.Name, Reason: describe(reason), Final: true, LogFile: c.logFile})
			return
		}
		delay := min(firstDelay<<(quickDeaths-1), maxDelay)
		c.ended(Waiting)
		c.onExit(Exit{Name: c.spec.Name, Reason: describe(reason), Delay: delay, LogFile: c.logFile})
		timer := c.clock.NewTimer(delay)
		select {
		case <-c.stop:
			timer.Stop()
			c.ended(Stopped)
			return
		case <-timer.C():
		}
		if err := c.launch(); err != nil {
			c.ended(Failed)
			c.onExit(Exit{Name: c.spec.Name, Reason: err.Error(), Final: true, LogFile: c.logFile})
			return
		}
		c.mu.Lock()
		c.restarts++
		c.mu.Unlock()
	}
}

// terminate asks the process to end, and kills it with its whole group when it does not within its grace period.
func (c *child) terminate(exited <-chan error) {
	grace := c.spec.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	_ = c.command.Process.Signal(syscall.SIGTERM)
	timer := c.clock.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-exited:
		return
	case <-timer.C():
	}
	_ = syscall.Kill(-c.command.Process.Pid, syscall.SIGKILL)
	<-exited
}

func (c *child) ended(state State) {
	_ = os.Remove(c.pidFile)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
}

func (c *child) requestStop() { c.stopOnce.Do(func() { close(c.stop) }) }

// signal sends a signal to the process, if it is running.
func (c *child) signal(signal syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != Running {
		return fmt.Errorf("process %s is not running, it is %s", c.spec.Name, c.state)
	}
	return c.command.Process.Signal(signal)
}

func (c *child) info() Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	info := Info{Name: c.spec.Name, State: c.state, Restarts: c.restarts, LogFile: c.logFile}
	if c.state == Running {
		info.PID, info.Started = c.command.Process.Pid, c.started
	}
	return info
}

func describe(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

func inherited() []string {
	var environment []string
	for _, key := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(key); ok {
			environment = append(environment, key+"="+value)
		}
	}
	return environment
}
