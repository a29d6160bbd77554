// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// dynamicRunnables is a Runnable that starts others which are added while it runs. The manager has it from its start:
// adding a runnable to a manager that is about to stop can block it until its grace period ends, because Add holds a read
// lock of controller-runtime's runnable group until the group takes the runnable, and the group needs that lock, too, behind
// StopAndWait, which waits to write.
type dynamicRunnables struct {
	mu    sync.Mutex
	queue []manager.Runnable
	added chan struct{}
}

func newDynamicRunnables() *dynamicRunnables {
	return &dynamicRunnables{added: make(chan struct{}, 1)}
}

// add starts the runnable, now or once Start is called.
func (d *dynamicRunnables) add(runnable manager.Runnable) {
	d.mu.Lock()
	d.queue = append(d.queue, runnable)
	d.mu.Unlock()
	select {
	case d.added <- struct{}{}:
	default:
	}
}

func (d *dynamicRunnables) take() []manager.Runnable {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.queue
	d.queue = nil
	return taken
}

// Start runs them until the context ends or one of them fails, and returns when all of them have returned.
func (d *dynamicRunnables) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		for _, runnable := range d.take() {
			group.Go(func() error { return runnable.Start(ctx) })
		}
		select {
		case <-d.added:
		case <-ctx.Done():
			return group.Wait()
		}
	}
}

// managerWithRunnables is a manager for controllers that register while it runs.
type managerWithRunnables struct {
	manager.Manager
	runnables *dynamicRunnables
}

// Add implements manager.Manager.
func (m managerWithRunnables) Add(runnable manager.Runnable) error {
	m.runnables.add(runnable)
	return nil
}
