// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

const (
	// refersTo is the index of objects by what they refer to: "OSImage/ubuntu".
	refersTo = "refersTo"
	// pinnedTo is the index of Machines by the name of the server that they are pinned to.
	pinnedTo = "pinnedTo"
)

// AddIndexes adds the indexes that a Cluster needs to a cache.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, one := range []struct {
		object client.Object
		field  string
		of     client.IndexerFunc
	}{
		{&v1alpha1.NodeProvider{}, refersTo, indexed(ofProvider)},
		{&v1alpha1.NodeType{}, refersTo, indexed(ofType)},
		{&v1alpha1.Machine{}, refersTo, indexed(ofMachine)},
		{&v1alpha1.TenantCluster{}, refersTo, indexed(ofTenant)},
		{&v1alpha1.Machine{}, pinnedTo, indexed(func(machine *v1alpha1.Machine) []string {
			if server := machine.Spec.Properties[v1alpha1.PropertyServerName]; server != "" {
				return []string{server}
			}
			return nil
		})},
	} {
		if err := indexer.IndexField(ctx, one.object, one.field, one.of); err != nil {
			return fmt.Errorf("adding the index %s of %T, %w", one.field, one.object, err)
		}
	}
	return nil
}

// indexed is a typed indexer. Each value is in the index once.
func indexed[T client.Object](of func(T) []string) client.IndexerFunc {
	return func(object client.Object) []string {
		typed, ok := object.(T)
		if !ok {
			return nil
		}
		values := of(typed)
		slices.Sort(values)
		return slices.Compact(values)
	}
}

func reference(kind rules.Kind, name string) string { return string(kind) + "/" + name }

func ofProvider(provider *v1alpha1.NodeProvider) []string {
	named := inProperties(provider.Spec.Properties)
	for i := range provider.Spec.Metal3.NodeTypes {
		named = append(named, inProperties(provider.Spec.Metal3.NodeTypes[i].Properties)...)
	}
	return named
}

// ofType is what a NodeType names that a user has written. What a generated one names counts for its NodeProvider.
func ofType(nodeType *v1alpha1.NodeType) []string {
	if len(nodeType.OwnerReferences) > 0 {
		return nil
	}
	return inProperties(nodeType.Spec.Properties)
}

// ofMachine is what a Machine names, its tenant among it, the type that was chosen for it, and what its server is installed with: that may
// be named by its type and not by itself.
func ofMachine(machine *v1alpha1.Machine) []string {
	named := inProperties(machine.Spec.Properties)
	if tenant := machine.Spec.TenantClusterRef; tenant != nil {
		named = append(named, reference(rules.KindTenantCluster, machine.Namespace+"/"+tenant.Name))
	}
	for _, one := range []*v1alpha1.NameReference{machine.Spec.NodeTypeRef, machine.Status.NodeTypeRef} {
		if one != nil {
			named = append(named, reference(rules.KindNodeType, one.Name))
		}
	}
	return named
}

// ofTenant is what the pools of a tenant name, and the types that they select by name.
func ofTenant(tenant *v1alpha1.TenantCluster) []string {
	if tenant.Spec.PrivateNodes == nil {
		return nil
	}
	var named []string
	for i := range tenant.Spec.PrivateNodes.AutoNodes {
		entry := &tenant.Spec.PrivateNodes.AutoNodes[i]
		named = append(named, inProperties(entry.Properties)...)
		for j := range entry.Static {
			named = append(named, ofPool(&entry.Static[j].NodesTemplate)...)
		}
		for j := range entry.Dynamic {
			named = append(named, ofPool(&entry.Dynamic[j].NodesTemplate)...)
		}
	}
	return named
}

func ofPool(pool *v1alpha1.NodesTemplate) []string {
	named := inProperties(pool.Properties)
	for i := range pool.NodeTypeSelector {
		one := &pool.NodeTypeSelector[i]
		if one.Property != v1alpha1.NodeTypeLabelKey && one.Property != corev1.LabelInstanceTypeStable || one.Operator != "" &&
			one.Operator != v1alpha1.SelectorIn {
			continue
		}
		for _, name := range append([]string{one.Value}, one.Values...) {
			if name != "" {
				named = append(named, reference(rules.KindNodeType, name))
			}
		}
	}
	return named
}

// inProperties is what properties name. A value that cannot be a name names nothing.
func inProperties(values map[string]string) []string {
	if len(values) == 0 {
		return nil
	}
	set := properties.Merge(properties.Layer{Values: values})
	var named []string
	add := func(kind rules.Kind, name string, err error) {
		if err == nil && name != "" {
			named = append(named, reference(kind, name))
		}
	}
	image, err := set.OSImage()
	add(rules.KindOSImage, image, err)
	// The template counts as used even if a document takes its place.
	add(rules.KindMachineConfigTemplate, values[v1alpha1.PropertyUserDataTemplate], nil)
	add(rules.KindMachineConfigTemplate, values[v1alpha1.PropertyNetworkDataTemplate], nil)
	keys, err := set.SSHKeys()
	for _, name := range keys {
		add(rules.KindSSHKey, name, err)
	}
	return named
}
