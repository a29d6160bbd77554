// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Severity is the severity of an issue.
type Severity string

const (
	// Critical: a tenant gets no servers at all, or a claimed server is in error.
	Critical Severity = "Critical"
	// Warning: a server or a type is of no use until a person acts.
	Warning Severity = "Warning"
	// Info: worth knowing.
	Info Severity = "Info"
)

// Issue is a present problem of the fleet.
type Issue struct {
	Severity Severity `json:"severity"`
	// Object is the kind and the name.
	Object  string `json:"object"`
	Problem string `json:"problem"`
	// Remedy is a command or a sentence.
	Remedy string `json:"remedy,omitempty"`
}

// Issues returns the present problems, the worst first.
func (f *Fleet) Issues() []Issue {
	var issues []Issue
	add := func(severity Severity, object, problem, remedy string) {
		issues = append(issues, Issue{severity, object, problem, remedy})
	}
	// Every kind has the same condition for an object that gets no further before somebody acts.
	stalled := func(severity Severity, object string, condition metav1.Condition, remedy string) bool {
		if condition.Status == metav1.ConditionTrue {
			add(severity, object, condition.Message, remedy)
		}
		return condition.Status == metav1.ConditionTrue
	}
	if f.manager.Text != "" {
		add(Critical, "manager", f.manager.Text, f.manager.Remedy)
	}
	for i := range f.snapshot.Management.TenantClusters {
		tenant := &f.snapshot.Management.TenantClusters[i]
		object, severity := "TenantCluster "+nameOf(tenant), Warning
		remedy := shell.Command("kubectl describe tenantclusters.karpenter.metal3.io -n %s %s", tenant.Namespace, tenant.Name)
		condition := conditions.Find(tenant.Status.Conditions, v1alpha1.ConditionStalled)
		for _, blocks := range tenant.Blocked() {
			severity = Critical
			if !strings.Contains(condition.Message, blocks.Message) { // the manager is down, or has not seen it yet
				add(severity, object, blocks.Message, remedy)
			}
		}
		stalled(severity, object, condition, remedy)
	}
	for i := range f.snapshot.Management.NodeProviders {
		provider := &f.snapshot.Management.NodeProviders[i]
		stalled(Critical, "NodeProvider "+provider.Name, conditions.Find(provider.Status.Conditions, v1alpha1.ConditionStalled),
			shell.Command("kubectl describe nodeproviders.karpenter.metal3.io %s", provider.Name))
	}
	for _, focused := range f.perTenant {
		for i := range focused.snapshot.Tenant.NodeClasses {
			class := &focused.snapshot.Tenant.NodeClasses[i]
			object := "MetalNodeClass " + class.Name + focused.ofTenant
			remedy := shell.Command("kubectl describe metalnodeclasses.karpenter.metal3.io %s", class.Name) + ", in the tenant cluster"
			waits := conditions.Find(class.Status.Conditions, v1alpha1.ConditionReady)
			// The class becomes ready once its NodeProvider and NodeTypes exist. They may never exist: the name may
			// be wrong.
			if !stalled(Critical, object, conditions.Find(class.Status.Conditions, v1alpha1.ConditionStalled), remedy) &&
				(waits.Reason == v1alpha1.ReasonProviderNotFound || waits.Reason == v1alpha1.ReasonNoNodeTypes) {
				add(Warning, object, waits.Message, remedy)
			}
		}
		for i := range focused.snapshot.Tenant.NodeClaims {
			claim := &focused.snapshot.Tenant.NodeClaims[i]
			if waits := focused.uninitialized(claim); waits.Verdict == Wrong {
				add(Warning, "NodeClaim "+claim.Name+focused.ofTenant, waits.Text, waits.Remedy)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.nodeTypes)) {
		nodeType, object := f.nodeTypes[name], "NodeType "+name
		switch why := f.badTypes[name]; {
		case stalled(Critical, object, conditions.Find(nodeType.Status.Conditions, v1alpha1.ConditionStalled),
			shell.Command("kubectl metal3 explain nodetype %s", name)):
		case why != "":
			add(Critical, object, "it has no servers: "+why, "")
		case f.inventory.Total(name) == 0:
			add(Warning, object, "no server matches its selector", "label BareMetalHosts as its spec.bareMetalHosts.selector says")
		}
	}
	for _, server := range f.servers {
		cause := f.serverCause(server)
		if cause.Verdict != Wrong || server.Machine != "" { // the issues of Machines follow below
			continue
		}
		severity := Warning
		if server.State == State(inventory.StateUnavailable) && len(server.Types) == 0 {
			severity = Info // it may be for another purpose
		}
		add(severity, "BareMetalHost "+server.Namespace+"/"+server.Name, server.Why, cause.Remedy)
	}
	for _, machine := range f.Machines() {
		object := "Machine " + machine.Namespace + "/" + machine.Name
		known := f.machines[types.NamespacedName{Namespace: machine.Namespace, Name: machine.Name}]
		stands := conditions.Find(known.Status.Conditions, v1alpha1.ConditionStalled)
		switch {
		case stands.Status == metav1.ConditionTrue:
			says, _ := f.metal3Says(known)
			add(Critical, object, strings.TrimSuffix(stands.Message+". "+says, ". "), f.remedy(known))
		case machine.Phase == v1alpha1.MachinePending:
			add(Warning, object, machine.Message, shell.Command("kubectl metal3 explain machine %s", machine.Namespace+"/"+machine.Name))
		case machine.Expected != nil && machine.Expected.Time.Before(f.Now()):
			add(Warning, object, fmt.Sprintf("takes longer than usual: at %s, and was expected %s ago", machine.Progress,
				ago(f.Now(), machine.Expected.Time)), shell.Command("kubectl metal3 timeline machine %s", machine.Namespace+"/"+machine.Name))
		}
	}
	for _, missing := range f.snapshot.Missing {
		add(Info, "this view", missing.String(), "")
	}
	issues = append(issues, f.snapshot.Issues...)
	rank := []Severity{Critical, Warning, Info}
	slices.SortStableFunc(issues, func(a, b Issue) int {
		return cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity))
	})
	return issues
}
