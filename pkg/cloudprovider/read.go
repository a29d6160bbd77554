// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/breaker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Get returns the NodeClaim of a provider ID. It returns a NodeClaimNotFoundError only if the API server itself has no
// Machine with it, or if another provider made the provider ID: core then stops draining.
func (c *CloudProvider) Get(ctx context.Context, providerID string) (*karpv1.NodeClaim, error) {
	_, _, name, ok := v1alpha1.ParseProviderID(providerID)
	if !ok {
		return nil, notFound("provider ID %q is not one of this provider", providerID)
	}
	if err := c.management.Synced(); err != nil {
		return nil, fmt.Errorf("reading machine %s, %w", name, err)
	}
	machine := &v1alpha1.Machine{}
	restored := false
	for _, reader := range []client.Reader{c.management.Client, c.management.Live} {
		err := reader.Get(ctx, c.machineKey(name), machine)
		if err == nil && c.isOurs(machine) && machine.Status.ProviderID == providerID {
			return c.nodeClaimOf(machine), nil
		}
		if err != nil && !kube.IsGone(err) {
			return nil, fmt.Errorf("reading machine %s, %w", name, err)
		}
		restored = err == nil && machine.IsRestored() && machine.Status.ProviderID == ""
	}
	// The Machine was restored without its status. The manager will find its server again.
	if restored {
		return nil, fmt.Errorf("reading machine %s, it was restored and does not say yet which server it has", name)
	}
	return nil, notFound("no machine has provider ID %q", providerID)
}

// List returns the NodeClaims of all Machines of this provider that have a server. It returns an error if a Machine has
// no server but its NodeClaim has registered: the Machine was restored from a backup without its status, and core would
// delete the NodeClaim, and the server with it, as soon as its node is not ready. List leaves out Machines that have
// lost their server, so that core deletes their NodeClaims, unless they are too many: the inventory may be incomplete.
func (c *CloudProvider) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	if err := c.management.Synced(); err != nil {
		return nil, fmt.Errorf("listing machines, %w", err)
	}
	machines := &v1alpha1.MachineList{}
	if err := c.management.Client.List(ctx, machines, client.InNamespace(c.options.Namespace),
		client.HasLabels{v1alpha1.NodeClaimLabelKey}); err != nil {
		return nil, fmt.Errorf("listing machines, %w", err)
	}
	var nodeClaims, lost []*karpv1.NodeClaim
	for i := range machines.Items {
		machine := &machines.Items[i]
		if !c.isOurs(machine) {
			continue
		}
		if machine.Status.ProviderID == "" {
			if err := c.checkUnregistered(ctx, machine); err != nil {
				return nil, err
			}
			continue
		}
		if conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady).Reason == v1alpha1.ReasonHostLost {
			lost = append(lost, c.nodeClaimOf(machine))
			continue
		}
		nodeClaims = append(nodeClaims, c.nodeClaimOf(machine))
	}
	if all := len(nodeClaims) + len(lost); len(lost) > breaker.Limit(all) {
		log.FromContext(ctx).Info("too many machines have lost their server: no nodeclaim is deleted because of that", "lost", len(lost),
			"machines", all, "limit", breaker.Limit(all))
		nodeClaims = append(nodeClaims, lost...)
	}
	return nodeClaims, nil
}

// checkUnregistered returns an error if the NodeClaim of a Machine has registered.
func (c *CloudProvider) checkUnregistered(ctx context.Context, machine *v1alpha1.Machine) error {
	nodeClaim := &karpv1.NodeClaim{}
	name := machine.Labels[v1alpha1.NodeClaimLabelKey]
	if err := c.tenant.Get(ctx, types.NamespacedName{Name: name}, nodeClaim); err != nil {
		return client.IgnoreNotFound(err)
	}
	if tenant.HasRegistered(nodeClaim) {
		return fmt.Errorf("listing machines, machine %s of NodeClaim %s was restored and does not say yet which server it has",
			machine.Name, name)
	}
	return nil
}

// isOurs reports whether this provider created a Machine for this tenant. Others are made by hand, or for another
// tenant in the same namespace.
func (c *CloudProvider) isOurs(machine *v1alpha1.Machine) bool {
	reference := machine.Spec.TenantClusterRef
	return reference != nil && reference.Name == c.options.TenantCluster && machine.Labels[v1alpha1.NodeClaimLabelKey] != ""
}
