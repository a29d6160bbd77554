// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"encoding/json"
	"fmt"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// disruptionOf translates everything but consolidateAfter. Defaults are written out, so that what the API server would
// fill in does not look like an edit. By default only servers that are empty are released:
// to pack pods onto fewer servers is to interrupt them, and a server that was given up too early takes long to come back.
func disruptionOf(from *v1alpha1.NodesDisruption) karpv1.Disruption {
	disruption := karpv1.Disruption{ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty}
	if from != nil && from.ConsolidationPolicy != "" {
		disruption.ConsolidationPolicy = karpv1.ConsolidationPolicy(from.ConsolidationPolicy)
	}
	if from == nil || len(from.Budgets) == 0 {
		disruption.Budgets = []karpv1.Budget{{Nodes: defaultBudget}}
		return disruption
	}
	for _, budget := range from.Budgets {
		disruption.Budgets = append(disruption.Budgets, budgetOf(budget))
	}
	return disruption
}

func budgetOf(from v1alpha1.DisruptionBudget) karpv1.Budget {
	budget := karpv1.Budget{Nodes: from.Nodes, Duration: from.Duration.DeepCopy()}
	if budget.Nodes == "" {
		budget.Nodes = defaultBudget
	}
	if from.Schedule != "" {
		schedule := from.Schedule
		budget.Schedule = &schedule
	}
	for _, reason := range from.Reasons {
		budget.Reasons = append(budget.Reasons, karpv1.DisruptionReason(reason))
	}
	return budget
}

func consolidateAfter(from *v1alpha1.NodesDisruption) string {
	if from == nil || from.ConsolidateAfter == "" {
		return defaultConsolidateAfter
	}
	return from.ConsolidateAfter
}

// duration reads what a NodePool takes for a duration: Go's, or Never.
func duration(text string) (karpv1.NillableDuration, error) {
	result := karpv1.NillableDuration{}
	if err := json.Unmarshal(fmt.Appendf(nil, "%q", text), &result); err != nil {
		return karpv1.NillableDuration{}, fmt.Errorf("reading duration %q, %w", text, err)
	}
	return result, nil
}
