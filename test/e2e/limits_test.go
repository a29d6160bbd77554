// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Ten servers are free. The pool may have three nodes, and eight pods want one each: three NodeClaims are made, and not
// a fourth, not even for a moment. Then the pool may have all, but the tenant five servers: two more are made. The quota is there from
// the beginning: the provider sees the two clusters one after the other, and must not see the pool without its limit first. The pool
// is created last, so that Karpenter plans all pods at once.
func TestLimitsInBurst(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, nvlink)
	w.quota(t, 5)
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
	w.eventually(t, "five of the pods burst run, and events on the others name the quota",
		w.exactly(5, pods, "has 5 servers and its spec.quota.servers is 5"))
	stop()
	<-counted
	if len(made) != 5 {
		t.Errorf("%d NodeClaims were made, want 5: %v", len(made), made)
	}
}

// quota bounds the tenant's servers until the test is over.
func (w *fixture) quota(t *testing.T, servers int64) {
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
	if err := set(t.Context(), &v1alpha1.Quota{Servers: &servers}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
}
