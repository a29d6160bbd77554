// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// Fields that the cache of Machines is indexed by, to find those that a change may make drift.
const (
	// typeField is the name of the NodeType of a Machine's server.
	typeField = "status.nodeTypeRef.name"
	// referenceField are the objects that a Machine's own properties refer to.
	referenceField = "spec.properties"
)

// watchDrift wakes the Machines that a change may make drift, and no others: those of a type, those of the types of a
// provider, and those that may be installed with an object that was edited, made or deleted.
func (r *Reconciler) watchDrift(b *builder.Builder) *builder.Builder {
	onSpec := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return b.
		Watches(&v1alpha1.NodeType{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, nodeType client.Object) []reconcile.Request {
			return r.installedOfTypes(ctx, nodeType.GetName())
		}), onSpec).
		Watches(&v1alpha1.NodeProvider{}, handler.EnqueueRequestsFromMapFunc(r.installedOfProvider), onSpec).
		Watches(&v1alpha1.OSImage{}, handler.EnqueueRequestsFromMapFunc(r.installedWith), onSpec).
		Watches(&v1alpha1.SSHKey{}, handler.EnqueueRequestsFromMapFunc(r.installedWith), onSpec).
		Watches(&v1alpha1.MachineConfigTemplate{}, handler.EnqueueRequestsFromMapFunc(r.installedWith), onSpec)
}

func (r *Reconciler) installedOfTypes(ctx context.Context, names ...string) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range names {
		requests = append(requests, r.machinesBy(ctx, client.MatchingFields{typeField: name})...)
	}
	return requests
}

func (r *Reconciler) installedOfProvider(ctx context.Context, provider client.Object) []reconcile.Request {
	return r.installedOfTypes(ctx, r.typesWhere(ctx, func(nodeType *v1alpha1.NodeType) bool {
		return nodeType.Spec.ProviderRef.Name == provider.GetName()
	})...)
}

// installedWith are the Machines that a Machine made now in their place would be installed with the object: those whose
// own properties refer to it, and those of types that do.
func (r *Reconciler) installedWith(ctx context.Context, object client.Object) []reconcile.Request {
	reference := referenceTo(object)
	requests := r.machinesBy(ctx, client.MatchingFields{referenceField: reference})
	return append(requests, r.installedOfTypes(ctx, r.typesWhere(ctx, func(nodeType *v1alpha1.NodeType) bool {
		provider := &v1alpha1.NodeProvider{}
		// A type without a provider refers to nothing that could be installed.
		if err := r.client.Get(ctx, types.NamespacedName{Name: nodeType.Spec.ProviderRef.Name}, provider); err != nil {
			return false
		}
		set := properties.Merge(properties.OfProvider(provider), properties.OfType(nodeType))
		return slices.Contains(r.references(ctx, set), reference)
	})...)...)
}

// typesWhere are the names of the NodeTypes for which it holds. There are few of them, and all are in the cache.
func (r *Reconciler) typesWhere(ctx context.Context, holds func(*v1alpha1.NodeType) bool) []string {
	nodeTypes := &v1alpha1.NodeTypeList{}
	// It reads from the cache, which fails only when the process is stopping.
	if err := r.client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var names []string
	for i := range nodeTypes.Items {
		if holds(&nodeTypes.Items[i]) {
			names = append(names, nodeTypes.Items[i].Name)
		}
	}
	return names
}

// references are the objects that a set of properties refers to, by itself and by its OSImage.
func (r *Reconciler) references(ctx context.Context, set properties.Set) []string {
	all := sets.New(referencesOf(set)...)
	if name, err := set.OSImage(); err == nil && name != "" {
		osImage := &v1alpha1.OSImage{}
		if err := r.client.Get(ctx, types.NamespacedName{Name: name}, osImage); err == nil {
			all.Insert(referencesOf(set.WithOSImage(osImage))...)
		}
	}
	return all.UnsortedList()
}

func referencesOf(set properties.Set) []string {
	var all []string
	if name, err := set.OSImage(); err == nil && name != "" {
		all = append(all, "OSImage/"+name)
	}
	if names, err := set.SSHKeys(); err == nil {
		for _, name := range names {
			all = append(all, "SSHKey/"+name)
		}
	}
	for _, key := range []string{v1alpha1.PropertyUserDataTemplate, v1alpha1.PropertyNetworkDataTemplate} {
		if name := set.Get(key); name != "" {
			all = append(all, "MachineConfigTemplate/"+name)
		}
	}
	return all
}

func referenceTo(object client.Object) string {
	switch object.(type) {
	case *v1alpha1.OSImage:
		return "OSImage/" + object.GetName()
	case *v1alpha1.SSHKey:
		return "SSHKey/" + object.GetName()
	}
	return "MachineConfigTemplate/" + object.GetName()
}

func typeOf(object client.Object) []string {
	machine, ok := object.(*v1alpha1.Machine)
	if !ok || machine.Status.NodeTypeRef == nil {
		return nil
	}
	return []string{machine.Status.NodeTypeRef.Name}
}

func ownReferencesOf(object client.Object) []string {
	machine, ok := object.(*v1alpha1.Machine)
	if !ok {
		return nil
	}
	return referencesOf(properties.Merge(properties.OfMachine(machine)))
}
