// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// latecomers run what is only known while the manager runs. The manager has them from its start: adding a runnable to a
// manager that is about to stop can lock it up until its grace period ends. Of controller-runtime's group of runnables,
// the one who adds holds a lock for reading until the group takes the runnable, and the group needs the same lock, behind
// the one who stops and waits to write.
type latecomers struct {
	mu     sync.Mutex
	queued []manager.Runnable
	came   chan struct{}
}

func newLatecomers() *latecomers { return &latecomers{came: make(chan struct{}, 1)} }

// add has the runnable started, now or as soon as the latecomers are.
func (l *latecomers) add(runnable manager.Runnable) {
	l.mu.Lock()
	l.queued = append(l.queued, runnable)
	l.mu.Unlock()
	select {
	case l.came <- struct{}{}:
	default:
	}
}

func (l *latecomers) take() []manager.Runnable {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.queued
	l.queued = nil
	return taken
}

// Start runs them until the context ends or one of them fails, and returns when all of them have ended.
func (l *latecomers) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		for _, runnable := range l.take() {
			group.Go(func() error { return runnable.Start(ctx) })
		}
		select {
		case <-l.came:
		case <-ctx.Done():
			return group.Wait()
		}
	}
}

// lateManager is the manager, for what registers while it runs.
type lateManager struct {
	manager.Manager
	latecomers *latecomers
}

// Add implements the manager's interface.
func (m lateManager) Add(runnable manager.Runnable) error {
	m.latecomers.add(runnable)
	return nil
}
