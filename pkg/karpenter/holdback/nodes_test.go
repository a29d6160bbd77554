// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package holdback_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/state/informer"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
)

// empty are the nodes that core could take away because they are empty.
func (w *tenantWorld) empty() (names []string) {
	w.t.Helper()
	queue := disruption.NewQueue(w.reads, w, w.core.Cluster, w.clock, w.planner)
	candidates, err := disruption.GetCandidates(injection.WithControllerName(w.ctx, "disruption"), w.core.Cluster, w.reads, w, w.clock,
		w.core.CloudProvider, func(_ context.Context, c *disruption.Candidate) bool { return c.IsEmpty() },
		disruption.GracefulDisruptionClass, queue)
	w.must(err)
	for _, candidate := range candidates {
		names = append(names, candidate.Name())
	}
	return names
}

// TestNodeOfPodThatWaitsForItsVolume: kube-scheduler has chosen the node, and binds the pod once the volume is made there.
func TestNodeOfPodThatWaitsForItsVolume(t *testing.T) {
	w := newTenantWorld(t, nil)
	pod := whole("db-0")
	w.pend(pod)
	if got := w.pass(); got != 1 {
		t.Fatalf("%d servers for one pod", got)
	}
	w.clock.Step(time.Hour) // core has long forgotten that it planned the pod for the node
	node := w.launched[0].Name
	w.core.Cluster.ClearPodSchedulingMappings(client.ObjectKeyFromObject(pod))
	for _, tc := range []struct {
		nominated string
		empty     int
		reason    string
	}{
		{"", 1, "nobody waits for the node"},
		{node, 0, "kube-scheduler has chosen it"},
		{"another", 1, "kube-scheduler has changed its mind"},
	} {
		pod.Status.NominatedNodeName = tc.nominated
		w.must(w.api.Status().Update(w.ctx, pod))
		if got := w.empty(); len(got) != tc.empty {
			t.Errorf("nominated %q: %v can be taken away as empty, want %d: %s", tc.nominated, got, tc.empty, tc.reason)
		}
	}
	pod.Status.NominatedNodeName = node
	w.must(w.api.Status().Update(w.ctx, pod))
	drained := &corev1.PodList{}
	w.must(w.reads.List(injection.WithControllerName(w.ctx, "node.termination"), drained, client.MatchingFields{"spec.nodeName": node}))
	if len(drained.Items) != 0 {
		t.Error("a drain evicts a pod that is not on the node")
	}
}

// TestNodeOfPodThatIsBoundLate: kube-scheduler binds a pod more than 20 s after core has planned it for the node.
func TestNodeOfPodThatIsBoundLate(t *testing.T) {
	w := newTenantWorld(t, nil)
	first, second := whole("train-0"), whole("train-1")
	w.pend(first)
	w.pend(second)
	if got := w.pass(); got != 2 {
		t.Fatalf("%d servers for two pods", got)
	}
	w.clock.Step(time.Hour)
	if got := w.empty(); len(got) != 0 {
		t.Errorf("%v can be taken away as empty, want none: core has planned a pod for each", got)
	}
	w.must(w.api.Delete(w.ctx, second))
	if got := w.empty(); len(got) != 1 {
		t.Errorf("%v can be taken away as empty, want the node of the pod that is gone", got)
	}
	first.Spec.NodeName = "elsewhere"
	w.must(w.api.Update(w.ctx, first))
	if got := w.empty(); len(got) != 2 {
		t.Errorf("%v can be taken away as empty, want both: the other pod is on another node", got)
	}
}

// TestTaintOfNodeThatStarts: a network plugin taints nodes until its agent runs, and nobody has declared that.
func TestTaintOfNodeThatStarts(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		taint       string
		declared    bool
		initialized bool
		want        int
	}{
		"NetworkPlugin": {"the pod's node is starting", "node.cilium.io/agent-not-ready", false, false, 0},
		"Declared":      {"pods that do not tolerate a taint of the NodeClaim never run there", "example.com/dedicated", true, false, 1},
		"Cordoned":      {"a person has taken the node", corev1.TaintNodeUnschedulable, false, false, 1},
		"Disrupted":     {"core takes the node away", karpv1.DisruptedTaintKey, false, false, 1},
		"Initialized":   {"the pod is held back by itself for now", "node.cilium.io/agent-not-ready", false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenantWorld(t, nil)
			w.slow = true
			w.pend(whole("single"))
			if got := w.pass(); got != 1 {
				t.Fatalf("%d servers for one pod", got)
			}
			nodeClaims := &karpv1.NodeClaimList{}
			w.must(w.api.List(w.ctx, nodeClaims))
			nodeClaim := &nodeClaims.Items[0]
			taint := corev1.Taint{Key: tc.taint, Value: "true", Effect: corev1.TaintEffectNoSchedule}
			if tc.declared {
				nodeClaim.Spec.Taints = []corev1.Taint{taint}
				w.must(w.api.Update(w.ctx, nodeClaim))
			}
			w.join(nodeClaim.Name)
			node := &corev1.Node{}
			w.must(w.api.Get(w.ctx, client.ObjectKey{Name: nodeClaim.Name}, node))
			if !tc.initialized {
				delete(node.Labels, karpv1.NodeInitializedLabelKey)
				node.Status.Conditions[0].Status = corev1.ConditionFalse
				w.must(w.api.Get(w.ctx, client.ObjectKeyFromObject(nodeClaim), nodeClaim))
				nodeClaim.StatusConditions().SetUnknown(karpv1.ConditionTypeInitialized)
				w.must(w.api.Status().Update(w.ctx, nodeClaim))
				w.core.Cluster.UpdateNodeClaim(nodeClaim)
			}
			node.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: nodeClaim.Name, UID: nodeClaim.UID}}
			node.Spec.Taints = []corev1.Taint{taint}
			w.must(w.api.Update(w.ctx, node))
			_, err := informer.NewNodeController(w.reads, w.core.Cluster).Reconcile(w.ctx,
				reconcile.Request{NamespacedName: client.ObjectKeyFromObject(node)})
			w.must(err)
			if got := w.pass(); got != tc.want {
				t.Errorf("%s: %d more servers, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
