// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// pin looks at the server that a Machine is pinned to: that it exists, that it is of the Machine's type and big enough,
// and that no other Machine wants it. One that cannot be had right now may come free.
func (v *Verdict) pin(fleet Fleet, spec *field.Path, machine *v1alpha1.Machine, would outcome) {
	server := machine.Spec.Properties[v1alpha1.PropertyServerName]
	if server == "" {
		return
	}
	at := key(spec.Child("properties"), v1alpha1.PropertyServerName)
	namespaces := hostNamespaces(fleet, machine)
	if len(namespaces) == 0 {
		v.warn(RuleReferences, at, "there is no NodeProvider yet, so that the server is not known")
		return
	}
	if !slices.ContainsFunc(namespaces, func(namespace string) bool { return known(fleet, namespace, server) }) {
		v.deny(RulePinning, field.Invalid(at, server, "there is no BareMetalHost of this name in namespace "+list(namespaces)+": correct it, or register the server first"))
		return
	}
	for _, other := range fleet.PinnedTo(server) {
		if other.Namespace == machine.Namespace && other.Name == machine.Name || !intersect(namespaces, hostNamespaces(fleet, other)) {
			continue
		}
		whose := "a Machine of another tenant"
		if other.Namespace == machine.Namespace {
			whose = "Machine " + other.Name
		}
		if other.DeletionTimestamp.IsZero() {
			v.deny(RulePinning, field.Invalid(at, server, whose+" is pinned to this server already: choose another, or delete that Machine first"))
			return
		}
		v.warn(RulePinning, at, "%s, which is being deleted, still has this server: it is claimed once it is clean", whose)
	}
	if would.none == nil {
		return
	}
	// Told apart by type: of the types that the server is of, one may fit.
	if now := slices.IndexFunc(would.none.Considered, hosts.Candidate.Fits); now >= 0 {
		if !v.quarantined(fleet, at, namespaces, server, "Machine") {
			v.warn(RulePinning, at, "%s: the Machine waits for it, and gets no other", would.none.Considered[now])
		}
		return
	}
	v.deny(RulePinning, field.Invalid(at, server, oneLine(would.none.Error(), maxReason)+": pin to another server, or ask for another type"))
}

// quarantined warns of a server that is kept out of the pool, with the way out in the first words: how it came to that may
// take up what is left of the line. It reports false if the server is not.
func (v *Verdict) quarantined(fleet Fleet, at *field.Path, namespaces []string, server, who string) bool {
	for _, namespace := range namespaces {
		found, known := fleet.Server(keyOf(namespace, server))
		if known && found.Verdict.Reason == hosts.ReasonQuarantined {
			v.warn(RulePinning, at, "server %s is quarantined: the %s waits until somebody who finds it well removes the annotation %s from it", server, who, hosts.QuarantinedAnnotation)
			return true
		}
	}
	return false
}

// maxReason is how much of a reason is shown, in bytes.
const maxReason = 1000

// hostNamespaces are those in which the server of a Machine can be.
func hostNamespaces(fleet Fleet, machine *v1alpha1.Machine) []string {
	var only string
	if reference := machine.Spec.NodeTypeRef; reference != nil {
		nodeType := fleet.NodeType(reference.Name)
		if nodeType == nil {
			return nil
		}
		only = nodeType.Spec.ProviderRef.Name
	}
	var namespaces []string
	for _, provider := range fleet.NodeProviders() {
		if namespace := provider.Spec.Metal3.ClusterRef.Namespace; (only == "" || provider.Name == only) && !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}

func known(fleet Fleet, namespace, server string) bool {
	_, found := fleet.Server(types.NamespacedName{Namespace: namespace, Name: server})
	return found
}

func intersect(a, b []string) bool {
	return slices.ContainsFunc(a, func(one string) bool { return slices.Contains(b, one) })
}
