// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// players is how many hosts Metal3 moves at a time.
const players = 8

// PlayMetal3 moves every host to the state of its spec, at once, until the test ends: with an image it is provisioned,
// without one it is cleaned and available.
func (c *Cluster) PlayMetal3(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	group := &errgroup.Group{}
	// Each host has one worker, so that its events stay in order.
	queues := make([]chan *bmov1alpha1.BareMetalHost, players)
	for n := range queues {
		queues[n] = make(chan *bmov1alpha1.BareMetalHost, 10000)
		group.Go(func() error { return c.play(ctx, queues[n]) })
	}
	group.Go(func() error {
		c.follow(ctx, &bmov1alpha1.BareMetalHostList{}, HostsNamespace, func(event watch.Event) {
			if host, ok := event.Object.(*bmov1alpha1.BareMetalHost); ok && event.Type != watch.Deleted {
				hash := fnv.New32a()
				_, _ = hash.Write([]byte(host.Name)) // never fails
				queues[hash.Sum32()%players] <- host
			}
		})
		for _, queue := range queues {
			close(queue)
		}
		return nil
	})
	t.Cleanup(func() {
		stop()
		if err := group.Wait(); err != nil {
			t.Errorf("playing Metal3, %v", err)
		}
	})
}

// play processes hosts until the queue is closed, also after an error, so that senders are never blocked.
func (c *Cluster) play(ctx context.Context, hosts <-chan *bmov1alpha1.BareMetalHost) (failure error) {
	for host := range hosts {
		before := host.DeepCopy()
		move(host)
		if equality.Semantic.DeepEqual(before.Status, host.Status) {
			continue
		}
		// As Metal3 does, it tries again. An API server that is starved of processor time ends a request after a minute.
		err := poll.Await(ctx, "the status of host "+host.Name+" is written", func(ctx context.Context) error {
			return client.IgnoreNotFound(c.Client.Status().Patch(ctx, host, client.MergeFrom(before)))
		})
		if err != nil && ctx.Err() == nil {
			failure = err
		}
	}
	return failure
}

func move(host *bmov1alpha1.BareMetalHost) {
	status := &host.Status.Provisioning
	host.Status.PoweredOn = host.Spec.Online
	switch {
	case host.Spec.Image != nil && host.Spec.Online && status.State == bmov1alpha1.StateAvailable:
		status.State, status.Image = bmov1alpha1.StateProvisioned, *host.Spec.Image
	case host.Spec.Image == nil && status.State == bmov1alpha1.StateProvisioned:
		status.State, host.Status.PoweredOn = bmov1alpha1.StateDeprovisioning, false
	case host.Spec.Image == nil && status.State == bmov1alpha1.StateDeprovisioning:
		status.State, status.Image = bmov1alpha1.StateAvailable, bmov1alpha1.Image{}
	}
}

// Touch writes the n-th time of the status of a host, as Metal3 does when nothing has changed.
func (c *Cluster) Touch(ctx context.Context, host *bmov1alpha1.BareMetalHost, n int) error {
	updated := time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC).Format(time.RFC3339)
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"lastUpdated":%q}}`, updated))
	target := &bmov1alpha1.BareMetalHost{}
	target.Namespace, target.Name = host.Namespace, host.Name
	if err := c.Client.Status().Patch(ctx, target, patch); err != nil {
		return fmt.Errorf("writing the status of host %s, %w", host.Name, err)
	}
	return nil
}

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
