// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/kubelet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

// planned are the types and racks that the NodeClaims of one pass ask for, with how many do.
func planned(t *testing.T, plan planning.Plan) map[string]int {
	t.Helper()
	result := map[string]int{}
	for _, claim := range plan.Solve(t).NewNodeClaims {
		var types []string
		for _, instanceType := range claim.InstanceTypeOptions {
			types = append(types, instanceType.Name)
		}
		slices.Sort(types)
		where := fmt.Sprint(types)
		if claim.Requirements.Has("rack") {
			where += fmt.Sprintf(" %s", claim.Requirements.Get("rack").Values())
		}
		result[where]++
	}
	return result
}

// TestPlansWithInspectedResources: a type that leaves out its resources is offered once Metal3 has inspected a server of it, with what
// was found.
func TestPlansWithInspectedResources(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		free   int32
		asks   []string // what the pod requests, besides cpu
		spec   []string // what the NodeType says
		found  []string // what its status says
		want   map[string]int
	}{
		"NotInspected":  {reason: "its size is not known", want: map[string]int{}},
		"OnlyAvailable": {reason: "neither is it if the status lags behind", free: 1, want: map[string]int{}},
		"Inspected": {reason: "it is big enough", free: 1, found: []string{"cpu", "64", "memory", "512Gi"},
			want: map[string]int{"[left-out]": 1}},
		"TooSmall": {reason: "the pod asks for more", free: 1, found: []string{"cpu", "8", "memory", "512Gi"}, want: map[string]int{}},
		"Accelerators": {reason: "the spec names them", free: 1, asks: []string{"nvidia.com/gpu", "8"}, spec: []string{"nvidia.com/gpu", "8"},
			found: []string{"cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "8"}, want: map[string]int{"[left-out]": 1}},
		"NoAccelerators": {reason: "they are not found by inspection", free: 1, asks: []string{"nvidia.com/gpu", "8"},
			found: []string{"cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "8"}, want: map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			nodeType := planning.NodeType("left-out", 0, planning.Domain(tc.free))
			nodeType.Spec.Resources, nodeType.Status.Resources = env.Resources(tc.spec...), env.Resources(tc.found...)
			plan := planning.Plan{Types: []*v1alpha1.NodeType{nodeType},
				Objects: []client.Object{planning.Pod("pod", append([]string{"cpu", "32"}, tc.asks...))}}
			if diff := cmp.Diff(tc.want, planned(t, plan)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPassStaysWithinFreeServers(t *testing.T) {
	whole := []string{"nvidia.com/gpu", "4"}
	pods := func(prefix string, count int, change ...func(*corev1.Pod)) (result []client.Object) {
		for i := range count {
			result = append(result, planning.Pod(fmt.Sprintf("%s-%02d", prefix, i), whole, change...))
		}
		return result
	}
	withVolumes := func(pods []client.Object, rack string) (result []client.Object) {
		for _, pod := range pods {
			result = append(result, planning.Volume(pod.(*corev1.Pod), "rack", rack)...)
		}
		return append(pods, result...)
	}
	inRack := func(rack string) func(*corev1.Pod) { return planning.Selecting("rack", rack) }
	ofType := func(name string) func(*corev1.Pod) { return planning.Selecting(v1alpha1.NodeTypeLabelKey, name) }
	racks := planning.NodeType("a100", 4, planning.Domain(3, "rack", "r1"), planning.Domain(2, "rack", "r2"), planning.Domain(0, "rack", "r3"))
	shared := func(domain v1alpha1.DomainCapacity, partner string) v1alpha1.DomainCapacity {
		domain.SharedWith = []string{partner}
		return domain
	}
	twins := []*v1alpha1.NodeType{
		planning.NodeType("a100", 4, shared(planning.Domain(3, "rack", "r1"), "a100-big"), shared(planning.Domain(2, "rack", "r2"), "a100-big")),
		planning.NodeType("a100-big", 4, shared(planning.Domain(3, "rack", "r1"), "a100"), shared(planning.Domain(2, "rack", "r2"), "a100")),
	}
	// Two of the h100 are for customer-a, in a rack each, and so are two a100 that match no other type.
	fleet := []*v1alpha1.NodeType{
		planning.NodeType("a100", 4, planning.Domain(0, "rack", "r1")),
		planning.NodeType("customer-a", 4, shared(planning.Domain(1, "rack", "r1"), "h100"), shared(planning.Domain(1, "rack", "r2"), "h100")),
		planning.NodeType("h100", 4, planning.Domain(3, "rack", "r1"), shared(planning.Domain(1, "rack", "r1"), "customer-a"),
			shared(planning.Domain(1, "rack", "r2"), "customer-a")),
	}
	alsoOf := func(name string) func(*corev1.Pod) { return planning.Selecting(v1alpha1.TypeLabelKey(name), "true") }
	require := func(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	requiring := func(requirements ...karpv1.NodeSelectorRequirementWithMinValues) func(*karpv1.NodePool) {
		return func(pool *karpv1.NodePool) { pool.Spec.Template.Spec.Requirements = requirements }
	}
	// Core lets pods select on labels that a NodePool names.
	aware := []*karpv1.NodePool{planning.Pool("aware", requiring(
		karpv1.NodeSelectorRequirementWithMinValues{Key: v1alpha1.TypeLabelKey("customer-a"), Operator: corev1.NodeSelectorOpExists},
		karpv1.NodeSelectorRequirementWithMinValues{Key: v1alpha1.TypeLabelKey("h100"), Operator: corev1.NodeSelectorOpExists}))}
	two := int64(2)
	ofTypes := func(nodeType string, servers v1alpha1.ServerCount) quota.Rest {
		return quota.Rest{Quota: &v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{nodeType: servers}}}
	}
	taintedFor := func(team string) func(*karpv1.NodePool) {
		return func(pool *karpv1.NodePool) {
			pool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "team", Value: team, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	tolerating := func(team string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.Tolerations = []corev1.Toleration{{Key: "team", Value: team}} }
	}
	for name, tc := range map[string]struct {
		reason string
		plan   planning.Plan
		// want are the NodeClaims by types and rack, total is how many there are of whatever type.
		want  map[string]int
		total int
	}{
		"anywhere": {
			reason: "pods that select no domain can get all of them in one pass, and no more",
			plan:   planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9)}, want: map[string]int{"[a100]": 5},
		},
		"one rack": {
			reason: "pods that select a rack get what is free there",
			plan:   planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("r2", 9, inRack("r2"))}, want: map[string]int{"[a100] [r2]": 2},
		},
		"a full rack": {
			reason: "no NodeClaim is made that must fail, however many servers are free elsewhere",
			plan:   planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("r3", 9, inRack("r3"))}, want: map[string]int{},
		},
		"volumes": {
			reason: "pods get what is free in the rack of their volumes, although they do not name it",
			plan:   planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: withVolumes(pods("data", 9), "r1")},
			want:   map[string]int{"[a100] [r1]": 3},
		},
		"several racks": {
			reason: "each is counted by itself",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks},
				Objects: slices.Concat(pods("r1", 9, inRack("r1")), pods("r2", 9, inRack("r2")), pods("r3", 9, inRack("r3")))},
			want: map[string]int{"[a100] [r1]": 3, "[a100] [r2]": 2},
		},
		"a pool of one rack": {
			reason: "the NodePool asks for its pods",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9),
				Pools: []*karpv1.NodePool{planning.Pool("r1", func(pool *karpv1.NodePool) {
					pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: "rack",
						Operator: corev1.NodeSelectorOpIn, Values: []string{"r1"}}}
				})}},
			want: map[string]int{"[a100] [r1]": 3},
		},
		"two zones": {
			reason: "pods that select no zone can get servers of all zones",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{planning.NodeType("a100", 4, planning.Domain(2),
				planning.Domain(3, corev1.LabelTopologyZone, "dc2"))}, Objects: pods("any", 9)},
			want: map[string]int{"[a100]": 5},
		},
		"two types, the same servers": {
			reason: "a server that two types match is counted once",
			plan:   planning.Plan{Types: twins, Objects: slices.Concat(pods("small", 9, ofType("a100")), pods("big", 9, ofType("a100-big")))},
			total:  5,
		},
		"two types, the same servers, one rack": {
			reason: "nor in a rack",
			plan: planning.Plan{Types: twins,
				Objects: slices.Concat(pods("big", 9, ofType("a100-big"), inRack("r1")), pods("small", 9, ofType("a100"), inRack("r1")))},
			total: 3,
		},
		"two dimensions": {
			reason: "pods that ask for servers of both types get those that match both, and no more",
			plan:   planning.Plan{Types: fleet, Objects: pods("both", 9, ofType("h100"), alsoOf("customer-a")), Pools: aware},
			want:   map[string]int{"[h100]": 2},
		},
		"two dimensions, whichever the servers are of": {
			reason: "the labels alone ask for both",
			plan:   planning.Plan{Types: fleet, Objects: pods("both", 9, alsoOf("customer-a"), alsoOf("h100")), Pools: aware}, total: 2,
		},
		"both dimensions and one": {
			reason: "no more than there are: each of three that could be either takes one that matches both, too, until it has its server",
			plan: planning.Plan{Types: fleet, Pools: append(aware, planning.Pool("own", nil)), Objects: slices.Concat(
				pods("tenant", 9, ofType("customer-a")), pods("any", 9, ofType("h100")), pods("both", 9, ofType("h100"), alsoOf("customer-a")))},
			total: 3,
		},
		"two dimensions in a rack": {
			reason: "of the servers that match both, those in the rack",
			plan: planning.Plan{Types: fleet, Objects: pods("both", 9, ofType("h100"), alsoOf("customer-a"), inRack("r2")),
				Pools: aware},
			want: map[string]int{"[h100] [r2]": 1},
		},
		"one dimension and not the other": {
			reason: "servers that are for a tenant are left to it",
			plan: planning.Plan{Types: fleet, Objects: pods("any", 9), Pools: []*karpv1.NodePool{planning.Pool("others",
				requiring(require(v1alpha1.NodeTypeLabelKey, "h100"), karpv1.NodeSelectorRequirementWithMinValues{
					Key: v1alpha1.TypeLabelKey("customer-a"), Operator: corev1.NodeSelectorOpDoesNotExist}))}},
			want: map[string]int{"[h100]": 3},
		},
		"a pool of two dimensions": {
			reason: "the NodePool asks for both",
			plan: planning.Plan{Types: fleet, Objects: pods("any", 9), Pools: []*karpv1.NodePool{planning.Pool("both",
				requiring(require(v1alpha1.NodeTypeLabelKey, "h100"), require(v1alpha1.TypeLabelKey("customer-a"), "true")))}},
			want: map[string]int{"[h100]": 2},
		},
		"no server matches both": {
			reason: "whatever is free of each",
			plan: planning.Plan{Types: fleet, Objects: pods("any", 9), Pools: []*karpv1.NodePool{planning.Pool("both",
				requiring(require(v1alpha1.NodeTypeLabelKey, "a100"), require(v1alpha1.TypeLabelKey("customer-a"), "true")))}},
			want: map[string]int{},
		},
		"no server matches two types": {
			reason: "a NodePool that asks for it gets none, although no type says anything about the label",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9), Pools: []*karpv1.NodePool{planning.Pool("both",
				requiring(require(v1alpha1.TypeLabelKey("customer-a"), "true")))}},
			want: map[string]int{},
		},
		"on-demand, for this NodePool": {
			reason: "as many NodeClaims as there are pods: nothing is counted, and the manager refuses the rest",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9), Pools: []*karpv1.NodePool{planning.Pool("cloud",
				requiring(require(karpv1.CapacityTypeLabelKey, "on-demand", "spot")))}},
			want: map[string]int{"[a100]": 9},
		},
		"on-demand, for another NodePool": {
			reason: "the servers of this one are counted as before",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9), Pools: []*karpv1.NodePool{
				planning.Pool("cloud", func(pool *karpv1.NodePool) {
					requiring(require(karpv1.CapacityTypeLabelKey, "on-demand"))(pool)
					pool.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "not-for-these", Effect: corev1.TaintEffectNoSchedule}}
				}), planning.Pool("own", nil)}},
			want: map[string]int{"[a100]": 5},
		},
		"a full rack, on-demand for this NodePool": {
			reason: "a place without a free server is not asked for",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("r3", 9, inRack("r3")), Pools: []*karpv1.NodePool{
				planning.Pool("cloud", requiring(require(karpv1.CapacityTypeLabelKey, "on-demand")))}},
			want: map[string]int{},
		},
		"both capacity types": {
			reason: "a NodePool that allows what servers are anyway has them counted",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9), Pools: []*karpv1.NodePool{
				planning.Pool("both", requiring(require(karpv1.CapacityTypeLabelKey, "on-demand", "reserved")))}},
			want: map[string]int{"[a100]": 5},
		},
		"spot": {
			reason: "there are no such servers",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9), Pools: []*karpv1.NodePool{
				planning.Pool("spot", requiring(require(karpv1.CapacityTypeLabelKey, "spot")))}},
			want: map[string]int{},
		},
		"not in a rack": {
			reason: "a free server in a rack that is not wanted is none",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{planning.NodeType("a100", 4, planning.Domain(3, "rack", "r1"),
				planning.Domain(0, "rack", "r2"))}, Objects: pods("elsewhere", 9, func(pod *corev1.Pod) {
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
				pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "rack",
						Operator: corev1.NodeSelectorOpNotIn, Values: []string{"r1"}}}}},
				}
			})},
			want: map[string]int{},
		},
		"spread over racks": {
			reason: "evenly over those that have free servers; a full one where nothing runs does not block",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("spread", 4, func(pod *corev1.Pod) {
				pod.Labels = map[string]string{"app": "spread"}
				pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
					TopologyKey: "rack", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "spread"}},
				}}
			})},
			want: map[string]int{"[a100] [r1]": 2, "[a100] [r2]": 2},
		},
		"spread by default": {
			reason: "no more in a rack than it has, although there are more servers outside of racks",
			plan: planning.Plan{
				Types: []*v1alpha1.NodeType{planning.NodeType("a100", 4, planning.Domain(1, "rack", "r1"), planning.Domain(1, "rack", "r2"),
					planning.Domain(2))},
				Objects: append(pods("spread", 4, func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": "spread"} }),
					&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spread"},
						Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "spread"}}}),
				Spread: []corev1.TopologySpreadConstraint{{TopologyKey: "rack", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule}},
			},
			want: map[string]int{"[a100] [r1]": 1, "[a100] [r2]": 1},
		},
		"a limit of nodes": {
			reason: "core itself plans no more than limits.nodes in a burst",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9),
				Pools: []*karpv1.NodePool{planning.Pool("few", func(pool *karpv1.NodePool) {
					pool.Spec.Limits = karpv1.Limits{v1alpha1.ResourceNodes: resource.MustParse("2")}
				})}},
			want: map[string]int{"[a100]": 2},
		},
		"a limit of nodes, on demand": {
			reason: "as above, where nothing is reserved",
			plan: planning.Plan{
				Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9),
				Pools: []*karpv1.NodePool{planning.Pool("few", func(pool *karpv1.NodePool) {
					requiring(require(karpv1.CapacityTypeLabelKey, "on-demand"))(pool)
					pool.Spec.Limits = karpv1.Limits{v1alpha1.ResourceNodes: resource.MustParse("2")}
				})},
			},
			want: map[string]int{"[a100]": 2},
		},
		"a quota": {
			reason: "what the tenant may have is all that there is",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9),
				Quota: quota.Rest{Quota: &v1alpha1.Quota{Servers: &two}}},
			want: map[string]int{"[a100]": 2},
		},
		"a quota of the type": {
			reason: "as above",
			plan:   planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9), Quota: ofTypes("a100", 2)},
			want:   map[string]int{"[a100]": 2},
		},
		"a quota of the type, several NodePools": {
			reason: "they draw from one reservation",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Quota: ofTypes("a100", 2), Pools: []*karpv1.NodePool{
				planning.Pool("one", taintedFor("one")), planning.Pool("two", taintedFor("two"))},
				Objects: slices.Concat(pods("one", 9, tolerating("one")), pods("two", 9, tolerating("two")))},
			total: 2,
		},
		"a quota of the type, in several racks": {
			reason: "what is left is counted over all racks that have as many, whether or not a pod selects one",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks}, Quota: ofTypes("a100", 2),
				Objects: slices.Concat(pods("r1", 9, inRack("r1")), pods("r2", 9, inRack("r2")), pods("any", 9))},
			total: 2,
		},
		"a quota of the type that is reached": {
			reason: "nothing of it is planned",
			plan:   planning.Plan{Types: []*v1alpha1.NodeType{racks}, Objects: pods("any", 9), Quota: ofTypes("a100", 0)},
			want:   map[string]int{},
		},
		"a quota of one of two types": {
			reason: "the other has no bound",
			plan: planning.Plan{Types: []*v1alpha1.NodeType{racks, planning.NodeType("h100", 4, planning.Domain(3))},
				Objects: slices.Concat(pods("a100", 9, ofType("a100")), pods("h100", 9, ofType("h100"))), Quota: ofTypes("a100",
					2)},
			want: map[string]int{"[a100]": 2, "[h100]": 3},
		},
		"a quota of one of two types with the same servers": {
			reason: "it is no bound on the other",
			plan:   planning.Plan{Types: twins, Objects: pods("big", 9, ofType("a100-big")), Quota: ofTypes("a100", 1)},
			want:   map[string]int{"[a100-big]": 5},
		},
		"a quota that is reached of one of two types with the same servers": {
			reason: "nor is it then",
			plan:   planning.Plan{Types: twins, Objects: pods("big", 9, ofType("a100-big")), Quota: ofTypes("a100", 0)},
			want:   map[string]int{"[a100-big]": 5},
		},
		"a quota of GPUs that only one of two types with the same servers counts in": {
			reason: "it is no bound on the other",
			plan: planning.Plan{Types: twins, Objects: pods("big", 9, ofType("a100-big")), Quota: quota.Rest{
				Quota:        &v1alpha1.Quota{GPUs: new(int64)},
				Accelerators: func(nodeType string) int64 { return map[string]int64{"a100": 4}[nodeType] }}},
			want: map[string]int{"[a100-big]": 5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := planned(t, tc.plan)
			if tc.total > 0 {
				sum := 0
				for _, count := range got {
					sum += count
				}
				if sum != tc.total {
					t.Errorf("%d NodeClaims, want %d: %s: %v", sum, tc.total, tc.reason, got)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestEphemeralStorageIsPlanned: core takes a resource that an instance type does not have for 0. One DaemonSet that asks for a
// byte of disk stopped all provisioning of its tenant.
func TestEphemeralStorageIsPlanned(t *testing.T) {
	daemonSet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "log-shipper", UID: "log-shipper"}}
	daemonSet.Spec.Template.Labels = map[string]string{"app": "log-shipper"}
	daemonSet.Spec.Selector = &metav1.LabelSelector{MatchLabels: daemonSet.Spec.Template.Labels}
	daemonSet.Spec.Template.Spec = planning.Pod("log-shipper", []string{"cpu", "100m", "ephemeral-storage", "10Mi"}).Spec
	daemonSet.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	inspected := planning.NodeType("cpu", 0, planning.Domain(5))
	inspected.Status.EphemeralStorage = ptr.To(resource.MustParse("400Gi"))
	for name, tc := range map[string]struct {
		reason   string
		nodeType *v1alpha1.NodeType
		objects  []client.Object
		want     int
	}{
		"Pod": {"every server has some disk", planning.NodeType("cpu", 0, planning.Domain(5)),
			[]client.Object{planning.Pod("p", []string{"cpu", "1", "ephemeral-storage", "1Gi"})}, 1},
		"DaemonSet": {"its pods are on every node that core plans", planning.NodeType("cpu", 0, planning.Domain(5)),
			[]client.Object{planning.Pod("p", []string{"cpu", "1"}), daemonSet}, 1},
		"Inspected": {"what inspection has found", inspected,
			[]client.Object{planning.Pod("p", []string{"cpu", "1", "ephemeral-storage", "300Gi"})}, 1},
		"TooMuch": {"and not more", inspected,
			[]client.Object{planning.Pod("p", []string{"cpu", "1", "ephemeral-storage", "401Gi"})}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			results := planning.Plan{Types: []*v1alpha1.NodeType{tc.nodeType}, Objects: tc.objects}.Solve(t)
			if got := len(results.NewNodeClaims); got != tc.want {
				t.Errorf("%s: %d NodeClaims, want %d: %v", tc.reason, got, tc.want, results.PodErrors)
			}
		})
	}
}

// TestOneServerForOnePod: core counts with the resources of a node that is there. If that has less than was planned, a pod in
// the gap fits every new node in the plan and none in the cluster, and servers are launched for it without end.
func TestOneServerForOnePod(t *testing.T) {
	class := func(args v1alpha1.KubeletArgs) *v1alpha1.MetalNodeClass {
		return &v1alpha1.MetalNodeClass{Spec: v1alpha1.MetalNodeClassSpec{KubeletArgs: args}}
	}
	slots := planning.NodeType("cpu", 0, planning.Domain(9)) // 64 cpus, 512Gi
	huge := planning.NodeType("cpu", 0, planning.Domain(9))
	huge.Spec.Resources["hugepages-1Gi"] = resource.MustParse("64Gi")
	for name, tc := range map[string]struct {
		reason   string
		nodeType *v1alpha1.NodeType
		class    *v1alpha1.MetalNodeClass
		memory   string
		want     int
	}{
		"Fits":           {"the control", slots, nil, "480Gi", 1},
		"Gap":            {"firmware and kernel keep 2 % of the slots", slots, nil, "505Gi", 0},
		"Whole":          {"no pod gets what the kubelet evicts for", slots, nil, "512Gi", 0},
		"HugePages":      {"they are not there for pods that ask for memory", huge, nil, "450Gi", 0},
		"SystemReserved": {"what the class sets aside", slots, class(v1alpha1.KubeletArgs{"system-reserved": "memory=30Gi"}), "480Gi", 0},
		"Eviction": {"where the class has pods evicted", slots, class(v1alpha1.KubeletArgs{"eviction-hard": "memory.available<10%"}), "480Gi",
			0},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{planning.Pod("big", []string{"cpu", "1", "memory", tc.memory})}
			launched := 0
			for range 4 {
				plan := planning.Plan{Types: []*v1alpha1.NodeType{tc.nodeType}, Class: tc.class, Objects: objects}
				claims := len(plan.Solve(t).NewNodeClaims)
				if claims == 0 {
					break
				}
				launched += claims
				objects = append(objects, initialized(fmt.Sprintf("node-%d", launched), tc.nodeType, tc.class))
			}
			if launched != tc.want {
				t.Errorf("%s: %d servers were launched for one pod, want %d", tc.reason, launched, tc.want)
			}
		})
	}
}

// TestOwnNodesBoundThePlan: a tenant's image sets memory aside that nobody else knows of. Once the tenant has seen a node, a pod that
// does not fit it is planned for no server of the type, and not for one after the other.
func TestOwnNodesBoundThePlan(t *testing.T) {
	nodeType := planning.NodeType("cpu", 0, planning.Domain(9))
	nodeType.Spec.Resources["memory"] = resource.MustParse("768Gi")
	class := &v1alpha1.MetalNodeClass{}
	class.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "huge-pages"}
	class.Spec.KubeletArgs = v1alpha1.KubeletArgs{"system-reserved": "memory=10Gi"}
	other := class.DeepCopy()
	other.Spec.Properties[v1alpha1.PropertyOSImage] = "plain"
	seen := env.JoinedMachine("cpu", class, "memory", "360Gi")
	for name, tc := range map[string]struct {
		reason   string
		class    *v1alpha1.MetalNodeClass
		machines []*v1alpha1.Machine
		memory   string
		want     int
	}{
		"Before":     {"the type says 768Gi", class, nil, "500Gi", 1},
		"After":      {"no node has it", class, []*v1alpha1.Machine{seen}, "500Gi", 0},
		"Smaller":    {"a node has that", class, []*v1alpha1.Machine{seen}, "349Gi", 1},
		"Reserved":   {"what the class sets aside is not in the node's size", class, []*v1alpha1.Machine{seen}, "350Gi", 0},
		"OtherImage": {"the nodes of another image are other nodes", other, []*v1alpha1.Machine{seen}, "500Gi", 1},
	} {
		t.Run(name, func(t *testing.T) {
			results := planning.Plan{Types: []*v1alpha1.NodeType{nodeType}, Class: tc.class, Machines: tc.machines,
				Objects: []client.Object{planning.Pod("p", []string{"memory", tc.memory})}}.Solve(t)
			if got := len(results.NewNodeClaims); got != tc.want {
				t.Errorf("%s: %d NodeClaims, want %d: %v", tc.reason, got, tc.want, results.PodErrors)
			}
		})
	}
}

// initialized is a node of the type as a kubelet reports it.
func initialized(name string, nodeType *v1alpha1.NodeType, class *v1alpha1.MetalNodeClass) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
		karpv1.NodePoolLabelKey: planning.PoolName, karpv1.NodeInitializedLabelKey: "true", karpv1.NodeRegisteredLabelKey: "true",
		corev1.LabelInstanceTypeStable: nodeType.Name, v1alpha1.NodeTypeLabelKey: nodeType.Name, corev1.LabelTopologyZone: "dc1",
		corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeReserved,
	}}}
	node.Spec.ProviderID = "metal3://metal3/" + name + "/" + name
	machine := corev1.ResourceList(nodeType.Spec.Resources).DeepCopy()
	memory := machine[corev1.ResourceMemory]
	memory.Sub(*resource.NewQuantity(memory.Value()/50, resource.BinarySI))
	machine[corev1.ResourceMemory] = memory
	args := map[string]string{}
	if class != nil {
		args = class.Spec.KubeletArgs.Strings()
	}
	node.Status.Capacity, node.Status.Allocatable = kubelet.Resources(machine, args)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

// TestPodsOfTheClass: with max-pods 200, 150 pods need one server; with 50 they need three, and at once.
func TestPodsOfTheClass(t *testing.T) {
	var pods []client.Object
	for i := range 150 {
		pods = append(pods, planning.Pod(fmt.Sprintf("p-%03d", i), []string{"cpu", "10m"}))
	}
	for maxPods, want := range map[v1alpha1.KubeletArg]int{"200": 1, "50": 3, "": 2} {
		class := &v1alpha1.MetalNodeClass{}
		if maxPods != "" {
			class.Spec.KubeletArgs = v1alpha1.KubeletArgs{"max-pods": maxPods}
		}
		plan := planning.Plan{Types: []*v1alpha1.NodeType{planning.NodeType("cpu", 0, planning.Domain(9))}, Class: class, Objects: pods}
		if got := len(plan.Solve(t).NewNodeClaims); got != want {
			t.Errorf("max-pods %q: %d NodeClaims, want %d", maxPods, got, want)
		}
	}
}
