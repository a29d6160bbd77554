// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
)

// replacing is a client that brings the time of a disruption command forward when its NodeClaim is read.
type replacing struct {
	client.Client
	queue    *disruption.Queue
	clock    clock.PassiveClock
	machines Machines
}

// Replacing returns a client for the reads of core's disruption queue. A command that is looked at through it has just
// begun as long as the server of one of its replacements is on its way. From when the last has registered, its node has
// core's own time to get ready. A server that makes no progress, because it is held in error or somebody has paused it, has
// core's own time too: the old node is tainted meanwhile, and has done nothing to stay so for good.
func Replacing(c client.Client, queue *disruption.Queue, clk clock.PassiveClock, machines Machines) client.Client {
	return &replacing{Client: c, queue: queue, clock: clk, machines: machines}
}

// Get reads as the client does. The queue works on one command at a time, and begins with this read, so nobody else looks
// at the time of the command meanwhile.
func (r *replacing) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := r.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	nodeClaim, ok := object.(*karpenterv1.NodeClaim)
	if !ok {
		return nil
	}
	r.queue.RLock()
	command := r.queue.ProviderIDToCommand[nodeClaim.Status.ProviderID]
	r.queue.RUnlock()
	if command == nil {
		return nil
	}
	for _, replacement := range command.Replacements {
		if replacement.Initialized || replacement.Name == "" {
			continue
		}
		from, err := r.waitFrom(ctx, replacement.Name)
		if err != nil {
			return err
		}
		if from.After(command.CreationTimestamp) {
			command.CreationTimestamp = from
		}
	}
	return nil
}

func (r *replacing) waitFrom(ctx context.Context, name string) (time.Time, error) {
	nodeClaim := &karpenterv1.NodeClaim{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, nodeClaim); err != nil {
		return time.Time{}, client.IgnoreNotFound(err) // core knows what it means that it is gone
	}
	if !nodeClaim.DeletionTimestamp.IsZero() {
		return time.Time{}, nil
	}
	if suspended, err := r.machines.suspended(ctx, nodeClaim); err != nil || suspended {
		return time.Time{}, err
	}
	return r.machines.waitFrom(ctx, nodeClaim, r.clock.Now())
}
