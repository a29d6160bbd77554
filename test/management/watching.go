// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Count counts Machines that reach a state.
type Count struct {
	reached  func(*v1alpha1.Machine) bool
	arrivals chan time.Time
	stop     context.CancelFunc
}

// Count starts counting Machines for which reached is true. Each is counted once.
func (c *Cluster) Count(t testing.TB, reached func(*v1alpha1.Machine) bool) *Count {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	count := &Count{reached: reached, arrivals: make(chan time.Time, 100000), stop: stop}
	seen, done := map[string]bool{}, make(chan struct{})
	go func() {
		defer close(done)
		c.follow(ctx, &v1alpha1.MachineList{}, TenantNamespace, func(event watch.Event) {
			if machine, ok := event.Object.(*v1alpha1.Machine); ok && !seen[machine.Name] && reached(machine) {
				seen[machine.Name] = true
				count.arrivals <- time.Now()
			}
		})
	}()
	t.Cleanup(func() { stop(); <-done })
	return count
}

// Wait waits until that many Machines are counted. It returns the times of the first and the last of them.
func (c *Count) Wait(t testing.TB, what string, count int) (first, last time.Time) {
	t.Helper()
	defer c.stop()
	for n := range count {
		last = poll.Receive(t, fmt.Sprintf("%d Machines to be %s, and %d are", count, what, n), c.arrivals)
		if n == 0 {
			first = last
		}
	}
	return first, last
}

// follow watches until the context ends. The API server may end a watch at any time; the next begins with all objects.
func (c *Cluster) follow(ctx context.Context, list client.ObjectList, namespace string, each func(watch.Event)) {
	for ctx.Err() == nil {
		watching, err := c.Client.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			continue
		}
		for event := range watching.ResultChan() {
			each(event)
		}
	}
}

// InPhase is for Count.
func InPhase(phase v1alpha1.MachinePhase) func(*v1alpha1.Machine) bool {
	return func(machine *v1alpha1.Machine) bool { return machine.Status.Phase == phase }
}
