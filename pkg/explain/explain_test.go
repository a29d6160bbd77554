// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func nodeType(name string, resources corev1.ResourceList, total, claimed, available, inError int32, labels ...string) v1alpha1.NodeType {
	capacity := v1alpha1.Capacity{Total: total, Claimed: claimed, Available: available, Error: inError}
	nodeType := v1alpha1.NodeType{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: env.MadeBy("metal")},
		Spec: v1alpha1.NodeTypeSpec{
			ProviderRef:     v1alpha1.NameReference{Name: "metal"},
			HardwareProfile: v1alpha1.HardwareProfile{Resources: resources},
		},
		Status: v1alpha1.NodeTypeStatus{
			Capacity: capacity,
			Zones:    []v1alpha1.ZoneCapacity{{Name: "global", Capacity: capacity}},
		},
	}
	for i := 0; i+1 < len(labels); i += 2 {
		nodeType.Status.Requirements = append(nodeType.Status.Requirements,
			v1alpha1.NodeTypeRequirement{Key: labels[i], Values: strings.Split(labels[i+1], ",")})
	}
	return nodeType
}

func withChange(nodeType v1alpha1.NodeType, change func(*v1alpha1.NodeType)) v1alpha1.NodeType {
	change(&nodeType)
	return nodeType
}

func pod(requests corev1.ResourceList, changes ...func(*corev1.PodSpec)) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: requests},
	}}}}
	for _, change := range changes {
		change(&pod.Spec)
	}
	return pod
}

func selecting(key, value string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{key: value} }
}

func affine(terms ...corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
}

func term(expressions ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: expressions}
}

// inRacks puts ten claimed servers into r1 and two free ones into r2.
func inRacks(nodeType *v1alpha1.NodeType) {
	nodeType.Status.Domains = []v1alpha1.DomainCapacity{
		{Zone: "global", Labels: map[string]string{"rack": "r1"}, Capacity: v1alpha1.Capacity{Total: 10, Claimed: 10}},
		{Zone: "global", Labels: map[string]string{"rack": "r2"}, Capacity: v1alpha1.Capacity{Total: 2, Available: 2}},
	}
}

// fleetOf has a NodePool for each class, or one without a class.
func fleetOf(allowed *[]string, classes []v1alpha1.KubeletArgs, types ...v1alpha1.NodeType) Fleet {
	fleet := Fleet{Tenant: &v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{AllowedNodeTypes: allowed}}, NodeTypes: types}
	for i := range max(1, len(classes)) {
		name := fmt.Sprint("class-", i)
		fleet.NodePools = append(fleet.NodePools, *planning.Pool(name, func(pool *karpv1.NodePool) {
			pool.Spec.Template.Spec.NodeClassRef.Name = name
		}))
		if i < len(classes) {
			fleet.NodeClasses = append(fleet.NodeClasses, v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: v1alpha1.MetalNodeClassSpec{KubeletArgs: classes[i]}})
		}
	}
	return fleet
}

func TestExplain(t *testing.T) {
	h100 := func(total, claimed, available, inError int32, labels ...string) v1alpha1.NodeType {
		return nodeType("h100-8x", env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8"), total, claimed, available, inError,
			labels...)
	}
	a100 := func(total, claimed, available, inError int32, labels ...string) v1alpha1.NodeType {
		return nodeType("a100-4x", env.Resources("cpu", "64", "memory", "256Gi", "nvidia.com/gpu", "4"), total, claimed, available, inError,
			labels...)
	}
	cpu := func(total, claimed, available, inError int32, labels ...string) v1alpha1.NodeType {
		return nodeType("cpu", env.Resources("cpu", "32", "memory", "128Gi"), total, claimed, available, inError, labels...)
	}
	eight := env.Resources("nvidia.com/gpu", "8")

	for name, tc := range map[string]struct {
		reason   string
		pod      *corev1.Pod
		types    []v1alpha1.NodeType
		allowed  *[]string
		kubelets []v1alpha1.KubeletArgs
		want     Explanation
	}{
		"Served": {
			reason: "Karpenter is at work, and there is nothing to complain about",
			pod:    pod(eight), types: []v1alpha1.NodeType{cpu(1, 0, 1, 0), h100(2, 1, 1, 0)},
		},
		"Exhausted": {
			reason: "the type that fits comes first, with its counts; the others say what they lack",
			pod:    pod(eight), types: []v1alpha1.NodeType{a100(2, 0, 2, 0), cpu(2, 0, 2, 0), h100(2, 2, 0, 0)},
			want: Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 2 servers match, 2 claimed, 0 in error; " +
				"a100-4x: too small: asks nvidia.com/gpu 8, has 4; cpu: has no nvidia.com/gpu"},
		},
		"InErrorAndNotReady": {
			reason: "servers that are neither claimed nor in error are accounted for",
			pod:    pod(eight), types: []v1alpha1.NodeType{h100(5, 2, 0, 1)},
			want: Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 5 servers match, 2 claimed, 1 in error, 2 not ready"},
		},
		"OneServer": {
			reason: "one server is not many",
			pod:    pod(eight), types: []v1alpha1.NodeType{h100(1, 1, 0, 0)},
			want: Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 1 server matches, 1 claimed, 0 in error"},
		},
		"NoServers": {
			reason: "a type without any server says that",
			pod:    pod(eight), types: []v1alpha1.NodeType{h100(0, 0, 0, 0)},
			want: Explanation{ReasonNoServerAvailable, "no server available: h100-8x: no server matches"},
		},
		"Limited": {
			reason: "the free server is of no use, because of maxCapacity",
			pod:    pod(eight), types: []v1alpha1.NodeType{withChange(h100(3, 2, 0, 0), func(nodeType *v1alpha1.NodeType) {
				limit := int32(2)
				nodeType.Spec.MaxCapacity = &limit
				nodeType.Status.Zones[0].Available = 1
			})},
			want: Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 3 servers match, 2 claimed, 0 in error, limited to 2"},
		},
		"CPUOnlyAmongGPUs": {
			reason: "a pod without GPUs gets no GPU server, even when only those are free",
			pod:    pod(env.Resources("cpu", "1")), types: []v1alpha1.NodeType{h100(2, 0, 2, 0), cpu(2, 2, 0, 0)},
			want: Explanation{ReasonNoServerAvailable, "no server available: cpu: 2 servers match, 2 claimed, 0 in error; " +
				"h100-8x: has accelerators (nvidia.com/gpu) and the pod requests none of them"},
		},
		"OnlyGPUs": {
			reason: "the same when there is no other type at all",
			pod:    pod(env.Resources("cpu", "1")), types: []v1alpha1.NodeType{h100(2, 0, 2, 0)},
			want: Explanation{ReasonNoNodeTypeFits, "no NodeType fits: h100-8x: has accelerators (nvidia.com/gpu) and the pod requests none of " +
				"them"},
		},
		"AskingForNothing": {
			reason: "a pod without requests fits a plain server",
			pod:    pod(nil), types: []v1alpha1.NodeType{cpu(1, 0, 1, 0)},
		},
		"ZeroGPUs": {
			reason: "asking for zero is not asking, of a server with GPUs or without",
			pod:    pod(env.Resources("nvidia.com/gpu", "0")), types: []v1alpha1.NodeType{cpu(1, 0, 1, 0)},
		},
		"Overhead": {
			reason: "what the kubelet reserves is not there for pods",
			pod:    pod(env.Resources("cpu", "32", "memory", "128Gi")),
			types: []v1alpha1.NodeType{withChange(cpu(1, 0, 1, 0), func(nodeType *v1alpha1.NodeType) {
				nodeType.Spec.Overhead = &v1alpha1.NodeTypeOverhead{KubeReserved: env.Resources("cpu", "2", "memory", "4Gi")}
			})},
			want: Explanation{ReasonNoNodeTypeFits, "no NodeType fits: cpu: too small: asks cpu 32, has 30 and asks memory 128Gi, has 126876Mi"},
		},
		"EphemeralStorage": {
			reason: "types need not declare disks",
			pod:    pod(env.Resources("ephemeral-storage", "10Gi")), types: []v1alpha1.NodeType{cpu(1, 0, 1, 0)},
		},
		"EphemeralStorageTooBig": {
			reason: "Karpenter plans with the disk in the status, and makes no NodeClaim for a pod that asks for more",
			pod:    pod(env.Resources("ephemeral-storage", "110Gi")),
			types: []v1alpha1.NodeType{withChange(cpu(1, 0, 1, 0), func(nodeType *v1alpha1.NodeType) {
				nodeType.Status.EphemeralStorage = ptr.To(resource.MustParse("100Gi"))
			})},
			want: Explanation{ReasonNoNodeTypeFits, "no NodeType fits: cpu: too small: asks ephemeral-storage 110Gi, has 92159Mi"},
		},
		"Kubelets": {
			reason: "with one of the tenant's classes the pod fits", pod: pod(env.Resources("memory", "110Gi")),
			types:    []v1alpha1.NodeType{cpu(1, 0, 1, 0)},
			kubelets: []v1alpha1.KubeletArgs{{"system-reserved": "memory=20Gi"}, {"max-pods": "5"}},
		},
		"NoKubelet": {
			reason: "with none of them, so Karpenter makes no NodeClaim", pod: pod(env.Resources("memory", "110Gi")),
			types:    []v1alpha1.NodeType{cpu(1, 0, 1, 0)},
			kubelets: []v1alpha1.KubeletArgs{{"system-reserved": "memory=20Gi"}},
			want:     Explanation{ReasonNoNodeTypeFits, "no NodeType fits: cpu: too small: asks memory 110Gi, has 110492Mi"},
		},
		"NotAllowed": {
			reason: "a free server of a type that the tenant may not have is not one for it",
			pod:    pod(eight), types: []v1alpha1.NodeType{h100(2, 0, 2, 0)},
			allowed: &[]string{"a100-4x"},
			want:    Explanation{ReasonNoNodeTypeFits, "no NodeType fits: 1 NodeType is not for this tenant"},
		},
		"NodeSelector": {
			reason: "no server of the type is in that rack",
			pod:    pod(eight, selecting("rack", "a")), types: []v1alpha1.NodeType{h100(2, 0, 2, 0, "rack", "b,c")},
			want: Explanation{ReasonNoNodeTypeFits, "no NodeType fits: h100-8x: does not match nodeSelector/affinity rack In [a]"},
		},
		"NodeSelectorMet": {
			reason: "one of its racks is the one",
			pod:    pod(eight, selecting("rack", "a")), types: []v1alpha1.NodeType{h100(2, 0, 2, 0, "rack", "a,b")},
		},
		"LabelOfAnotherType": {
			reason: "a type without a label that other types have does not match it",
			pod:    pod(env.Resources("cpu", "1"), selecting("rack", "a")),
			types:  []v1alpha1.NodeType{cpu(1, 0, 1, 0), h100(2, 0, 2, 0, "rack", "a")},
			want: Explanation{ReasonNoNodeTypeFits, "no NodeType fits: cpu: does not match nodeSelector/affinity rack In [a]; " +
				"h100-8x: has accelerators (nvidia.com/gpu) and the pod requests none of them"},
		},
		"LabelOfNoType": {
			reason: "NodePools may give any label to their nodes, so a type says nothing about it",
			pod:    pod(eight, selecting("team", "blue")), types: []v1alpha1.NodeType{h100(2, 0, 2, 0)},
		},
		"InstanceType": {
			reason: "types know their own name, and Kubernetes' former name for that label",
			pod:    pod(env.Resources("nvidia.com/gpu", "1"), selecting("beta.kubernetes.io/instance-type", "a100-4x")),
			types:  []v1alpha1.NodeType{h100(2, 0, 2, 0), a100(1, 1, 0, 0)},
			want: Explanation{ReasonNoServerAvailable, "no server available: a100-4x: 1 server matches, 1 claimed, 0 in error; " +
				"h100-8x: does not match nodeSelector/affinity beta.kubernetes.io/instance-type In [a100-4x]"},
		},
		"AnyTermWillDo": {
			reason: "terms are alternatives",
			pod: pod(eight, affine(
				term(corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"z"}}),
				term(corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"z"}}),
			)),
			types: []v1alpha1.NodeType{h100(2, 0, 2, 0, "rack", "a")},
		},
		"NearestTerm": {
			reason: "of several terms that do not match, the one that is nearest says the most",
			pod: pod(eight, affine(
				term(corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"z"}},
					corev1.NodeSelectorRequirement{Key: "nvlink-domain", Operator: corev1.NodeSelectorOpExists}),
				term(corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"d", "c", "b", "a"}}),
			)),
			types: []v1alpha1.NodeType{h100(2, 0, 2, 0, "rack", "a"), a100(1, 0, 1, 0, "nvlink-domain", "1")},
			want: Explanation{ReasonNoNodeTypeFits, "no NodeType fits: h100-8x: does not match nodeSelector/affinity rack " +
				"NotIn [a, b, c and 1 more]; " +
				"a100-4x: too small: asks nvidia.com/gpu 8, has 4"},
		},
		"DoesNotExist": {
			reason: "a type without the label is what is asked for",
			pod: pod(env.Resources("cpu", "1"),
				affine(term(corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpDoesNotExist}))),
			types: []v1alpha1.NodeType{cpu(1, 0, 1, 0), h100(1, 0, 1, 0, "rack", "a")},
		},
		"Zone": {
			reason: "free servers in another zone do not help, and only those of the right one are counted",
			pod:    pod(eight, selecting("topology.kubernetes.io/zone", "east")),
			types: []v1alpha1.NodeType{withChange(h100(3, 1, 2, 0, "topology.kubernetes.io/zone", "east,west"), func(nodeType *v1alpha1.NodeType) {
				nodeType.Status.Zones = []v1alpha1.ZoneCapacity{
					{Name: "east", Capacity: v1alpha1.Capacity{Total: 1, Claimed: 1}},
					{Name: "west", Capacity: v1alpha1.Capacity{Total: 2, Available: 2}},
				}
			})},
			want: Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 1 server matches in east, 1 claimed, 0 in error"},
		},
		"TooSmall": {
			reason: "servers that have less than the type says are not to be had, and not because they are not ready",
			pod:    pod(eight), types: []v1alpha1.NodeType{withChange(h100(3, 1, 0, 0),
				func(nodeType *v1alpha1.NodeType) { nodeType.Status.Capacity.TooSmall = 2 })},
			want: Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 3 servers match, 1 claimed, 0 in error, 2 too small"},
		},
		"FullRack": {
			reason: "free servers in another rack do not help, and only those of the right one are counted",
			pod:    pod(eight, selecting("rack", "r1")), types: []v1alpha1.NodeType{withChange(h100(12, 10, 2, 0, "rack", "r1,r2"), inRacks)},
			want: Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 10 servers match in rack r1, 10 claimed, 0 in error"},
		},
		"FreeRack": {
			reason: "Karpenter is at work",
			pod:    pod(eight, selecting("rack", "r2")), types: []v1alpha1.NodeType{withChange(h100(12, 10, 2, 0, "rack", "r1,r2"), inRacks)},
		},
		"NotInTheFreeRack": {
			reason: "what must not be is a place, too",
			pod: pod(eight, affine(term(corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpNotIn,
				Values: []string{"r2"}}))),
			types: []v1alpha1.NodeType{withChange(h100(12, 10, 2, 0, "rack", "r1,r2"), inRacks)},
			want:  Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 10 servers match in rack r1, 10 claimed, 0 in error"},
		},
		"AnyRack": {
			reason: "without a rack all servers are counted",
			pod:    pod(eight), types: []v1alpha1.NodeType{withChange(h100(10, 10, 0, 0, "rack", "r1"), func(nodeType *v1alpha1.NodeType) {
				nodeType.Status.Domains = []v1alpha1.DomainCapacity{{Zone: "global", Labels: map[string]string{"rack": "r1"},
					Capacity: nodeType.Status.Capacity}}
			})},
			want: Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 10 servers match, 10 claimed, 0 in error"},
		},
		"TopologyLabelOfNoHost": {
			reason: "no host carries the label, and no NodePool can give it: Karpenter takes it for one of the servers' own",
			pod:    pod(eight, selecting("nvlink-domain", "n1")), types: []v1alpha1.NodeType{h100(2, 0, 2, 0, "rack", "r1")},
			want: Explanation{ReasonNoNodeTypeFits, "no NodeType fits: h100-8x: does not match nodeSelector/affinity nvlink-domain In [n1]"},
		},
		"NoTypes": {
			reason: "an empty fleet is said in as many words",
			pod:    pod(eight),
			want:   Explanation{ReasonNoNodeTypeFits, "no NodeType fits: there are no NodeTypes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, fleetOf(tc.allowed, tc.kubelets, tc.types...).unfit(tc.pod)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A pod gets what its NodePools may have, and no event says more than that.
func TestNodePoolsDecide(t *testing.T) {
	eight := env.Resources("nvidia.com/gpu", "8")
	whole := env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")
	poolOf := func(nodeType string) karpv1.NodePool {
		return *planning.Pool(nodeType, func(pool *karpv1.NodePool) {
			pool.Spec.Template.Labels = map[string]string{"team": "vision"}
			pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{requires(v1alpha1.NodeTypeLabelKey, "In", nodeType)}
		})
	}
	limited := poolOf("h100-8x")
	limited.Spec.Limits = karpv1.Limits(env.Resources("nvidia.com/gpu", "4"))
	tainted := poolOf("h100-8x")
	tainted.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
	r1 := poolOf("h100-8x")
	r1.Spec.Template.Spec.Requirements = append(r1.Spec.Template.Spec.Requirements, requires("rack", "In", "r1"))
	types := []v1alpha1.NodeType{nodeType("a100-8x", whole, 2, 2, 0, 0),
		withChange(nodeType("h100-8x", whole, 12, 10, 2, 0, "rack", "r1,r2"), inRacks)}
	for name, tc := range map[string]struct {
		reason string
		pod    *corev1.Pod
		pools  []karpv1.NodePool
		want   Explanation
	}{
		"another pool's servers are free": {"the pod cannot have them", pod(eight, selecting("team", "vision")),
			[]karpv1.NodePool{poolOf("a100-8x")},
			Explanation{ReasonNoServerAvailable, "no server available: a100-8x: 2 servers match, 2 claimed, 0 in error"}},
		"one pool has a free server": {"Karpenter takes it", pod(eight), []karpv1.NodePool{poolOf("a100-8x"), poolOf("h100-8x")}, Explanation{}},
		"rack of the pool": {"servers in other racks are no use", pod(eight), []karpv1.NodePool{r1},
			Explanation{ReasonNoServerAvailable, "no server available: h100-8x: 10 servers match in rack r1, 10 claimed, 0 in error"}},
		"too small for each pool": {"no NodePool would help", pod(env.Resources("nvidia.com/gpu", "16")),
			[]karpv1.NodePool{poolOf("a100-8x")},
			Explanation{ReasonNoNodeTypeFits, "no NodeType fits: a100-8x: too small: asks nvidia.com/gpu 16, has 8; " +
				"h100-8x: too small: asks nvidia.com/gpu 16, has 8"}},
		"limit of the pool": {"Karpenter's own event names it", pod(eight), []karpv1.NodePool{limited}, Explanation{}},
		"taint of the pool": {"Karpenter's own event names it", pod(eight), []karpv1.NodePool{tainted}, Explanation{}},
		"no pool":           {"Karpenter says so", pod(eight), nil, Explanation{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Fleet{NodeTypes: types, NodePools: tc.pools}.unfit(tc.pod)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The API server rejects an event with a longer message.
func TestExplainIsTruncated(t *testing.T) {
	var types []v1alpha1.NodeType
	for i := range 1000 {
		types = append(types, nodeType(fmt.Sprintf("cpu-%03d-%s", i, strings.Repeat("x", i%50)), env.Resources("cpu", "1", "memory", "1Gi"), 1, 0,
			1, 0))
	}
	types = append(types, nodeType("z-the-one", env.Resources("cpu", "32", "memory", "128Gi", "nvidia.com/gpu", "1"), 7, 7, 0, 0))
	got := fleetOf(nil, nil, types...).unfit(pod(env.Resources("nvidia.com/gpu", "1")))
	if len(got.Message) > 1024 || len(got.Message) < 900 {
		t.Errorf("message has %d bytes, want at most 1024 and most of them used", len(got.Message))
	}
	if !strings.HasPrefix(got.Message, "no server available: z-the-one: 7 servers match") {
		t.Errorf("the closest type must come first, got %q", got.Message)
	}
	if !strings.HasSuffix(got.Message, " more types") {
		t.Errorf("types that are left out must be counted, got %q", got.Message)
	}
}

func BenchmarkExplain(b *testing.B) {
	var types []v1alpha1.NodeType
	for i := range 100 {
		types = append(types, nodeType(fmt.Sprintf("type-%03d", i), env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8"), 100,
			100, 0, 0,
			"rack", "a,b,c,d", "topology.kubernetes.io/zone", "global"))
	}
	hungry := pod(env.Resources("nvidia.com/gpu", "8"), selecting("rack", "a"))
	fleet := fleetOf(nil, nil, types...)
	for b.Loop() {
		fleet.unfit(hungry)
	}
}
