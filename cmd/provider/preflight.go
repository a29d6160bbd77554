// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterapis "sigs.k8s.io/karpenter/pkg/apis"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

const (
	karpenterRemedy  = "install the CustomResourceDefinitions of Karpenter there"
	tenantRemedy     = "install the CustomResourceDefinitions of karpenter-provider-metal3 for tenants there"
	bufferRemedy     = "install it there, it is among the CustomResourceDefinitions of Karpenter, or turn the feature gate CapacityBuffer off"
	managementRemedy = "install the CustomResourceDefinitions of karpenter-provider-metal3 there"
)

// preflight returns once both clusters answer and have the required kinds, and turns off optional features of core in
// its options. Its error names what is missing.
func (o *options) preflight(ctx context.Context, tenant, management *rest.Config, karpenter *karpenteroptions.Options) error {
	var inTenant []operator.Kind
	inManagement := []operator.Kind{kind(v1alpha1.Group, "v1alpha1", "TenantCluster", managementRemedy)}
	if o.runs(karpenterControllers) {
		inTenant = append(inTenant,
			kind(karpenterapis.Group, "v1", "NodePool", karpenterRemedy),
			kind(karpenterapis.Group, "v1", "NodeClaim", karpenterRemedy),
			kind(v1alpha1.Group, "v1alpha1", "MetalNodeClass", tenantRemedy),
		)
		if karpenter.FeatureGates.CapacityBuffer {
			inTenant = append(inTenant, kind(autoscalingv1beta1.Group, "v1beta1", "CapacityBuffer", bufferRemedy))
		}
		inManagement = append(inManagement,
			kind(v1alpha1.Group, "v1alpha1", "NodeType", managementRemedy),
			kind(v1alpha1.Group, "v1alpha1", "NodeProvider", managementRemedy),
			kind(v1alpha1.Group, "v1alpha1", "NodeProfile", managementRemedy),
			kind(v1alpha1.Group, "v1alpha1", "Machine", managementRemedy),
		)
	}
	for _, cluster := range []struct {
		name   string
		config *rest.Config
		kinds  []operator.Kind
	}{
		{tenantName, tenant, inTenant},
		{managementName, management, inManagement},
	} {
		if err := o.process.Preflight(ctx, cluster.config, cluster.name, cluster.kinds...); err != nil {
			return err
		}
	}
	return o.checkDynamicResources(ctx, tenant, karpenter)
}

func kind(group, version, name, remedy string) operator.Kind {
	return operator.Kind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: name}, Remedy: remedy}
}

// registerLabels lets pods select the labels of servers.
func (o *options) registerLabels(ctx context.Context, management *rest.Config) error {
	labels, err := o.selectableLabels(ctx, management, scheme.Scheme)
	if err != nil {
		return err
	}
	if err := instancetypes.Register(labels); err != nil {
		return fmt.Errorf("labels of NodeTypes, %w", err)
	}
	return nil
}

// selectableLabels returns the topology labels and the labels that NodeTypes advertise now. Pods can select them even
// if no NodePool lists them. Core accepts no further labels while it runs, so Catalog.UntilNewLabels ends the program
// when there is a new one: it is selectable after the restart.
func (o *options) selectableLabels(ctx context.Context, management *rest.Config, scheme *runtime.Scheme) ([]string, error) {
	reader, err := client.New(management, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client for the %s at %s, %w", managementName, management.Host, err)
	}
	nodeTypes := &v1alpha1.NodeTypeList{}
	if err := reader.List(ctx, nodeTypes); err != nil {
		return nil, fmt.Errorf("listing NodeTypes in the %s at %s, %w", managementName, management.Host, err)
	}
	labels := slices.Clone(o.mapping.Keys())
	for i := range nodeTypes.Items {
		for _, requirement := range nodeTypes.Items[i].Status.Requirements {
			if instancetypes.Selectable(requirement.Key) {
				labels = append(labels, requirement.Key)
			}
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels), nil
}
