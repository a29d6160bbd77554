// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

var (
	machinesDescription = describe("machines", "Machines by namespace, type and phase.", NamespaceLabel, NodeTypeLabel, PhaseLabel)
	failedDescription   = describe("machines_failed",
		"Machines that need attention, by the reason of their condition Ready.", NamespaceLabel, NodeTypeLabel, ReasonLabel)
	driftedDescription = describe("machines_drifted",
		"Machines that would be installed differently if they were made now, by the reason of their condition Drifted.", NamespaceLabel,
		NodeTypeLabel, ReasonLabel)
	progressDescription = describe("machine_progress_age_seconds",
		"Longest time since a Machine of the type that is on its way to a node last made progress.", NodeTypeLabel)
)

// machinePhases are all phases, so that each has a count, even if it is zero.
var machinePhases = []v1alpha1.MachinePhase{
	v1alpha1.MachinePending, v1alpha1.MachineClaiming, v1alpha1.MachineClaimed, v1alpha1.MachineProvisioning,
	v1alpha1.MachineProvisioned, v1alpha1.MachineJoined, v1alpha1.MachineFailed, v1alpha1.MachineReleasing,
}

// machineCounts counts the Machines in the cache at each scrape.
type machineCounts struct {
	machines client.Reader
	clock    clock.PassiveClock
}

// Describe implements prometheus.Collector.
func (m machineCounts) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{machinesDescription, failedDescription, driftedDescription, progressDescription} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector.
func (m machineCounts) Collect(metrics chan<- prometheus.Metric) {
	ctx := context.Background()
	machines := &v1alpha1.MachineList{}
	if err := m.machines.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Counting Machines for metrics")
		return
	}
	counts := countMachines(machines.Items, m.clock.Now())
	for _, group := range []struct {
		description *prometheus.Desc
		counts      map[[3]string]int
	}{{machinesDescription, counts.phases}, {failedDescription, counts.failed}, {driftedDescription, counts.drifted}} {
		for key, count := range group.counts {
			metrics <- prometheus.MustNewConstMetric(group.description, prometheus.GaugeValue, float64(count), key[:]...)
		}
	}
	for nodeType, age := range counts.progress {
		metrics <- prometheus.MustNewConstMetric(progressDescription, prometheus.GaugeValue, age.Seconds(), nodeType)
	}
}

// counts are the Machines by namespace, type and phase or reason. progress is by type only.
type counts struct {
	phases, failed, drifted map[[3]string]int
	progress                map[string]time.Duration
}

func countMachines(machines []v1alpha1.Machine, now time.Time) counts {
	c := counts{phases: map[[3]string]int{}, failed: map[[3]string]int{}, drifted: map[[3]string]int{}, progress: map[string]time.Duration{}}
	for i := range machines {
		machine := &machines[i]
		nodeType, phase := nodeTypeOf(machine), cmp.Or(machine.Status.Phase, v1alpha1.MachinePending)
		labels := func(what string) [3]string { return [3]string{machine.Namespace, nodeType, what} }
		if _, seen := c.phases[labels(string(phase))]; !seen {
			for _, other := range machinePhases {
				c.phases[labels(string(other))] += 0
			}
		}
		c.phases[labels(string(phase))]++
		if ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady); ready != nil &&
			(phase == v1alpha1.MachineFailed || ready.Reason == v1alpha1.ReasonTooManyGivenUp) {
			c.failed[labels(ready.Reason)]++
		}
		if drifted := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionDrifted); drifted != nil &&
			drifted.Status == metav1.ConditionTrue {
			c.drifted[labels(drifted.Reason)]++
		}
		if progress := machine.Status.Progress; progress != nil && machine.IsOnItsWay() {
			c.progress[nodeType] = max(c.progress[nodeType], now.Sub(progress.LastProgressTime.Time))
		}
	}
	return c
}

func nodeTypeOf(machine *v1alpha1.Machine) string {
	switch {
	case machine.Status.NodeTypeRef != nil:
		return machine.Status.NodeTypeRef.Name
	case machine.Spec.NodeTypeRef != nil:
		return machine.Spec.NodeTypeRef.Name
	}
	return ""
}

// observation is the metrics of one change of a Machine. Zero values are not recorded.
type observation struct {
	nodeType string
	// claimed, givenUp and drifted: the condition has become true. The latter two are its reason.
	claimed          bool
	givenUp, drifted string
	// steps are the completed steps, and how long each took.
	steps map[string]time.Duration
	// joined: the Machine has become a node. provisioned is how long that took from its claim.
	joined      bool
	provisioned time.Duration
}

// observe returns the metrics of the change between two states of a Machine. It uses the times in the conditions, to
// the second, so the time of the watch event makes no difference.
func observe(before, after *v1alpha1.Machine) observation {
	seen := observation{nodeType: nodeTypeOf(after), steps: map[string]time.Duration{}}
	began := func(conditionType string) (metav1.Condition, bool) {
		return conditions.Began(before.Status.Conditions, after.Status.Conditions, conditionType)
	}
	_, seen.claimed = began(v1alpha1.ConditionClaimed)
	claimed := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionClaimed)
	provisioned := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionProvisioned)
	if from, to := before.Status.Progress, after.Status.Progress; from != nil && to != nil && from.Stage == v1alpha1.StageUserData &&
		to.Stage != from.Stage {
		seen.steps[StepUserData] = max(to.LastProgressTime.Sub(from.LastProgressTime.Time), 0)
	}
	if now, ok := began(v1alpha1.ConditionProvisioned); ok && claimed != nil {
		seen.steps[StepInstall] = since(claimed.LastTransitionTime, now)
	}
	if now, ok := began(v1alpha1.ConditionJoined); ok && provisioned != nil && claimed != nil {
		seen.steps[StepJoin] = since(provisioned.LastTransitionTime, now)
		seen.joined, seen.provisioned = true, since(claimed.LastTransitionTime, now)
	}
	if now, ok := began(v1alpha1.ConditionGivenUp); ok {
		seen.givenUp = now.Reason
	}
	if now, ok := began(v1alpha1.ConditionDrifted); ok {
		seen.drifted = now.Reason
	}
	return seen
}

// since is never negative, even if clocks differ.
func since(start metav1.Time, end metav1.Condition) time.Duration {
	return max(end.LastTransitionTime.Sub(start.Time), 0)
}

var blockedDescription = describe("tenantclusters_blocked",
	"TenantClusters whose provider writes or deletes nothing, by the reason of the condition that says why.", ReasonLabel)

// tenantCounts counts the blocked TenantClusters in the cache at each scrape.
type tenantCounts struct{ tenants client.Reader }

// Describe implements prometheus.Collector.
func (t tenantCounts) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- blockedDescription
}

// Collect implements prometheus.Collector.
func (t tenantCounts) Collect(metrics chan<- prometheus.Metric) {
	ctx := context.Background()
	tenants := &v1alpha1.TenantClusterList{}
	if err := t.tenants.List(ctx, tenants, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Counting TenantClusters for metrics")
		return
	}
	reasons := map[string]int{}
	for i := range tenants.Items {
		for _, condition := range tenants.Items[i].Blocked() {
			reasons[condition.Reason]++
		}
	}
	for reason, count := range reasons {
		metrics <- prometheus.MustNewConstMetric(blockedDescription, prometheus.GaugeValue, float64(count), reason)
	}
}
