// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

// TestExplanationsMatchCore has Karpenter's scheduler plan a pod in random fleets. No event says that no type or server fits a pod that it
// plans, and the plugin does not say that one fits a pod that it does not plan.
func TestExplanationsMatchCore(t *testing.T) {
	planned, unplanned := 0, 0
	for seed := range uint64(300) {
		snapshot, pod := randomFleet(rand.New(rand.NewPCG(seed, 56)))
		key := client.ObjectKeyFromObject(pod)
		w, ctx, err := newWorld(t.Context(), snapshot.DeepCopy(), topology.Default())
		if err != nil {
			t.Fatal(err)
		}
		snapshot = w.after().DeepCopy() // with the status of the NodeTypes
		why, err := w.why(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.settle(ctx); err != nil {
			t.Fatal(err)
		}
		plans, err := Plans(t.Context(), snapshot, topology.Default())
		if err != nil {
			t.Fatal(err)
		}
		fleet := view.New(snapshot)
		unaided, err := fleet.Explain("pod", key.String())
		if err != nil {
			t.Fatal(err)
		}
		fleet.PlanWith(plans)
		tree, err := fleet.Explain("pod", key.String())
		if err != nil {
			t.Fatal(err)
		}
		describe := func() string {
			return fmt.Sprintf("seed %d, event %+v, the plugin says:\n%s", seed, why, drawn(tree, ""))
		}
		if w.plannedOn[key] != "" {
			planned++
			if why != (explain.Explanation{}) {
				t.Errorf("Karpenter plans the pod, and its event says that it gets no server: %s", describe())
			}
			if tree.Verdict == view.Wrong || unaided.Verdict == view.Wrong {
				t.Errorf("Karpenter plans the pod, and the plugin says that it gets no server: %s\nwithout a plan:\n%s", describe(),
					drawn(unaided, ""))
			}
			continue
		}
		unplanned++
		if tree.Verdict != view.Wrong {
			t.Errorf("Karpenter plans no node for the pod, and the plugin does not say so: %s", describe())
		}
		// A type may meet one term of an affinity, and its free servers another term. Only the scheduler tells that.
		if unaided.Verdict != view.Wrong && pod.Spec.Affinity == nil {
			t.Errorf("Karpenter plans no node for the pod, and the NodeTypes and NodePools do not say why: %s\nwithout a plan:\n%s", describe(),
				drawn(unaided, ""))
		}
	}
	if planned < 20 || unplanned < 20 {
		t.Errorf("%d pods were planned and %d were not: the test compares too little", planned, unplanned)
	}
}

func drawn(cause view.Cause, indent string) string {
	text := fmt.Sprintf("%s[%s] %s\n", indent, cause.Verdict, cause.Text)
	for _, because := range cause.Causes {
		text += drawn(because, indent+"  ")
	}
	return text
}

// randomFleet has up to three NodePools, and a pod that waits.
func randomFleet(random *rand.Rand) (*view.Snapshot, *corev1.Pod) {
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	chance := func(percent int) bool { return random.IntN(100) < percent }
	some := func(values ...string) []string {
		chosen := []string{pick(values...)}
		if other := pick(values...); chance(30) && other != chosen[0] {
			chosen = append(chosen, other)
		}
		return chosen
	}
	operator := func() corev1.NodeSelectorOperator {
		return corev1.NodeSelectorOperator(pick("In", "In", "In", "NotIn"))
	}
	requirement := func() corev1.NodeSelectorRequirement {
		switch random.IntN(4) {
		case 0:
			return corev1.NodeSelectorRequirement{Key: v1alpha1.NodeTypeLabelKey, Operator: operator(), Values: some("gpu", "cpu", "none")}
		case 1:
			return corev1.NodeSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: operator(), Values: some("global", "elsewhere")}
		case 2:
			return corev1.NodeSelectorRequirement{Key: "team", Operator: operator(), Values: some("a", "b")}
		}
		return corev1.NodeSelectorRequirement{Key: v1alpha1.RackLabelKey, Operator: operator(), Values: some("r1", "r2", "r3")}
	}
	snapshot := fixture()
	snapshot.Tenant.NodePools = nil
	for number := range 1 + random.IntN(3) {
		snapshot.Tenant.NodePools = append(snapshot.Tenant.NodePools, *planning.Pool(fmt.Sprint("pool-", number), func(pool *karpv1.NodePool) {
			template := &pool.Spec.Template
			for chance(40) {
				if from := requirement(); from.Key != "team" {
					template.Spec.Requirements = append(template.Spec.Requirements,
						karpv1.NodeSelectorRequirementWithMinValues{Key: from.Key, Operator: from.Operator, Values: from.Values})
				}
			}
			if chance(40) {
				template.Labels = map[string]string{"team": pick("a", "b")}
			}
			if chance(20) {
				template.Spec.Taints = []corev1.Taint{{Key: "only", Value: pick("x", "y"), Effect: corev1.TaintEffectNoSchedule}}
			}
			if chance(10) {
				pool.Spec.Limits = karpv1.Limits(env.Resources("nvidia.com/gpu", pick("0", "8")))
			}
		}))
	}
	for i := range snapshot.Management.Hosts {
		host := &snapshot.Management.Hosts[i]
		switch {
		case chance(25):
			host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Other", Name: "other"}
		case chance(10):
			host.Status.OperationalStatus = bmov1alpha1.OperationalStatusError
		}
	}
	if chance(20) {
		withQuota(int64(random.IntN(2)))(snapshot)
	}
	pod := planning.Pod("waits", strings.Fields(pick("cpu 4", "cpu 40", "cpu 4 nvidia.com/gpu 1", "nvidia.com/gpu 8", "nvidia.com/gpu 16",
		"cpu 200", "memory 700Gi nvidia.com/gpu 8")))
	for chance(40) {
		from := requirement()
		if from.Operator == corev1.NodeSelectorOpIn {
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = map[string]string{}
			}
			pod.Spec.NodeSelector[from.Key] = from.Values[0]
		}
	}
	if chance(30) {
		required := &corev1.NodeSelector{}
		for range 1 + random.IntN(2) {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{requirement(), requirement()}})
		}
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	}
	if chance(30) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "only", Operator: corev1.TolerationOpExists}}
	}
	unschedule(pod)
	pod.CreationTimestamp = snapshot.Time
	snapshot.Tenant.Pods = append(snapshot.Tenant.Pods, *pod)
	return snapshot, pod
}
