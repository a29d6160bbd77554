// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Ten servers are free. The pool may have three nodes, and eight pods want one each: three NodeClaims are made, and not
// a fourth, not even for a moment. Then the pool may have all, but the tenant five servers of the type: two more are
// made. Then the tenant may have any of the type, but six servers: one more is made. The quota is there from the
// beginning: the provider sees the two clusters one after the other, and must not see the pool without its limit first.
// The pool is created last, so that Karpenter plans all pods at once.
func TestLimitsInBurst(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, nvlink)
	quota := w.quota(t, v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{"nvl": 5}})
	ctx, stop := context.WithCancel(t.Context())
	made, counted := w.countNodeClaims(ctx, t)
	pods := w.createPods(t, "burst", 8, resources("cpu", "4", gpu, "8"), func(pod *corev1.Pod) {
		pod.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: "nvl"}
	})
	w.eventually(t, "kube-scheduler has seen the pods burst", w.podsAreSeen)
	nodePool := w.createPool(t, "nvl", 10, resources("cpu", "16", "memory", "64Gi", gpu, "8"), func(pool *karpv1.NodePool) {
		pool.Spec.Limits = karpv1.Limits{"nodes": resource.MustParse("3")}
	})
	// Karpenter names the limit in its event, unless it has planned before the pool was ready: it writes one event in five minutes on a pod.
	w.eventually(t, "three of the pods burst run, and the others have an event", w.exactly(3, pods))

	unlimited := nodePool.DeepCopy()
	unlimited.Spec.Limits = nil
	if err := w.tenant.Patch(t.Context(), unlimited, client.MergeFrom(nodePool)); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "five of the pods burst run, and events on the others name the type and its quota",
		w.exactly(5, pods, "has 5 servers of NodeType nvl and its spec.quota.nodeTypes[nvl] is 5"))
	if err := quota(t.Context(), &v1alpha1.Quota{Servers: ptr.To(int64(6))}); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "six of the pods burst run, and the others have an event", w.exactly(6, pods))
	stop()
	<-counted
	if len(made) != 6 {
		t.Errorf("%d NodeClaims were made, want 6: %v", len(made), made)
	}
}

// quota bounds the tenant's servers until the test is over, and returns what sets another.
func (w *fixture) quota(t *testing.T, first v1alpha1.Quota) func(context.Context, *v1alpha1.Quota) error {
	t.Helper()
	set := func(ctx context.Context, quota *v1alpha1.Quota) error {
		tenant := &v1alpha1.TenantCluster{}
		if err := w.management.Get(ctx, client.ObjectKey{Namespace: tenantNamespace, Name: "tenant-a"}, tenant); err != nil {
			return fmt.Errorf("reading the TenantCluster, %w", err)
		}
		changed := tenant.DeepCopy()
		changed.Spec.Quota = quota
		return w.management.Patch(ctx, changed, client.MergeFrom(tenant))
	}
	if err := set(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
	return set
}
