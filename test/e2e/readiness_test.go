// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// A pool has a startup taint of the Node Readiness Controller, which the test plays. The server joins with the taint, and its NodeClaim is
// not initialized, also for another taint of the controller that the pool does not know: two pods that fit on it wait, and bring no
// second server. When the taints are taken off, both run there. When one comes back, as a rule with continuous enforcement has it, the
// pods stay, and one more pod brings the next server.
func TestReadinessTaint(t *testing.T) {
	system.Only(t)
	w := enter(t, edge)
	taint := corev1.Taint{Key: "readiness.k8s.io/gpu-driver", Value: "pending", Effect: corev1.TaintEffectNoSchedule}
	w.createPool(t, "edge", 3, resources("cpu", "8", "memory", "32Gi"), func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{taint}
	})
	ctx, stop := context.WithCancel(t.Context())
	made, counted := w.countNodeClaims(ctx, t)
	asks := resources("cpu", "2", "memory", "4Gi")
	w.createPodOn(t, "first", "edge", asks)
	node := w.waitsForTaint(t, "StartupTaint", taint.Key)
	w.createPodOn(t, "second", "edge", asks)
	w.eventually(t, "pod second is planned on node "+node, w.podHasEvent("second", "Pod should schedule on", node))
	// A rule whose taint the pool does not have: the controller puts it on after the node has joined.
	another := corev1.Taint{Key: "readiness.k8s.io/fabric", Value: "pending", Effect: corev1.TaintEffectNoSchedule}
	w.setTaint(t, node, another, true)
	w.setTaint(t, node, taint, false)
	w.waitsForTaint(t, "KnownEphemeralTaint", another.Key)
	w.setTaint(t, node, another, false)
	w.untilRuns(t, "first", "second")
	w.eventually(t, "one node of pool edge is initialized", w.edgeNodes(1))
	stop()
	<-counted
	if len(made) != 1 {
		t.Errorf("NodeClaims %v were made, want one for both pods", made)
	}

	w.setTaint(t, node, taint, true)
	w.untilSchedulerSees(t, taint, node)
	w.createPodOn(t, "third", "edge", asks)
	w.eventually(t, "a second node of pool edge has joined", func(ctx context.Context) (string, error) {
		claims, err := w.nodeClaims(ctx)
		if err != nil || len(claims) != 2 {
			return fmt.Sprintf("%d NodeClaims", len(claims)), err
		}
		for i := range claims {
			if claims[i].Status.NodeName == "" {
				return "NodeClaim " + claims[i].Name + " has no node", nil
			}
			if claims[i].Status.NodeName != node {
				w.setTaint(t, claims[i].Status.NodeName, taint, false)
			}
		}
		return "", nil
	})
	w.untilRuns(t, "first", "second", "third")
}

// waitsForTaint waits until the one NodeClaim of the group says that its node has the taint, and returns the node.
func (w *fixture) waitsForTaint(t *testing.T, kind, key string) (node string) {
	t.Helper()
	w.eventually(t, "the NodeClaim of a node that has joined waits for taint "+key, func(ctx context.Context) (string, error) {
		claims, err := w.nodeClaims(ctx)
		if err != nil || len(claims) != 1 {
			return fmt.Sprintf("%d NodeClaims", len(claims)), err
		}
		node = claims[0].Status.NodeName
		initialized := claims[0].StatusConditions().Get(karpv1.ConditionTypeInitialized)
		if containsAll(initialized.Message, kind, key, "still exists") != "" {
			return fmt.Sprintf("Initialized is %s: %s", initialized.Status, initialized.Message), nil
		}
		return "", nil
	})
	return node
}

// untilSchedulerSees waits until kube-scheduler keeps pods off a node for its taint: it reads nodes and pods independently, and may see a
// pod before a taint that is older. The probe brings no server, as it asks for this node.
func (w *fixture) untilSchedulerSees(t *testing.T, taint corev1.Taint, node string) {
	t.Helper()
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: "probe"},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: node},
			Containers: []corev1.Container{w.container(nil)}},
	}
	w.eventually(t, "kube-scheduler sees taint "+taint.Key+" of node "+node, func(ctx context.Context) (string, error) {
		pod := &corev1.Pod{}
		if err := w.tenant.Get(ctx, client.ObjectKeyFromObject(probe), pod); apierrors.IsNotFound(err) {
			return "there was no probe", w.tenant.Create(ctx, probe.DeepCopy())
		} else if err != nil {
			return "", err
		}
		if pod.Spec.NodeName != "" {
			return "the probe was bound", client.IgnoreNotFound(w.tenant.Delete(ctx, pod, client.GracePeriodSeconds(0)))
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && strings.Contains(condition.Message, "untolerated taint") {
				return "", nil
			}
		}
		return fmt.Sprintf("the probe's conditions are %v", pod.Status.Conditions), nil
	})
	if err := w.tenant.Delete(t.Context(), probe, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// setTaint puts a taint on a node, or takes it off.
func (w *fixture) setTaint(t *testing.T, name string, taint corev1.Taint, present bool) {
	t.Helper()
	w.eventually(t, fmt.Sprintf("taint %s of node %s is set: %v", taint.Key, name, present), func(ctx context.Context) (string, error) {
		node := &corev1.Node{}
		if err := w.tenant.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return "", err
		}
		before := node.DeepCopy()
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(other corev1.Taint) bool { return other.MatchTaint(&taint) })
		if present {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
		return "", w.tenant.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}
