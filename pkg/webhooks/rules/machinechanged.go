// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// machineProperties validates the properties of a Machine. For a Machine with a server, errors are warnings: the
// provider writes the present properties of its class, and the manager reports in the condition Drifted, also that they
// are not valid. If the write were denied, the Machine would not show the change.
func (r *Result) machineProperties(cluster Cluster, path *field.Path, before, after *v1alpha1.Machine) {
	layer := properties.OfMachine(after)
	if before == nil || before.Status.HostRef == nil {
		r.properties(cluster, path, layer)
		return
	}
	found := &Result{}
	found.properties(cluster, path, layer)
	for _, err := range found.Errors {
		r.warn(RuleProperties, field.NewPath(err.Field), "%s", err.ErrorBody())
	}
	r.omittedWarnings += found.omittedErrors + found.omittedWarnings
	for _, warning := range found.Warnings {
		r.Warned = appendOnce(r.Warned, RuleReferences)
		if r.warningsFull() {
			r.omittedWarnings++
			continue
		}
		r.Warnings = append(r.Warnings, warning)
	}
}

// machineChanged validates what must not change once there is a server, and at what does not change it any more.
func (r *Result) machineChanged(cluster Cluster, spec *field.Path, before, after *v1alpha1.Machine) {
	old, pin := before.Spec.Properties[v1alpha1.PropertyServerName], after.Spec.Properties[v1alpha1.PropertyServerName]
	at := key(spec.Child("properties"), v1alpha1.PropertyServerName)
	switch host, chosen := before.Host(); {
	case old != pin && chosen:
		r.deny(RuleImmutable, field.Invalid(at, pin,
			fmt.Sprintf("the Machine has claimed server %s: delete it and make another", host.Name)))
	case old != pin && r.Allowed():
		r.pin(cluster, spec, after, r.choose(cluster, after, allowedTypes(cluster, after)))
	}
	if !meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.ConditionProvisioned) {
		return
	}
	// Karpenter replaces a NodeClaim's Machine that differs from its class.
	replaced := before.Labels[v1alpha1.NodeClaimLabelKey] != ""
	for _, one := range []struct {
		field    string
		old, now any
		drifts   bool
	}{
		{"properties", before.Spec.Properties, after.Spec.Properties, true},
		{"labels", before.Spec.Labels, after.Spec.Labels, false},
		{"taints", before.Spec.Taints, after.Spec.Taints, false},
		{"startupTaints", before.Spec.StartupTaints, after.Spec.StartupTaints, false},
		{"kubeletArgs", before.Spec.KubeletArgs, after.Spec.KubeletArgs, false},
	} {
		if !equality.Semantic.DeepEqual(one.old, one.now) && !(one.drifts && replaced) {
			r.warn(RuleImmutable, spec.Child(one.field), "the server is installed and has registered with what was there before: delete the "+
				"Machine and make another for the change to have an effect")
		}
	}
}
