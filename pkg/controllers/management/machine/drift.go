// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// checkDrift adds to the observation whether a new Machine would be installed in the same way.
func (r *Reconciler) checkDrift(ctx context.Context, v *visit, f *observation) error {
	status := &v.machine.Status
	if v.host == nil || v.host.Spec.Image == nil || f.installed != nil || status.NodeTypeRef == nil ||
		!plan.Comparable(status.PropertiesHash) {
		return nil
	}
	planned, err := r.resolveAgain(ctx, v)
	if problem, wrong := plan.Problem(err); wrong {
		// A replacement could not be installed: keep this one.
		f.drifted = &metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonInvalidSpec,
			Message: "a new Machine could not be installed, so this one is not replaced: " + problem,
		}
		return nil
	}
	if err != nil {
		return err
	}
	f.drifted = planned.Drift(status.Installed)
	return nil
}

// recordDrift records an event when the condition Drifted has changed.
func (r *Reconciler) recordDrift(before, after *v1alpha1.Machine) {
	was, is := condition(before, v1alpha1.ConditionDrifted), condition(after, v1alpha1.ConditionDrifted)
	if was.Status == is.Status && was.Message == is.Message || is.Status == "" || is.Status == metav1.ConditionFalse && was.Status == "" {
		return
	}
	r.event(after, v1alpha1.EventType(is.Reason), is.Reason, is.Message)
}

// Fields that index the cache of Machines, to find the Machines that a change may make drift.
const (
	// typeField is the name of the NodeType of a Machine's server.
	typeField = "status.nodeTypeRef.name"
	// referenceField lists the objects that a Machine's own properties refer to.
	referenceField = "spec.properties"
)

// dependents finds the Machines that a change of another object may concern.
type dependents struct{ client client.Reader }

func (d dependents) installedOfType(ctx context.Context, nodeType *v1alpha1.NodeType) []reconcile.Request {
	return d.machinesBy(ctx, client.MatchingFields{typeField: nodeType.Name})
}

func (d dependents) installedOfProvider(ctx context.Context, provider *v1alpha1.NodeProvider) []reconcile.Request {
	return d.installedOfTypes(ctx, func(nodeType *v1alpha1.NodeType) bool { return nodeType.Spec.ProviderRef.Name == provider.Name })
}

// installedWith returns the Machines whose own or type's properties refer to the object: a replacement would use it.
func (d dependents) installedWith(ctx context.Context, object client.Object) []reconcile.Request {
	reference := referenceTo(object)
	requests := d.machinesBy(ctx, client.MatchingFields{referenceField: reference})
	return append(requests, d.installedOfTypes(ctx, func(nodeType *v1alpha1.NodeType) bool {
		provider := &v1alpha1.NodeProvider{}
		// A type without a provider refers to nothing that could be installed.
		if err := d.client.Get(ctx, types.NamespacedName{Name: nodeType.Spec.ProviderRef.Name}, provider); err != nil {
			return false
		}
		set := properties.Merge(properties.OfProvider(provider), properties.OfType(nodeType))
		return slices.Contains(d.references(ctx, set), reference)
	})...)
}

// installedOfTypes returns the Machines of the NodeTypes that satisfy holds. All NodeTypes are in the cache.
func (d dependents) installedOfTypes(ctx context.Context, holds func(*v1alpha1.NodeType) bool) (requests []reconcile.Request) {
	nodeTypes := &v1alpha1.NodeTypeList{}
	// The read from the cache fails only when the process is stopping.
	if err := d.client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	for i := range nodeTypes.Items {
		if nodeType := &nodeTypes.Items[i]; holds(nodeType) {
			requests = append(requests, d.installedOfType(ctx, nodeType)...)
		}
	}
	return requests
}

// references returns the objects that a set of properties names, directly or through its OSImage.
func (d dependents) references(ctx context.Context, set properties.Set) []string {
	all := set.References()
	if len(all) > 0 && all[0].Kind == properties.KindOSImage {
		osImage := &v1alpha1.OSImage{}
		if err := d.client.Get(ctx, types.NamespacedName{Name: all[0].Name}, osImage); err == nil {
			all = append(all, set.WithOSImage(osImage).References()...)
		}
	}
	return namesOf(all)
}

func namesOf(references []properties.Reference) []string {
	return lo.Map(references, func(named properties.Reference, _ int) string { return named.String() })
}

func referenceTo(object client.Object) string {
	named := properties.Reference{Kind: properties.KindMachineConfigTemplate, Name: object.GetName()}
	switch object.(type) {
	case *v1alpha1.OSImage:
		named.Kind = properties.KindOSImage
	case *v1alpha1.SSHKey:
		named.Kind = properties.KindSSHKey
	}
	return named.String()
}

func typeOf(machine *v1alpha1.Machine) []string {
	if machine.Status.NodeTypeRef == nil {
		return nil
	}
	return []string{machine.Status.NodeTypeRef.Name}
}

func ownReferencesOf(machine *v1alpha1.Machine) []string {
	return namesOf(properties.Merge(properties.OfMachine(machine)).References())
}
