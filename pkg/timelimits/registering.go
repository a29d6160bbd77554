// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// registering is a client that shows NodeClaims whose server is on its way as if it had just been launched.
type registering struct {
	client.Client
	clock    clock.PassiveClock
	machines Machines
}

// Registering returns a client for the reads of core's lifecycle controller. A NodeClaim that is read through it, has
// been launched, has not registered, and has a Machine on its way has no time behind it in its condition Registered. From when the server has become a node, core
// has its own time to register it.
func Registering(c client.Client, clk clock.PassiveClock, machines Machines) client.Client {
	return &registering{Client: c, clock: clk, machines: machines}
}

// Get reads as the client does, and brings the condition of a NodeClaim forward.
func (r *registering) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := r.Client.Get(ctx, key, object, options...); err != nil {
		return err
	}
	nodeClaim, ok := object.(*karpenterv1.NodeClaim)
	if !ok || !nodeClaim.DeletionTimestamp.IsZero() || nodeClaim.Status.ProviderID == "" {
		return nil
	}
	// Not by StatusConditions, which adds those that are missing.
	at := slices.IndexFunc(nodeClaim.Status.Conditions, func(condition status.Condition) bool {
		return condition.Type == karpenterv1.ConditionTypeRegistered
	})
	if at < 0 || nodeClaim.Status.Conditions[at].Status == metav1.ConditionTrue {
		return nil
	}
	from, err := r.machines.waitFrom(ctx, nodeClaim, r.clock.Now())
	if err != nil {
		return err
	}
	// The object is the caller's own copy. If core writes its conditions, this time is written with them, and is as good
	// as the one that was there.
	if registered := &nodeClaim.Status.Conditions[at]; from.After(registered.LastTransitionTime.Time) {
		registered.LastTransitionTime = metav1.NewTime(from)
	}
	return nil
}
