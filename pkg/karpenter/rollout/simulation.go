// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
)

// enough servers for every pod in a simulation. Pods that are pending anyway must not make it appear that there is no
// server for those to be drained.
const enough = 1 << 20

// simulatedCapacity is a CloudProvider in which servers like that of a node are free.
type simulatedCapacity struct {
	cloudprovider.CloudProvider
	// node are the labels of the node.
	node map[string]string
}

// withSimulatedCapacity returns a CloudProvider for a simulation in which the server of a candidate has been released.
func withSimulatedCapacity(inner cloudprovider.CloudProvider, candidate *disruption.Candidate) cloudprovider.CloudProvider {
	return &simulatedCapacity{CloudProvider: inner, node: candidate.Labels()}
}

// GetInstanceTypes implements cloudprovider.CloudProvider.
func (s *simulatedCapacity) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	types, err := s.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return nil, err
	}
	result := make([]*cloudprovider.InstanceType, len(types))
	for i, instanceType := range types {
		result[i] = instanceType
		if instanceType.Name == s.node[corev1.LabelInstanceTypeStable] {
			result[i] = withFreeServers(instanceType, s.node)
		}
	}
	return result, nil
}

// simulate returns what core would do with the pods of a candidate if its server were free. The provisioner is core's, but
// with simulated capacity. Its cache of virtual pods fills itself on first use.
func (d *Drift) simulate(ctx context.Context, candidate *disruption.Candidate) (scheduling.Results, error) {
	// Every provisioner logs its warnings about a pod once.
	ctx = log.IntoContext(ctx, logr.Discard())
	provisioner := provisioning.NewProvisioner(d.Client, d.Recorder, withSimulatedCapacity(d.CloudProvider, candidate), d.Cluster, d.Clock,
		d.deviceAllocation, virtualpods.NewVirtualPodCache(d.Client))
	return disruption.SimulateScheduling(ctx, d.Client, d.Cluster, provisioner, d.Clock, d.Recorder, nil, candidate)
}

// withFreeServers copies an instance type with the offerings in the zone of a node made available. The original is shared.
// A type without a free server in a domain does not have the labels of that domain, so those of the node are added.
func withFreeServers(instanceType *cloudprovider.InstanceType, node map[string]string) *cloudprovider.InstanceType {
	offerings := make(cloudprovider.Offerings, len(instanceType.Offerings))
	for i, original := range instanceType.Offerings {
		offering := *original
		offering.Requirements = requirements.NewRequirements(original.Requirements.Values()...)
		if offering.Zone() == node[corev1.LabelTopologyZone] {
			offering.Available, offering.ReservationCapacity = true, enough
		}
		offerings[i] = &offering
	}
	merged := requirements.NewRequirements(instanceType.Requirements.Values()...)
	for key, original := range instanceType.Requirements {
		if value, has := node[key]; has && !original.Has(value) {
			merged[key] = requirements.NewRequirement(key, corev1.NodeSelectorOpIn, append(original.Values(), value)...)
		}
	}
	return &cloudprovider.InstanceType{
		Name: instanceType.Name, Requirements: merged, Offerings: offerings,
		Capacity: instanceType.Capacity, Overhead: instanceType.Overhead, DynamicResources: instanceType.DynamicResources,
	}
}
