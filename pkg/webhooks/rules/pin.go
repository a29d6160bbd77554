// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// pin validates the server that a Machine is pinned to: it exists, is of the Machine's type and big enough, and no other
// Machine is pinned to it. A server that is not available now may become so: that is a warning.
func (r *Result) pin(cluster Cluster, spec *field.Path, machine *v1alpha1.Machine, would choice) {
	server := machine.Spec.Properties[v1alpha1.PropertyServerName]
	if server == "" {
		return
	}
	at := key(spec.Child("properties"), v1alpha1.PropertyServerName)
	namespaces := hostNamespaces(cluster, machine)
	if len(namespaces) == 0 {
		r.warn(RuleReferences, at, "there is no NodeProvider yet, so that the server is not known")
		return
	}
	if !slices.ContainsFunc(namespaces, func(namespace string) bool { return known(cluster, namespace, server) }) {
		r.deny(RulePinning, field.Invalid(at, server, "there is no BareMetalHost of this name in namespace "+list(namespaces)+
			": correct it, or register the server first"))
		return
	}
	for _, other := range cluster.PinnedTo(server) {
		if other.Namespace == machine.Namespace && other.Name == machine.Name || !intersect(namespaces, hostNamespaces(cluster, other)) {
			continue
		}
		whose := "a Machine of another tenant"
		if other.Namespace == machine.Namespace {
			whose = "Machine " + other.Name
		}
		if other.DeletionTimestamp.IsZero() {
			r.deny(RulePinning, field.Invalid(at, server, whose+" is pinned to this server already: choose another, or delete that Machine first"))
			return
		}
		r.warn(RulePinning, at, "%s, which is being deleted, still has this server: it is claimed once it is clean", whose)
	}
	if would.none == nil {
		return
	}
	// The server may be of several types, of which one may fit.
	if now := slices.IndexFunc(would.none.Considered, inventory.Candidate.Fits); now >= 0 {
		if !r.quarantined(cluster, at, namespaces, server, "Machine") {
			r.warn(RulePinning, at, "%s: the Machine waits for it, and gets no other", would.none.Considered[now])
		}
		return
	}
	r.deny(RulePinning, field.Invalid(at, server, would.none.Error()+": pin to another server, or ask for another type"))
}

// quarantined warns of a quarantined server, and returns false if the server is not. The remedy comes first: the cause may
// be long and is cut.
func (r *Result) quarantined(cluster Cluster, at *field.Path, namespaces []string, server, who string) bool {
	for _, namespace := range namespaces {
		found, known := cluster.Server(keyOf(namespace, server))
		if known && found.Eligibility.Reason == inventory.ReasonQuarantined {
			r.warn(RulePinning, at, "server %s is quarantined: the %s waits until an operator removes the annotation %s from it",
				server, who, v1alpha1.QuarantinedAnnotationKey)
			return true
		}
	}
	return false
}

// hostNamespaces are those in which the server of a Machine can be.
func hostNamespaces(cluster Cluster, machine *v1alpha1.Machine) []string {
	var only string
	if reference := machine.Spec.NodeTypeRef; reference != nil {
		nodeType := cluster.NodeType(reference.Name)
		if nodeType == nil {
			return nil
		}
		only = nodeType.Spec.ProviderRef.Name
	}
	var namespaces []string
	for _, provider := range cluster.NodeProviders() {
		if namespace := provider.Spec.Metal3.ClusterRef.Namespace; (only == "" || provider.Name == only) &&
			!slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}

func known(cluster Cluster, namespace, server string) bool {
	_, found := cluster.Server(types.NamespacedName{Namespace: namespace, Name: server})
	return found
}

func intersect(a, b []string) bool {
	return slices.ContainsFunc(a, func(one string) bool { return slices.Contains(b, one) })
}
