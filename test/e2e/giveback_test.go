// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// A platform team writes two pools into the TenantCluster. The one that says nothing of it keeps a server for half an
// hour after it has become empty, interrupts no pod, and rolls nothing for its age; the other does as it is told. A NodePool
// that a user of the tenant writes is not rolled for its age either.
func TestGiveBackDefaults(t *testing.T) {
	w := enter(t, reference)
	cluster := &v1alpha1.TenantCluster{}
	key := client.ObjectKey{Namespace: tenantNamespace, Name: tenantNamespace}
	if err := w.management.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	before := cluster.DeepCopy()
	cluster.Spec.PrivateNodes = &v1alpha1.PrivateNodes{AutoNodes: []v1alpha1.AutoNodes{{
		Provider: "metal3-provider",
		Dynamic: []v1alpha1.DynamicNodes{
			{NodesTemplate: v1alpha1.NodesTemplate{Name: "defaults"}},
			{NodesTemplate: v1alpha1.NodesTemplate{Name: "explicit", ExpireAfter: "48h", Disruption: &v1alpha1.NodesDisruption{
				ConsolidateAfter: "1m", ConsolidationPolicy: "WhenEmptyOrUnderutilized", Budgets: []v1alpha1.DisruptionBudget{{Nodes: "3"}},
			}}},
		},
	}}}
	if err := w.management.Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now := &v1alpha1.TenantCluster{}
		if err := w.management.Get(context.Background(), key, now); err != nil {
			t.Error(err)
			return
		}
		changed := now.DeepCopy()
		now.Spec.PrivateNodes = before.Spec.PrivateNodes
		if err := w.management.Patch(context.Background(), now, client.MergeFrom(changed)); err != nil {
			t.Error(err)
		}
	})
	for name, want := range map[string]struct {
		disruption karpv1.Disruption
		expire     string
	}{
		"defaults": {karpv1.Disruption{
			ConsolidateAfter: karpv1.MustParseNillableDuration("30m"), ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
			Budgets: []karpv1.Budget{{Nodes: "10%"}},
		}, "Never"},
		"explicit": {karpv1.Disruption{
			ConsolidateAfter: karpv1.MustParseNillableDuration("1m"), ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
			Budgets: []karpv1.Budget{{Nodes: "3"}},
		}, "48h"},
	} {
		pool := &karpv1.NodePool{}
		w.eventually(t, "the tenant has NodePool "+name, func(ctx context.Context) (string, error) {
			err := w.tenant.Get(ctx, client.ObjectKey{Name: name}, pool)
			if client.IgnoreNotFound(err) == nil && err != nil {
				return "there is no such NodePool", nil
			}
			return "", err
		})
		if diff := cmp.Diff(want.disruption, pool.Spec.Disruption); diff != "" {
			t.Errorf("disruption of %s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(karpv1.MustParseNillableDuration(want.expire), pool.Spec.Template.Spec.ExpireAfter); diff != "" {
			t.Errorf("expireAfter of %s (-want +got):\n%s", name, diff)
		}
	}
	own := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": map[string]any{"name": "own"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"nodeClassRef": map[string]any{"group": v1alpha1.Group, "kind": "MetalNodeClass", "name": "default"},
			"requirements": []any{},
		}}},
	}}
	w.make(t, w.tenant, own)
	if got, _, _ := unstructured.NestedString(own.Object, "spec", "template", "spec", "expireAfter"); got != "Never" {
		t.Errorf("expireAfter of a NodePool that says nothing of it is %q, want Never", got)
	}
}

// Two pods run on two servers. One of them is done: its server goes back, and the other's stays.
func TestGiveBackEmptyServers(t *testing.T) {
	w := enter(t, reference)
	for _, name := range []string{"done", "busy"} {
		w.createPod(t, name, resources("cpu", "60", gpu, "4")) // no server takes two of them
	}
	w.untilRuns(t, "done", "busy")
	done, busy := w.machineOf(t, "done").Status.HostRef.Name, w.machineOf(t, "busy").Status.HostRef.Name
	if err := w.tenant.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: "done"}},
		client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "server "+done+", which is empty, is given back", func(ctx context.Context) (string, error) {
		if consumer := w.claimedHosts(ctx, t)[done]; consumer != "" {
			return "it is claimed by " + consumer, nil
		}
		return "", nil
	})
	if consumer := w.claimedHosts(t.Context(), t)[busy]; consumer == "" {
		t.Error("the server of a pod that runs was given back")
	}
	w.untilRuns(t, "busy")
}
