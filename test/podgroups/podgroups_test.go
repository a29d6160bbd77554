// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgroups has gangs of pods that a test makes, in a tenant whose API server serves PodGroups, and whose scheduler follows them.
package podgroups

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/gangstories"
	managementtest "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// size of the group. Domain n1 has four servers, and n2 six.
const size = 6

// The pods of a PodGroup say nothing of a domain, only the group does. While five servers of its domain of six are free, none is claimed
// for it, and an event says what is missing. Once the sixth is free, all its pods run there.
func TestPodGroup(t *testing.T) {
	system.Only(t)
	tenant, _ := newTenant(t, map[string]int{"n1": 4, "n2": size})
	first := gangstories.Pod("first", gangstories.In("n2"))
	create(t, tenant, first)
	untilRuns(t, tenant, first)

	group := podGroup(t, tenant, "train")
	create(t, tenant, group)
	var members []string
	for i := range size {
		member := gangstories.Pod(fmt.Sprint("train-", i), func(pod *corev1.Pod) {
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group.GetName())}
		})
		create(t, tenant, member)
		members = append(members, member.Name)
	}
	untilShort(t, tenant, members, "no nvlink-domain has capacity for all 6 pods of the gang: n2 has capacity for 5, n1 for 4; it gets no "+
		"server before there is room for all at one time")
	claims := &karpv1.NodeClaimList{}
	if err := tenant.List(t.Context(), claims); err != nil || len(claims.Items) != 1 {
		t.Errorf("there are %d NodeClaims, error %v; want that of the first pod alone", len(claims.Items), err)
	}

	if err := tenant.Delete(t.Context(), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	inDomain(t, tenant, members, "n2")
	replacedTogether(t, tenant, group.GetName())
}

// replacedTogether has the nodes of a PodGroup drift, which is disrupted as a whole. While the budget allows one of them, none is
// replaced, and an event says why. All are once the budget allows all.
func replacedTogether(t *testing.T, tenant client.Client, group string) {
	t.Helper()
	before := &karpv1.NodeClaimList{}
	poll.Eventually(t, "there are the NodeClaims of the group alone", func(ctx context.Context) error {
		if err := tenant.List(ctx, before); err != nil || len(before.Items) != size {
			return fmt.Errorf("there are %d NodeClaims, error %w; want %d", len(before.Items), err, size)
		}
		return nil
	})
	pools := &karpv1.NodePoolList{}
	if err := tenant.List(t.Context(), pools); err != nil {
		t.Fatal(err)
	}
	edit := func(change func(*karpv1.NodePool)) {
		t.Helper()
		for i := range pools.Items {
			was := pools.Items[i].DeepCopy()
			change(&pools.Items[i])
			if err := tenant.Patch(t.Context(), &pools.Items[i], client.MergeFrom(was)); err != nil {
				t.Fatal(err)
			}
		}
	}
	edit(func(pool *karpv1.NodePool) {
		pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
		pool.Spec.Template.Labels = map[string]string{"example.com/rollout": "second"}
	})
	want := fmt.Sprintf("this node has drifted and stays: the pods of PodGroup %s/%s are disrupted together (disruptionMode): they are on "+
		"%d nodes, and the budgets of NodePool %s allow 1 more now", metav1.NamespaceDefault, group, size,
		before.Items[0].Labels[karpv1.NodePoolLabelKey])
	for _, nodeClaim := range before.Items {
		untilEvent(t, tenant, []string{nodeClaim.Name}, "RolloutBlocked", want)
	}
	now := &karpv1.NodeClaimList{}
	if err := tenant.List(t.Context(), now); err != nil || len(now.Items) != size ||
		slices.ContainsFunc(now.Items, func(n karpv1.NodeClaim) bool { return !n.DeletionTimestamp.IsZero() }) {
		t.Errorf("there are NodeClaims %v, error %v; want the same as before", now.Items, err)
	}
	edit(func(pool *karpv1.NodePool) { pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: fmt.Sprint(size)}} })
	poll.Eventually(t, "all nodes of the group are replaced", func(ctx context.Context) error {
		for i := range before.Items {
			nodeClaim := &karpv1.NodeClaim{}
			err := tenant.Get(ctx, client.ObjectKeyFromObject(&before.Items[i]), nodeClaim)
			if err == nil && nodeClaim.DeletionTimestamp.IsZero() {
				return fmt.Errorf("NodeClaim %s stays", nodeClaim.Name)
			}
			if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
}

// A gang of 64 pods, which come two in a second, while 63 of 64 servers of the only domain that is large enough are free: none is claimed
// before all pods exist, nor then. When the last server is free, all of them run in that domain.
func TestPodsComeSlowly(t *testing.T) {
	system.Only(t)
	const count = 64
	tenant, config := newTenant(t, map[string]int{"n1": count, "n2": 6})
	config.QPS, config.Burst = 2, 1
	slow, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := gangstories.Pod("first", gangstories.In("n1"))
	create(t, tenant, first)
	untilRuns(t, tenant, first)

	claims := &karpv1.NodeClaimList{}
	list := func(when string, want int) {
		t.Helper()
		if err := tenant.List(t.Context(), claims); err != nil || len(claims.Items) != want {
			t.Fatalf("%s there are %d NodeClaims, error %v; want %d", when, len(claims.Items), err, want)
		}
	}
	var members []string
	for len(members) < count {
		list("while the pods come", 1)
		member := gangstories.Pod(fmt.Sprint("train-", len(members)), func(pod *corev1.Pod) {
			pod.Labels = map[string]string{"job": "train"}
			pod.Annotations = map[string]string{v1alpha1.GangMinCountAnnotationKey: fmt.Sprint(count)}
			pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: v1alpha1.NVLinkDomainLabelKey, LabelSelector: &metav1.LabelSelector{MatchLabels: pod.Labels},
				}},
			}}
		})
		create(t, slow, member)
		members = append(members, member.Name)
	}
	untilShort(t, tenant, members, "no nvlink-domain has capacity for all 64 pods of the gang: n1 has capacity for 63, n2 for 6; it gets no "+
		"server before there is room for all at one time")
	list("while 63 servers are free", 1)

	if err := tenant.Delete(t.Context(), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	inDomain(t, tenant, members, "n1")
	list("in the end", count)
}

// Two gangs of three, one after the other, while eight servers are free. The servers of the first gang come up one by one, as the owner of
// the network hook lets them, and Karpenter plans several times while nodes of the gang are ready and empty. That they are empty has one
// cause, the pods that are missing, and no fault of a node: the second gang gets its servers without a delay.
func TestServersOfGangComeOneByOne(t *testing.T) {
	system.Only(t)
	box, management, tenant := gangstories.Start(t, sandbox.Config{Fleet: gangstories.Servers(map[string]int{"n1": 8}), PodGroups: true})
	clusters := &v1alpha1.TenantClusterList{}
	if err := management.List(t.Context(), clusters); err != nil || len(clusters.Items) != 1 {
		t.Fatalf("there are %d TenantClusters, error %v; want 1", len(clusters.Items), err)
	}
	network := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"network": {"vlan": 42}}}`))
	if err := management.Patch(t.Context(), &clusters.Items[0], network); err != nil {
		t.Fatal(err)
	}
	if _, err := examples.Apply(t.Context(), tenant, examples.TenantFile); err != nil {
		t.Fatal(err)
	}
	// A node of an incomplete gang is empty, and stays.
	stay := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"disruption": {"consolidateAfter": "Never"}}}`))
	if err := tenant.Patch(t.Context(), &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, stay); err != nil {
		t.Fatal(err)
	}

	gang := func(name string) (members []string) {
		t.Helper()
		group := podGroup(t, tenant, name)
		unstructured.RemoveNestedField(group.Object, "spec", "schedulingConstraints")
		if err := unstructured.SetNestedField(group.Object, int64(3), "spec", "schedulingPolicy", "gang", "minCount"); err != nil {
			t.Fatal(err)
		}
		create(t, tenant, group)
		for i := range 3 {
			member := gangstories.Pod(fmt.Sprint(name, "-", i), func(pod *corev1.Pod) {
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(name)}
			})
			create(t, tenant, member)
			members = append(members, member.Name)
		}
		return members
	}
	first := gang("first")
	for ready := range 3 {
		letInto(t, management, 3-ready)
		if ready == 2 {
			break
		}
		poll.Eventually(t, "the next node of the gang is initialized", func(ctx context.Context) error {
			return initialized(ctx, tenant, ready+1)
		})
		before := passes(t.Context(), t, box)
		poll.Eventually(t, "Karpenter has planned for pods that wait and nodes that are empty", func(ctx context.Context) error {
			if now := passes(ctx, t, box); now < before+8 {
				return fmt.Errorf("it has planned %v times, want %v", now, before+8)
			}
			return nil
		})
	}
	untilAllRun(t, tenant, first)
	second := gang("second")
	letInto(t, management, 3)
	letInto(t, management, 2)
	letInto(t, management, 1)
	untilAllRun(t, tenant, second)
	poll.Eventually(t, "there are six nodes", func(ctx context.Context) error { return initialized(ctx, tenant, 6) })
}

// letInto waits until so many servers wait for their network, and lets the one of the last NodeClaim by name into it: Karpenter plans the
// pods for the others first.
func letInto(t *testing.T, management client.Client, waiting int) {
	t.Helper()
	hook := v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, v1alpha1.NetworkHook)
	poll.Eventually(t, fmt.Sprint(waiting, " servers wait for their network"), func(ctx context.Context) error {
		list := &bmov1alpha1.BareMetalHostList{}
		if err := management.List(ctx, list); err != nil {
			return err
		}
		hosts := slices.DeleteFunc(list.Items, func(host bmov1alpha1.BareMetalHost) bool {
			_, waits := host.Annotations[hook]
			return !waits || host.Spec.ConsumerRef == nil
		})
		if len(hosts) != waiting {
			return fmt.Errorf("%d servers wait", len(hosts))
		}
		last := slices.MaxFunc(hosts, func(a, b bmov1alpha1.BareMetalHost) int {
			return cmp.Compare(a.Spec.ConsumerRef.Name, b.Spec.ConsumerRef.Name)
		})
		before := last.DeepCopy()
		delete(last.Annotations, hook)
		return management.Patch(ctx, &last, client.MergeFrom(before))
	})
}

// initialized returns an error unless exactly so many NodeClaims are initialized.
func initialized(ctx context.Context, tenant client.Client, want int) error {
	list := &karpv1.NodeClaimList{}
	if err := tenant.List(ctx, list); err != nil {
		return err
	}
	count := 0
	for _, nodeClaim := range list.Items {
		if nodeClaim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
			count++
		}
	}
	if count != want {
		return fmt.Errorf("%d of %d NodeClaims are initialized, want %d", count, len(list.Items), want)
	}
	return nil
}

// passes is how often the tenant's Karpenter has planned nodes for pods.
func passes(ctx context.Context, t *testing.T, box *sandbox.Sandbox) float64 {
	t.Helper()
	metrics, err := managementtest.ReadMetrics(ctx, box.Metrics(sandbox.ProviderName))
	if err != nil {
		t.Fatal(err)
	}
	return metrics[`karpenter_scheduler_scheduling_duration_seconds_count{controller="provisioner"}`]
}

// untilAllRun waits until each pod of a gang runs on a server of its own.
func untilAllRun(t *testing.T, tenant client.Client, members []string) {
	t.Helper()
	poll.Eventually(t, "all pods of the gang run", func(ctx context.Context) error {
		_, _, err := gangstories.Run(ctx, tenant, members...)
		return err
	})
}

// untilShort waits until an event on a pod of the gang says what is missing.
func untilShort(t *testing.T, tenant client.Client, members []string, want string) {
	t.Helper()
	untilEvent(t, tenant, members, "InsufficientDomainCapacity", want)
}

// untilEvent waits until there is an event on one of the objects.
func untilEvent(t *testing.T, tenant client.Client, objects []string, reason, message string) {
	t.Helper()
	poll.Eventually(t, "there is an event "+reason, func(ctx context.Context) error {
		return gangstories.HasEvent(ctx, tenant, objects, reason, message)
	})
}

// inDomain waits until all pods run, each on a server of its own in the domain.
func inDomain(t *testing.T, tenant client.Client, members []string, domain string) {
	t.Helper()
	poll.Eventually(t, "all pods of the gang run", func(ctx context.Context) error {
		servers, domains, err := gangstories.Run(ctx, tenant, members...)
		if err == nil && (servers != len(members) || !slices.Equal(domains, []string{domain})) {
			t.Fatalf("the pods run on %d servers in %v, want %d in %s", servers, domains, len(members), domain)
		}
		return err
	})
}

// newTenant starts a sandbox with so many servers in each domain, and returns a client of its tenant cluster, and what makes another.
func newTenant(t *testing.T, domains map[string]int) (client.Client, *rest.Config) {
	t.Helper()
	box, _, tenant := gangstories.Start(t, sandbox.Config{Fleet: gangstories.Servers(domains), PodGroups: true,
		AuditLogs: os.Getenv(audit.DirectoryVariable)})
	if _, err := examples.Apply(t.Context(), tenant, examples.TenantFile); err != nil {
		t.Fatal(err)
	}
	return tenant, box.TenantConfig()
}

// podGroup is in the version that the API server prefers. Those of Kubernetes 1.36 and 1.37 have all fields but disruptionMode in common.
func podGroup(t *testing.T, tenant client.Client, name string) *unstructured.Unstructured {
	t.Helper()
	mapping, err := tenant.RESTMapper().RESTMapping(schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PodGroup"})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("PodGroups are of", mapping.GroupVersionKind.GroupVersion())
	disruptionMode := any(map[string]any{"all": map[string]any{}})
	if mapping.GroupVersionKind.Version == "v1alpha2" {
		disruptionMode = "PodGroup"
	}
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"disruptionMode":        disruptionMode,
		"schedulingPolicy":      map[string]any{"gang": map[string]any{"minCount": int64(size)}},
		"schedulingConstraints": map[string]any{"topology": []any{map[string]any{"key": v1alpha1.NVLinkDomainLabelKey}}},
	}}}
	group.SetGroupVersionKind(mapping.GroupVersionKind)
	group.SetNamespace(metav1.NamespaceDefault)
	group.SetName(name)
	return group
}

func create(t *testing.T, tenant client.Client, object client.Object) {
	t.Helper()
	if err := tenant.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// untilRuns waits until a pod runs.
func untilRuns(t *testing.T, tenant client.Client, pod *corev1.Pod) {
	t.Helper()
	poll.Eventually(t, "pod "+pod.Name+" runs", func(ctx context.Context) error {
		_, _, err := gangstories.Run(ctx, tenant, pod.Name)
		return err
	})
}
