// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// One NodeType is by hardware and another by tenant, and one of the three servers has the labels of both. A static pool that asks for
// both gets that server. Another one that asks for both waits while two servers of the hardware are free, and says what they lack.
func TestComposedTypes(t *testing.T) {
	system.Only(t)
	w := enter(t, edge)
	w.needsServers(t)
	hosts, err := w.hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	both := &hosts[1]
	label := func(ctx context.Context, value string) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"tenant":%s}}}`, value)
		return w.management.Patch(ctx, both, client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	if err := label(t.Context(), `"customer-a"`); err != nil {
		t.Fatal(err)
	}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "customers"}}
	provider.Spec.Metal3.ClusterRef.Namespace = hostNamespace
	byTenant := v1alpha1.NodeTypeTemplate{Name: "customer-a"}
	byTenant.Resources = resources("cpu", "8", "memory", "32Gi")
	byTenant.BareMetalHosts = &v1alpha1.HostSelection{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "customer-a"}}}
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{byTenant}
	if err := w.management.Create(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.remove(t, w.management, provider)
		if err := label(context.Background(), "null"); err != nil {
			t.Error(err)
		}
	})
	replicas, also := int64(1), karpv1.NodeSelectorRequirementWithMinValues{
		Key: v1alpha1.TypeLabelKey("customer-a"), Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.TypeLabelValue}}
	first := w.createPool(t, "edge", 3, resources("cpu", "8", "memory", "32Gi"), func(pool *karpv1.NodePool) {
		pool.Spec.Replicas = &replicas
		pool.Spec.Template.Spec.Requirements = append(pool.Spec.Template.Spec.Requirements, also)
	})

	w.eventually(t, "NodePool edge has its node", w.edgeNodes(1))
	if claimed := slices.Collect(maps.Keys(w.claimedHosts(t.Context(), t))); !slices.Equal(claimed, []string{both.Name}) {
		t.Errorf("server %v was claimed, want %s", claimed, both.Name)
	}
	if diff := cmp.Diff(map[string]int{"true": 1}, w.labelsOfEdgeNodes(t, v1alpha1.TypeLabelKey("edge"))); diff != "" {
		t.Errorf("the node does not say which types its server matches (-want +got):\n%s", diff)
	}

	second := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "edge-second"}, Spec: *first.Spec.DeepCopy()}
	if err := w.tenant.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.remove(t, w.tenant, second) })
	const want = "it has 0 nodes of the 1 that replicas asks for, and 0 servers that it could have are free (they must match NodeType " +
		"customer-a as well)"
	w.eventually(t, "an event on NodePool edge-second says what it waits for", w.hasEvent("NodePool", "edge-second", "NotEnoughServers", want))
	w.eventually(t, "two servers of NodeType edge are free", w.edgeServersFree(2))
	if claims, err := w.nodeClaims(t.Context()); err != nil || len(claims) != 1 {
		t.Errorf("%d NodeClaims, want the one of the first pool (%v)", len(claims), err)
	}
}

// labelsOfEdgeNodes counts the values of a label on the nodes of the pool edge.
func (w *fixture) labelsOfEdgeNodes(t *testing.T, key string) map[string]int {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := w.tenant.List(t.Context(), nodes, client.MatchingLabels{karpv1.NodePoolLabelKey: "edge"}); err != nil {
		t.Fatal(err)
	}
	values := map[string]int{}
	for i := range nodes.Items {
		values[nodes.Items[i].Labels[key]]++
	}
	return values
}

// The NodePool is the one of Karpenter's getting-started guide, without what only a cloud has: its instance categories. It allows
// on-demand only, while this provider's servers are reserved.
func TestGettingStarted(t *testing.T) {
	w := enter(t, edge)
	w.createPool(t, "edge", 3, resources("cpu", "8", "memory", "32Gi"), func(pool *karpv1.NodePool) {
		in := func(key, value string) karpv1.NodeSelectorRequirementWithMinValues {
			return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
		}
		pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
			in(corev1.LabelArchStable, "amd64"), in(corev1.LabelOSStable, "linux"), in(karpv1.CapacityTypeLabelKey, "on-demand"),
		}
		pool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("720h")
		pool.Spec.Limits = karpv1.Limits(resources("cpu", "1000"))
		pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
		pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("1m")
	})
	pods := w.createPods(t, "inflate", 1, resources("cpu", "1"), func(pod *corev1.Pod) {
		pod.Spec.NodeSelector = map[string]string{karpv1.CapacityTypeLabelKey: "on-demand"}
	})
	w.eventually(t, "pod inflate-0 runs", w.exactly(1, pods))
	if diff := cmp.Diff(map[string]int{"on-demand": 1}, w.labelsOfEdgeNodes(t, karpv1.CapacityTypeLabelKey)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
