// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Delete releases the server of a NodeClaim. It returns nil while the release is under way. It returns a
// NodeClaimNotFoundError once the API server itself no longer has the Machine, or if another provider made the provider
// ID. Any other error says nothing about the Machine.
func (c *CloudProvider) Delete(ctx context.Context, nodeClaim *karpv1.NodeClaim) error {
	machine, err := c.machineOf(ctx, nodeClaim)
	if err != nil {
		return err
	}
	if !machine.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := c.recordUnhealthy(ctx, machine, nodeClaim); err != nil {
		return err
	}
	if err := c.management.Client.Delete(ctx, machine, client.Preconditions{UID: &machine.UID}); err != nil {
		if kube.IsGone(err) {
			return notFound("machine %s does not exist", machine.Name)
		}
		return fmt.Errorf("deleting machine %s, %w", machine.Name, err)
	}
	return nil
}

// machineOf reads the Machine of a NodeClaim from the API server, by its provider ID if it has one.
func (c *CloudProvider) machineOf(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*v1alpha1.Machine, error) {
	name := nodeClaim.Name
	if providerID := nodeClaim.Status.ProviderID; providerID != "" {
		_, _, machineName, ok := v1alpha1.ParseProviderID(providerID)
		if !ok {
			return nil, notFound("provider ID %q is not one of this provider", providerID)
		}
		name = machineName
	}
	return c.machine(ctx, c.management.Live, name, nodeClaim)
}

func (c *CloudProvider) machineKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.options.Namespace, Name: name}
}

// machine reads the Machine of a NodeClaim. It returns a NodeClaimNotFoundError if the Machine does not exist or
// belongs to another NodeClaim.
func (c *CloudProvider) machine(ctx context.Context, reader client.Reader, name string,
	nodeClaim *karpv1.NodeClaim) (*v1alpha1.Machine, error) {
	machine := &v1alpha1.Machine{}
	found, err := kube.Find(ctx, reader, c.machineKey(name), machine)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, notFound("machine %s does not exist", name)
	case !c.isOurs(machine) || !tenant.MadeFor(machine, nodeClaim):
		return nil, notFound("machine %s belongs to another NodeClaim", name)
	}
	return machine, nil
}

func notFound(format string, args ...any) error {
	return cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf(format, args...))
}
