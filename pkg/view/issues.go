// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Severity of an issue, the worst first.
type Severity string

const (
	// Critical: a tenant gets no servers at all, or a claimed server is in error.
	Critical Severity = "Critical"
	// Warning: a server or a type is of no use until a person does something.
	Warning Severity = "Warning"
	// Info: worth knowing.
	Info Severity = "Info"
)

// Issue is something that is wrong in the fleet now.
type Issue struct {
	Severity Severity `json:"severity"`
	// Object is kind and name.
	Object  string `json:"object"`
	Problem string `json:"problem"`
	// Remedy is a command or a sentence.
	Remedy string `json:"remedy,omitempty"`
}

// Issues returns what is wrong now, the worst first.
func (f *Fleet) Issues() []Issue {
	var issues []Issue
	add := func(severity Severity, object, problem, remedy string) {
		issues = append(issues, Issue{severity, object, problem, remedy})
	}
	for i := range f.snapshot.Management.TenantClusters {
		tenant := &f.snapshot.Management.TenantClusters[i]
		object := "TenantCluster " + tenant.Namespace + "/" + tenant.Name
		blocked := tenant.Blocked()
		for _, condition := range blocked {
			add(Critical, object, condition.Message, "kubectl describe tenantclusters.karpenter.metal3.io -n "+tenant.Namespace+" "+tenant.Name)
		}
		for _, condition := range tenant.Status.Conditions {
			if condition.Status == metav1.ConditionFalse && condition.Type == v1alpha1.ConditionPoolsSynced {
				add(Warning, object, condition.Message, "correct spec.privateNodes.autoNodes")
			}
		}
	}
	for i := range f.snapshot.Management.NodeProviders {
		provider := &f.snapshot.Management.NodeProviders[i]
		for _, condition := range provider.Status.Conditions {
			if condition.Type == v1alpha1.ConditionSynced && condition.Status == metav1.ConditionFalse {
				add(Critical, "NodeProvider "+provider.Name, condition.Message, "")
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.nodeTypes)) {
		f.typeIssues(f.nodeTypes[name], add)
	}
	for _, server := range f.servers {
		cause := f.serverCause(server)
		if cause.Verdict != Wrong || server.Machine != "" { // what is wrong with a Machine is said of it
			continue
		}
		severity := Warning
		if server.State == State(inventory.StateUnavailable) && len(server.Types) == 0 {
			severity = Info // it may be for something else
		}
		add(severity, "BareMetalHost "+server.Namespace+"/"+server.Name, server.Why, cause.Remedy)
	}
	for _, machine := range f.Machines() {
		object := "Machine " + machine.Namespace + "/" + machine.Name
		switch {
		case machine.Phase == v1alpha1.MachineFailed:
			add(Critical, object, machine.Message, "kubectl metal3 explain machine "+machine.Namespace+"/"+machine.Name)
		case machine.Phase == v1alpha1.MachinePending:
			add(Warning, object, machine.Message, "kubectl metal3 explain machine "+machine.Namespace+"/"+machine.Name)
		case machine.Expected != nil && machine.Expected.Time.Before(f.Now()):
			add(Warning, object, fmt.Sprintf("takes longer than usual: at %s, and was expected %s ago", machine.Progress,
				ago(f.Now(), machine.Expected.Time)), "kubectl metal3 timeline machine "+machine.Namespace+"/"+machine.Name)
		}
	}
	for _, missing := range f.snapshot.Missing {
		add(Info, "this view", missing.String(), "")
	}
	rank := []Severity{Critical, Warning, Info}
	slices.SortStableFunc(issues, func(a, b Issue) int {
		return cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity))
	})
	return issues
}

func (f *Fleet) typeIssues(nodeType *v1alpha1.NodeType, add func(severity Severity, object, problem, remedy string)) {
	object := "NodeType " + nodeType.Name
	if why := f.badTypes[nodeType.Name]; why != "" {
		add(Critical, object, "it has no servers: "+why, "")
		return
	}
	for _, condition := range nodeType.Status.Conditions {
		if condition.Status == metav1.ConditionFalse && condition.Type == v1alpha1.ConditionSynced {
			add(Critical, object, condition.Message, "kubectl metal3 explain nodetype "+nodeType.Name)
		}
	}
	if f.inventory.Total(nodeType.Name) == 0 {
		add(Warning, object, "no server matches its selector", "label BareMetalHosts as its spec.bareMetalHosts.selector says")
	}
}
