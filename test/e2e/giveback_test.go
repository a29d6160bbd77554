// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// A platform team writes two pools into the TenantCluster. The one that says nothing of it keeps a server for half an
// hour after it has become empty, interrupts no pod, and rolls nothing for its age; the other does as it is told. A NodePool
// that a user of the tenant writes is not rolled for its age either.
func TestGiveBackDefaults(t *testing.T) {
	w := enter(t, reference)
	before := w.setPrivateNodes(t, &v1alpha1.PrivateNodes{AutoNodes: []v1alpha1.AutoNodes{{
		Provider: "metal3-provider",
		Dynamic: []v1alpha1.DynamicNodes{
			{NodesTemplate: v1alpha1.NodesTemplate{Name: "defaults"}},
			{NodesTemplate: v1alpha1.NodesTemplate{Name: "explicit", ExpireAfter: "48h", Disruption: &v1alpha1.NodesDisruption{
				ConsolidateAfter: "1m", ConsolidationPolicy: "WhenEmptyOrUnderutilized", Budgets: []v1alpha1.DisruptionBudget{{Nodes: "3"}},
			}}},
		},
	}}})
	t.Cleanup(func() { w.setPrivateNodes(t, before) })
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

// setPrivateNodes writes the pools of the TenantCluster, and returns those that it had.
func (w *fixture) setPrivateNodes(t *testing.T, nodes *v1alpha1.PrivateNodes) *v1alpha1.PrivateNodes {
	t.Helper()
	ctx, cluster := context.Background(), &v1alpha1.TenantCluster{} // it is a cleanup, too
	key := client.ObjectKey{Namespace: tenantNamespace, Name: tenantNamespace}
	if err := w.management.Get(ctx, key, cluster); err != nil {
		t.Fatal(err)
	}
	before := cluster.DeepCopy()
	cluster.Spec.PrivateNodes = nodes
	if err := w.management.Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	return before.Spec.PrivateNodes
}

// confirmDeletions confirms that Machines of pools are deleted. An empty value takes the confirmation back.
func (w *fixture) confirmDeletions(t *testing.T, value string) {
	t.Helper()
	cluster, key := &v1alpha1.TenantCluster{}, client.ObjectKey{Namespace: tenantNamespace, Name: tenantNamespace}
	if err := w.management.Get(context.Background(), key, cluster); err != nil {
		t.Fatal(err)
	}
	before := cluster.DeepCopy()
	delete(cluster.Annotations, v1alpha1.ConfirmDeleteMachinesAnnotationKey)
	if value != "" {
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, v1alpha1.ConfirmDeleteMachinesAnnotationKey, value)
	}
	if err := w.management.Patch(context.Background(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// A platform team writes a pool of one server, and configures the kubelets of all pools. Later it configures them
// otherwise, and then that pool by itself. Each time the node is replaced, and its kubelet starts with what was said
// last.
func TestKubeletArgsOfPools(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	const name = "explicit"
	pool := func(quantity int32, config string, args v1alpha1.KubeletArgs) *v1alpha1.PrivateNodes {
		template := v1alpha1.NodesTemplate{Name: name, KubeletArgs: args,
			NodeTypeSelector: []v1alpha1.NodeTypeSelectorRequirement{{Property: v1alpha1.NodeTypeLabelKey, Value: "cpu"}}}
		return &v1alpha1.PrivateNodes{
			Kubelet: v1alpha1.PrivateNodesKubelet{Config: &v1alpha1.Opaque{JSON: apiextensionsv1.JSON{Raw: []byte(config)}}},
			AutoNodes: []v1alpha1.AutoNodes{{Provider: "metal3-provider",
				Static: []v1alpha1.StaticNodes{{NodesTemplate: template, Quantity: quantity}}}},
		}
	}
	before := w.setPrivateNodes(t, pool(0, "{}", nil))
	t.Cleanup(func() { w.setPrivateNodes(t, before) })
	t.Cleanup(func() { // a pool that has Machines is neither emptied nor taken away without a confirmation
		w.confirmDeletions(t, v1alpha1.ConfirmAnyNumber)
		defer w.confirmDeletions(t, "")
		w.setPrivateNodes(t, pool(0, "{}", nil))
		check := func(ctx context.Context) (string, error) {
			machines, err := w.machines(ctx)
			if len(machines) > 0 {
				return fmt.Sprintf("it has %d", len(machines)), nil
			}
			return "", err
		}
		if err := poll.Await(context.Background(), "NodePool "+name+" has no Machine", nothingMissing(check)); err != nil {
			t.Error(err)
		}
	})
	for _, step := range []struct {
		what string
		*v1alpha1.PrivateNodes
		pods int64
	}{
		{"what all pools are told", pool(1, `{"maxPods": 64, "shutdownGracePeriod": "30s"}`, nil), 64},
		{"what they are told later", pool(1, `{"maxPods": 48}`, nil), 48},
		{"what the pool is told", pool(1, `{"maxPods": 48}`, v1alpha1.KubeletArgs{"max-pods": "32"}), 32},
	} {
		w.setPrivateNodes(t, step.PrivateNodes)
		w.eventually(t, fmt.Sprintf("the kubelet of NodePool %s starts with %s", name, step.what),
			w.podsOfNode(name, step.pods))
	}
}

// podsOfNode is a condition: the NodePool has one node, which is up and takes so many pods.
func (w *fixture) podsOfNode(pool string, want int64) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		claims, err := w.nodeClaims(ctx)
		if err != nil {
			return "", err
		}
		var got []int64
		for _, claim := range claims {
			if claim.Labels[karpv1.NodePoolLabelKey] != pool {
				continue
			}
			node := &corev1.Node{}
			if err := w.tenant.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, node); client.IgnoreNotFound(err) != nil {
				return "", err
			}
			got = append(got, node.Status.Capacity.Pods().Value())
			if !isUp(&claim) {
				return fmt.Sprintf("NodeClaim %s is not up", claim.Name), nil
			}
		}
		if !slices.Equal([]int64{want}, got) {
			return fmt.Sprintf("its nodes take %v pods, want %d", got, want), nil
		}
		return "", nil
	}
}
