// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator"
)

// logTail is how many lines of a log are searched for what a program prints when it starts.
const logTail = 12

// A Sandbox is a running sandbox. It must be closed.
type Sandbox struct {
	config      Config
	kubeconfigs Kubeconfigs
	lock        *lock
	progress    *progress
	supervisor  *process.Supervisor

	managementEtcd     *cluster.Etcd
	management, tenant *cluster.Cluster

	// ctx ends when the sandbox is closed, or when one of its parts has failed for good, which is then the cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
	rack   sync.WaitGroup
	// servers are those of the rack.
	servers *emulator.Rack

	closeOnce sync.Once
	closed    chan struct{}

	mu       sync.Mutex
	starting bool
	metrics  map[string]string
}

// Up starts a sandbox and returns when all of it is ready. On an error, everything is stopped, and the error is one
// sentence, followed by the end of the log if a process failed. If a sandbox is already running in the directory, the
// error is a RunningError.
func Up(ctx context.Context, config Config) (*Sandbox, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	lock, err := acquire(config.Dir)
	if err != nil {
		return nil, err
	}
	s := &Sandbox{
		config: config, kubeconfigs: KubeconfigsIn(config.Dir), lock: lock,
		progress: newProgress(config.Progress),
		closed:   make(chan struct{}), starting: true, metrics: map[string]string{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := s.up(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sandbox) up(caller context.Context) error {
	if err := prepareDir(s.config.Dir); err != nil {
		return err
	}
	var err error
	s.supervisor, err = process.NewSupervisor(process.Options{Dir: s.config.Dir, OnExit: s.exited})
	if err != nil {
		return err
	}
	// The start ends with the caller's context, after a timeout, or when a part fails.
	ctx, done := context.WithTimeoutCause(s.ctx, s.config.StartTimeout,
		fmt.Errorf("the sandbox was not up after %s; the logs are in %s", s.config.StartTimeout, filepath.Join(s.config.Dir, "log")))
	defer done()
	stop := context.AfterFunc(caller, func() { s.cancel(errors.New("interrupted")) })
	defer stop()

	if err := s.start(ctx); err != nil {
		if cause := context.Cause(s.ctx); cause != nil {
			return cause
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = false
	// A process may have exited since the last step.
	return context.Cause(s.ctx)
}

// exited is called for each unexpected exit.
func (s *Sandbox) exited(exit process.Exit) {
	s.mu.Lock()
	starting := s.starting
	s.mu.Unlock()
	// During the start, an exit is an error, and the process is not restarted.
	if !exit.Final && !starting {
		s.progress.say("%s died (%s), it is started again", exit.Name, exit.Reason)
		return
	}
	s.cancel(exit)
}

// Wait returns nil when the context ends, and an error with the end of its log when a part of the sandbox has failed
// for good. The sandbox must be closed in either case.
func (s *Sandbox) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// Run calls work with a context that ends with the given one, or when a part of the sandbox has failed for good. That failure
// is then the error, because it is why the work failed.
func (s *Sandbox) Run(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	defer stop()
	err := work(ctx)
	if cause := context.Cause(s.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// Close stops everything and waits for its end. It may be called more than once.
func (s *Sandbox) Close() {
	s.closeOnce.Do(func() {
		defer close(s.closed)
		s.cancel(errors.New("the sandbox is closed"))
		s.rack.Wait()
		if s.supervisor != nil {
			s.supervisor.Close()
		}
		s.lock.release()
	})
	<-s.closed
}

// Kubeconfigs returns the kubeconfig files of the sandbox.
func (s *Sandbox) Kubeconfigs() Kubeconfigs { return s.kubeconfigs }

// Metrics returns the URL of the metrics of ManagerName or ProviderName; empty if it was left out.
func (s *Sandbox) Metrics(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metrics[name]
}

// ManagementConfig returns the administrator's access to the management cluster.
func (s *Sandbox) ManagementConfig() *rest.Config { return rest.CopyConfig(s.management.REST) }

// TenantConfig returns the administrator's access to the tenant cluster.
func (s *Sandbox) TenantConfig() *rest.Config { return rest.CopyConfig(s.tenant.REST) }

// Reset does what a BMC does for a reset: the server boots again if it is on. Metal3's demo mode has no BMCs, and leaves requests to reboot
// on the BareMetalHosts.
func (s *Sandbox) Reset(server string) { s.servers.Reset(server) }

// Processes gives access to the processes of the sandbox, to stop, start or kill them in a test.
func (s *Sandbox) Processes() *process.Supervisor { return s.supervisor }

// progress prints lines with the time since the start.
type progress struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer
}

func newProgress(out io.Writer) *progress { return &progress{start: time.Now(), out: out} }

// say writes one line. Errors are ignored: the sandbox goes on without a reader.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, "+%6.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}
