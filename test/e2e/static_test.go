// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	sandboxes "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

// A pool wants three edge servers, which are all out on loan. It says so, gets two as they come back, and makes nothing that fails, until
// the third comes back. Then it shrinks to one, and the servers go back.
func TestStaticPool(t *testing.T) {
	w := enter(t, edge)
	replicas := int64(0)
	nodePool := w.createPool(t, "edge", 3, resources("cpu", "8", "memory", "32Gi"),
		func(pool *karpv1.NodePool) { pool.Spec.Replicas = &replicas })
	var loans []*v1alpha1.Machine
	for n := range 3 {
		loan := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: fmt.Sprintf("on-loan-%d", n+1)}}
		loan.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "edge"}
		if err := w.management.Create(t.Context(), loan); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.management.Delete(context.Background(), loan); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
		loans = append(loans, loan)
	}
	comeBack := func(loans ...*v1alpha1.Machine) {
		t.Helper()
		for _, loan := range loans {
			if err := w.management.Delete(t.Context(), loan); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What the status of the NodeType says, the provider may not have seen yet.
	w.eventually(t, "the provider offers no server of NodeType edge", w.notOffered(t, "edge"))
	ctx, stop := context.WithCancel(t.Context())
	made, counted := w.countNodeClaims(ctx, t)
	scale := func(to int64) {
		t.Helper()
		scaled := nodePool.DeepCopy()
		scaled.Spec.Replicas = &to
		if err := w.tenant.Patch(t.Context(), scaled, client.MergeFrom(nodePool)); err != nil {
			t.Fatal(err)
		}
		nodePool = scaled
	}

	scale(3)
	w.eventually(t, "an event on NodePool edge says that it wants more servers",
		w.hasEvent("NodePool", "edge", "NotEnoughServers", "of the 3 that replicas asks for"))
	comeBack(loans[:2]...)
	w.eventually(t, "NodePool edge has two nodes", w.edgeNodes(2))
	comeBack(loans[2])
	w.eventually(t, "NodePool edge has three nodes", w.edgeNodes(3))
	scale(1)
	w.eventually(t, "NodePool edge has one node", w.edgeNodes(1))
	w.eventually(t, "two servers of NodeType edge are free", w.edgeServersFree(2))
	stop()
	<-counted
	if len(made) != 3 {
		t.Errorf("%d NodeClaims were made for 3 servers, with what was said last of each: %v", len(made), made)
	}
}

// notOffered: the provider knows the type, and that no server of it is free.
func (w *fixture) notOffered(t *testing.T, nodeType string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		url, token := w.programs.metrics(t, sandboxes.ProviderName)
		now, label := scrape(ctx, t, url, token), fmt.Sprintf("instance_type=%q", nodeType)
		if now["karpenter_cloudprovider_instance_type_cpu_cores{"+label+"}"] == 0 {
			return "the provider has no such type", nil
		}
		for name, value := range now {
			if strings.HasPrefix(name, "karpenter_cloudprovider_instance_type_offering_available{") && strings.Contains(name, label) && value > 0 {
				return name + " is not 0", nil
			}
		}
		return "", nil
	}
}

func (w *fixture) edgeServersFree(want int32) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		nodeType := &v1alpha1.NodeType{}
		if err := w.management.Get(ctx, client.ObjectKey{Name: "edge"}, nodeType); err != nil {
			return "", err
		}
		if got := nodeType.Status.Capacity.Available; got != want {
			return fmt.Sprintf("%d servers are free, want %d", got, want), nil
		}
		return "", nil
	}
}

func (w *fixture) edgeNodes(want int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		nodes := &corev1.NodeList{}
		if err := w.tenant.List(ctx, nodes,
			client.MatchingLabels{karpv1.NodePoolLabelKey: "edge", karpv1.NodeInitializedLabelKey: "true"}); err != nil {
			return "", err
		}
		if len(nodes.Items) != want {
			return fmt.Sprintf("%d nodes, want %d", len(nodes.Items), want), nil
		}
		return "", nil
	}
}
