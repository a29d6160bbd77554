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

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// Replacing is for the reads of core's disruption queue. It moves the creation time of the command that the NodeClaim
// belongs to, as long as the server of one of its replacements is being installed. From when the last has joined, its node
// has core's own 10 minutes to get ready. So has a server that makes no progress, because it is held in error or paused:
// the old node is tainted meanwhile, and must not stay so for ever.
//
// The queue works on one command at a time and starts with this read, so nothing else reads the time concurrently.
func Replacing(c client.Reader, queue *disruption.Queue, clk clock.PassiveClock, machines Machines) interceptor.Interceptor {
	return interceptor.OnGet(func(ctx context.Context, nodeClaim *karpenterv1.NodeClaim, _ []client.GetOption) error {
		queue.RLock()
		command := queue.ProviderIDToCommand[nodeClaim.Status.ProviderID]
		queue.RUnlock()
		if command == nil {
			return nil
		}
		for _, replacement := range command.Replacements {
			if replacement.Initialized || replacement.Name == "" {
				continue
			}
			start, err := startOfReplacement(ctx, c, replacement.Name, clk, machines)
			if err != nil {
				return err
			}
			if start.After(command.CreationTimestamp) {
				command.CreationTimestamp = start
			}
		}
		return nil
	})
}

func startOfReplacement(ctx context.Context, c client.Reader, name string, clk clock.PassiveClock, machines Machines) (time.Time, error) {
	nodeClaim := &karpenterv1.NodeClaim{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, nodeClaim); err != nil {
		return time.Time{}, client.IgnoreNotFound(err) // core handles that it is gone
	}
	if !nodeClaim.DeletionTimestamp.IsZero() {
		return time.Time{}, nil
	}
	if suspended, err := machines.suspended(ctx, nodeClaim); err != nil || suspended {
		return time.Time{}, err
	}
	return machines.startOfWait(ctx, nodeClaim, clk.Now())
}
