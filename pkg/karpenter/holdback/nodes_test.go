// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package holdback_test

import (
	"context"
	"slices"
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
func (w *tenantWorld) empty() []string {
	w.t.Helper()
	w.clock.Step(betweenPasses) // core looks each 10 s, too
	names, err := w.findEmpty()
	w.must(err)
	return names
}

func (w *tenantWorld) findEmpty() (names []string, err error) {
	queue := disruption.NewQueue(w.reads, w, w.core.Cluster, w.clock, w.planner)
	candidates, err := disruption.GetCandidates(injection.WithControllerName(w.ctx, "disruption"), w.core.Cluster, w.reads, w, w.clock,
		w.core.CloudProvider, func(_ context.Context, c *disruption.Candidate) bool { return c.IsEmpty() },
		disruption.GracefulDisruptionClass, queue)
	for _, candidate := range candidates {
		names = append(names, candidate.Name())
	}
	return names, err
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
		{"", 0, "core's scheduler would place the pod there"},
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

// TestNodeOfPodWhoseNodeIsTaken: kube-scheduler has bound a pod to the node that core has planned another pod for, and nominated a node
// for that one which a third pod was planned for. Core has seen that, and has planned nothing since.
func TestNodeOfPodWhoseNodeIsTaken(t *testing.T) {
	w := newTenantWorld(t, nil)
	pods := []*corev1.Pod{whole("a"), whole("b"), whole("c")}
	w.pend(pods...)
	if got := w.pass(); got != 3 {
		t.Fatalf("%d servers for three pods", got)
	}
	planned := func(pod *corev1.Pod) string {
		return w.core.Cluster.PodNodeClaimMapping(client.ObjectKeyFromObject(pod))
	}
	w.clock.Step(time.Hour)
	pods[0].Spec.NodeName = planned(pods[1])
	w.must(w.api.Update(w.ctx, pods[0]))
	w.sees(pods[0])
	pods[1].Status.NominatedNodeName = planned(pods[2])
	w.must(w.api.Status().Update(w.ctx, pods[1]))
	w.sees(pods[1])
	if got := w.empty(); len(got) != 0 {
		t.Errorf("%v can be taken away as empty, want none: the third pod needs the node of the first", got)
	}
	w.must(w.api.Delete(w.ctx, pods[2]))
	if got := w.empty(); !slices.Equal(got, []string{planned(pods[0])}) {
		t.Errorf("%v can be taken away as empty, want the node that no pod is on", got)
	}
}

// TestNodeThatAnotherPodCanHave: kube-scheduler has bound a pod that core has never planned to the node of another. The pod of a
// second node is gone, and core is busy.
func TestNodeThatAnotherPodCanHave(t *testing.T) {
	w := newTenantWorld(t, nil)
	robbed, gone, robber := whole("a"), whole("b"), whole("c")
	w.pend(robbed, gone)
	if got := w.pass(); got != 2 {
		t.Fatalf("%d servers for two pods", got)
	}
	free := w.core.Cluster.PodNodeClaimMapping(client.ObjectKeyFromObject(gone))
	w.clock.Step(time.Hour)
	robber.Spec.NodeName = w.core.Cluster.PodNodeClaimMapping(client.ObjectKeyFromObject(robbed))
	w.must(w.api.Create(w.ctx, robber))
	w.sees(robber)
	w.must(w.api.Delete(w.ctx, gone))
	if got := w.empty(); len(got) != 0 {
		t.Errorf("%v can be taken away as empty, want none: the pod whose node is taken can have it", got)
	}
	w.must(w.api.Delete(w.ctx, robbed))
	if got := w.empty(); !slices.Equal(got, []string{free}) {
		t.Errorf("%v can be taken away as empty, want %s: nobody waits", got, free)
	}
}

// TestRoomOfPodThatWaitsForItsVolume: kube-scheduler has chosen the node of one pod for another. Each of them keeps a server,
// and core asks for one more when a third pod comes.
func TestRoomOfPodThatWaitsForItsVolume(t *testing.T) {
	w := newTenantWorld(t, nil)
	pods := []*corev1.Pod{whole("db-0"), whole("web-0")}
	w.pend(pods...)
	if got := w.passes(2); got != 2 {
		t.Fatalf("%d servers for two pods", got)
	}
	w.clock.Step(time.Hour) // core does not wait for its own plan any more
	for _, node := range []string{w.launched[0].Name, w.launched[1].Name, ""} {
		pods[0].Status.NominatedNodeName = node
		w.must(w.api.Status().Update(w.ctx, pods[0]))
		w.sees(pods[0])
		w.sees(w.node(w.launched[0].Name)) // it has changed in some way
		if got := w.passes(3); got != 0 {
			t.Errorf("nominated %q: %d more servers, want none", node, got)
		}
		w.clock.Step(time.Hour)
		if got := w.empty(); len(got) != 0 {
			t.Errorf("nominated %q: %v can be taken away as empty, want none: each is for a pod", node, got)
		}
	}
	pods[0].Status.NominatedNodeName = w.launched[1].Name
	w.must(w.api.Status().Update(w.ctx, pods[0]))
	w.sees(pods[0])
	w.pend(whole("web-1"))
	if got := w.pass(); got != 1 {
		t.Errorf("%d servers for the third pod while a volume is made, want 1", got)
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
			w.clock.Step(time.Hour)
			node := w.node(nodeClaim.Name)
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
			w.sees(node)
			if got := w.pass(); got != tc.want {
				t.Errorf("%s: %d more servers, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// TestTaintAfterInitialization: kubelet is ready before the network plugin takes its taint off, while the server of another
// pod boots. Core would plan the pod of the first node for that server, and one more for the other pod.
func TestTaintAfterInitialization(t *testing.T) {
	for i := range 2 {
		w := newTenantWorld(t, nil)
		w.slow = true
		w.pend(whole("a"), whole("b"))
		if got := w.pass(); got != 2 {
			t.Fatalf("%d servers for two pods", got)
		}
		nodeClaims := &karpv1.NodeClaimList{}
		w.must(w.api.List(w.ctx, nodeClaims))
		w.join(nodeClaims.Items[i].Name)
		node := w.node(nodeClaims.Items[i].Name)
		node.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: node.Name, UID: nodeClaims.Items[i].UID}}
		node.Spec.Taints = []corev1.Taint{{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}}
		w.must(w.api.Update(w.ctx, node))
		w.sees(node)
		if got := w.passes(3); got != 0 {
			t.Errorf("%d more servers, want none", got)
		}
	}
}

// node is a node as it is stored.
func (w *tenantWorld) node(name string) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{}
	w.must(w.api.Get(w.ctx, client.ObjectKey{Name: name}, node))
	return node
}

// sees delivers a watch event of a node or a pod to core.
func (w *tenantWorld) sees(object client.Object) {
	w.t.Helper()
	var controller reconcile.Reconciler = informer.NewPodController(w.reads, w.core.Cluster)
	if _, isNode := object.(*corev1.Node); isNode {
		controller = informer.NewNodeController(w.reads, w.core.Cluster)
	}
	_, err := controller.Reconcile(w.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
	w.must(err)
}
