// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package generated

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Reasons of the events on the tenant's pods and claims.
const (
	// ReasonOrphaned: the device class is not allowed any more.
	ReasonOrphaned = "DeviceClassGone"
	// ReasonNameTaken: the tenant has a claim of the name that is not its pod's.
	ReasonNameTaken = "NameTaken"
)

// collect deletes what was made in the tenant for a claim that is gone from the host. Only a live answer says so.
func (c *Controller) collect(ctx context.Context, key client.ObjectKey) error {
	made, err := c.made(ctx, key.Name)
	if err != nil || len(made) == 0 {
		return err
	}
	if err := c.planes.Management.Live.Get(ctx, key, &resourcev1.ResourceClaim{}); err == nil {
		return nil
	} else if !tenant.IsGone(err) {
		return fmt.Errorf("reading ResourceClaim %s on the host, %w", key, err)
	}
	for i := range made {
		if err := c.delete(ctx, &made[i]); err != nil {
			return err
		}
	}
	return nil
}

// dropRenamed deletes what was made in the tenant under a name that its pod does not expect any more.
func (c *Controller) dropRenamed(ctx context.Context, hostClaim, expected string) error {
	made, err := c.made(ctx, hostClaim)
	if err != nil {
		return err
	}
	for i := range made {
		if made[i].Name != expected {
			if err := c.delete(ctx, &made[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// made are the claims that this controller has made in the tenant for a claim of the host.
func (c *Controller) made(ctx context.Context, hostClaim string) ([]resourcev1.ResourceClaim, error) {
	claims := &resourcev1.ResourceClaimList{}
	if err := c.planes.Tenant.Client.List(ctx, claims, client.MatchingFields{fieldHostClaim: hostClaim}); err != nil {
		return nil, fmt.Errorf("listing what was made for ResourceClaim %s of the host, %w", hostClaim, err)
	}
	return claims.Items, nil
}

func (c *Controller) delete(ctx context.Context, claim *resourcev1.ResourceClaim) error {
	if err := c.planes.Tenant.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting ResourceClaim %s in the tenant, %w", client.ObjectKeyFromObject(claim), err)
	}
	return nil
}

func orphaned(object client.Object, podClaim, class, policy string) events.Event {
	return events.Event{
		InvolvedObject: object, Type: corev1.EventTypeWarning, Reason: ReasonOrphaned,
		Message: fmt.Sprintf("the claim %s is not in sync with the host: it names DeviceClass %s, which is not allowed any more: %s. "+
			"It stays, and goes on when the class is back", podClaim, class, policy),
		DedupeValues: []string{string(object.GetUID()), podClaim, class},
	}
}

func nameTaken(pod *corev1.Pod, podClaim, name string) events.Event {
	return events.Event{
		InvolvedObject: pod, Type: corev1.EventTypeWarning, Reason: ReasonNameTaken,
		Message:      fmt.Sprintf("the claim %s is not shown: ResourceClaim %s is there and does not belong to this pod; delete it", podClaim, name),
		DedupeValues: []string{string(pod.UID), name},
	}
}
