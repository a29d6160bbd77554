// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func podsWith(count int, change func(*corev1.PodSpec)) []corev1.Pod {
	pods := make([]corev1.Pod, count)
	for i := range pods {
		if change != nil {
			change(&pods[i].Spec)
		}
	}
	return pods
}

func inRack(racks ...string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) {
		if len(racks) == 1 {
			pod.NodeSelector = map[string]string{"rack": racks[0]}
			return
		}
		pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "rack",
				Operator: corev1.NodeSelectorOpIn, Values: racks}}}},
		}}}
	}
}

func spreadByRack(pod *corev1.PodSpec) {
	pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "rack"}}
}

func inPodGroup(pod *corev1.PodSpec) { pod.SchedulingGroup = &corev1.PodSchedulingGroup{} }

// TestOfferingsForDemand: domains are offered by themselves only if pods could exhaust them.
func TestOfferingsForDemand(t *testing.T) {
	racks := withDomains(rack("r1", 3), rack("r2", 2), rack("r3", 0))
	all := offering{[]string{zoneIs + "dc1"}, poolID("a100", ""), true, 5}
	notByRack := offering{[]string{"!rack", zoneIs + "dc1"}, poolID("a100", ""), true, 5}
	single := func(rack string, free int) offering {
		return offering{[]string{"rack=" + rack, zoneIs + "dc1"}, poolID("a100", "rack="+rack+","), true, free}
	}
	joined := func(racks string, free int) offering {
		return offering{[]string{"rack=" + racks, zoneIs + "dc1"}, poolID("a100", "rack=*,"), true, free}
	}
	for name, tc := range map[string]struct {
		reason string
		pods   []corev1.Pod
		pools  []karpv1.NodePool
		want   []offering
	}{
		"no pods":                {reason: "the label is not used", want: []offering{all}},
		"pods without selection": {reason: "the label is not used", pods: podsWith(9, nil), want: []offering{all}},
		"enough in each rack": {
			reason: "no rack can be exhausted, and no pod needs the offering of all servers",
			pods:   slices.Concat(podsWith(3, inRack("r1")), podsWith(2, inRack("r2"))),
			want:   []offering{joined("r1 r2", 5)},
		},
		"one rack too few": {
			reason: "that rack is counted by itself", pods: slices.Concat(podsWith(3, inRack("r1")), podsWith(3, inRack("r2"))),
			want: []offering{joined("r1", 3), single("r2", 2)},
		},
		"pods for any rack": {
			reason: "they count in every rack", pods: slices.Concat(podsWith(2, inRack("r1")), podsWith(1, nil)),
			want: []offering{notByRack, joined("r1 r2", 5)},
		},
		"two racks": {
			reason: "pods count in each rack that they may be in", pods: podsWith(3, inRack("r1", "r2")),
			want: []offering{joined("r1", 3), single("r2", 2)},
		},
		"spread": {
			reason: "each rack may get any of the pods", pods: podsWith(4, spreadByRack),
			want: []offering{notByRack, single("r1", 3), single("r2", 2)},
		},
		"a PodGroup": {
			reason: "it may have all its pods in one rack", pods: podsWith(4, inPodGroup),
			want: []offering{notByRack, single("r1", 3), single("r2", 2)},
		},
		"a NodePool": {
			reason: "it uses the label for its pods", pods: podsWith(3, nil), pools: []karpv1.NodePool{{Spec: karpv1.NodePoolSpec{
				Template: karpv1.NodeClaimTemplate{ObjectMeta: karpv1.ObjectMeta{Labels: map[string]string{"rack": "r1"}}},
			}}},
			want: []offering{notByRack, joined("r1", 3), single("r2", 2)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := NewCatalog(DefaultPods)
			catalog.Set(racks)
			types := catalog.InstanceTypesFor(NewFilter(nil, nil), NewDemand(tc.pods, tc.pools))
			var got []offering
			for _, o := range types[0].Offerings.Available() {
				got = append(got, describe(o))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDemandOfVolumes: core wants a server where the volumes of a pod are, also if the pod does not name that label.
func TestDemandOfVolumes(t *testing.T) {
	terms := func(key string, values ...string) (terms []corev1.NodeSelectorTerm) {
		for _, value := range values {
			terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}})
		}
		return terms
	}
	for name, tc := range map[string]struct {
		reason string
		terms  []corev1.NodeSelectorTerm
		// gone: there is no PersistentVolume.
		gone bool
		want bool
	}{
		"one rack":       {reason: "the volume is in a rack", terms: terms("rack", "r1"), want: true},
		"one of two":     {reason: "the volume can be had in two racks", terms: terms("rack", "r1", "r2"), want: true},
		"anywhere":       {reason: "the volume is in no rack"},
		"no volume":      {reason: "core plans no server for the pod", terms: terms("rack", "r1"), gone: true},
		"of one machine": {reason: "no offering has the name of a server", terms: terms(corev1.LabelHostname, "s1")},
	} {
		t.Run(name, func(t *testing.T) {
			pod, claim, volume := &podsWith(1, nil)[0], &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
			pod.Name, claim.Name, volume.Name = "train", "data", "disk"
			pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}}
			claim.Spec.VolumeName = volume.Name
			volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: tc.terms}}
			tenant := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithIndex(&corev1.Pod{}, "spec.nodeName",
				env.NodeOfPod).WithObjects(pod, claim)
			if !tc.gone {
				tenant.WithObjects(volume)
			}
			demand, err := ReadDemand((&options.Options{}).ToContext(t.Context()), tenant.Build())
			if err != nil {
				t.Fatal(err)
			}
			if got := demand.uses("rack"); got != tc.want || demand.uses(corev1.LabelHostname) {
				t.Errorf("servers are told apart by their rack: %t, want %t: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestDemandOfDefaultSpread: core spreads pods that have no constraints of their own by those of its options, if a Service or their
// controller says which pods belong together.
func TestDemandOfDefaultSpread(t *testing.T) {
	byRack := []corev1.TopologySpreadConstraint{{TopologyKey: "rack", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule}}
	labels := map[string]string{"app": "train"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	set := func() client.Object { return &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Selector: selector}} }
	for name, tc := range map[string]struct {
		reason string
		spread []corev1.TopologySpreadConstraint
		// owner is the controller of the pod, and other is an object beside it. Both may be nil.
		owner, other client.Object
		own          []corev1.TopologySpreadConstraint
		want         bool
	}{
		"ReplicaSet": {reason: "Deployments have them", spread: byRack, owner: set(), want: true},
		"StatefulSet": {reason: "as core says", spread: byRack,
			owner: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Selector: selector}}, want: true},
		"ReplicationController": {reason: "as core says", spread: byRack,
			owner: &corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Selector: labels}}, want: true},
		"Service": {reason: "pods without a controller may have one", spread: byRack,
			other: &corev1.Service{Spec: corev1.ServiceSpec{Selector: labels}}, want: true},
		"Neither": {reason: "nothing says which pods belong together", spread: byRack},
		"OwnConstraints": {reason: "they are in place of all defaults", spread: byRack, owner: set(),
			own: []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelTopologyZone}}},
		"NoDefault": {reason: "core has none", owner: set()},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &podsWith(1, nil)[0]
			pod.Namespace, pod.Name, pod.Labels, pod.Spec.TopologySpreadConstraints = "default", "train", labels, tc.own
			tenant := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithIndex(&corev1.Pod{}, "spec.nodeName", env.NodeOfPod)
			for _, object := range []client.Object{tc.owner, tc.other} {
				if object != nil {
					object.SetNamespace("default")
					object.SetName("train")
					object.SetUID("train")
					tenant.WithObjects(object)
				}
			}
			if tc.owner != nil {
				if err := controllerutil.SetControllerReference(tc.owner, pod, scheme.Scheme); err != nil {
					t.Fatal(err)
				}
			}
			ctx := (&options.Options{SchedulerConfig: &options.SchedulerConfiguration{
				PodTopologySpread: &options.PodTopologySpreadConfig{DefaultConstraints: tc.spread}}}).ToContext(t.Context())
			demand, err := ReadDemand(ctx, tenant.WithObjects(pod).Build())
			if err != nil {
				t.Fatal(err)
			}
			if got := demand.uses("rack"); got != tc.want {
				t.Errorf("servers are told apart by their rack: %t, want %t: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestJoinedDomainsAreReal: joining domains must not offer a combination of labels that no server has.
func TestJoinedDomainsAreReal(t *testing.T) {
	domain := func(rack, row string) v1alpha1.DomainCapacity {
		return v1alpha1.DomainCapacity{Zone: "dc1", Labels: map[string]string{"rack": rack, "row": row},
			Capacity: v1alpha1.Capacity{Total: 9, Available: 9}}
	}
	catalog := NewCatalog(DefaultPods)
	catalog.Set(withDomains(domain("r1", "a"), domain("r2", "a"), domain("r3", "b")))
	demand := NewDemand(podsWith(2, func(pod *corev1.PodSpec) { pod.NodeSelector = map[string]string{"rack": "r1", "row": "a"} }), nil)
	for _, o := range catalog.InstanceTypesFor(NewFilter(nil, nil), demand)[0].Offerings.Available() {
		if o.Requirements.Get("rack").Has("r3") && o.Requirements.Get("row").Has("a") {
			t.Errorf("%v is offered, and rack r3 is in row b", describe(o))
		}
	}
}

// TestTypesAreKeptWhileDemandStaysTheSame, and those that it does not concern always.
func TestTypesAreKeptWhileDemandStaysTheSame(t *testing.T) {
	catalog, everything := NewCatalog(DefaultPods), NewFilter(nil, nil)
	catalog.Set(withDomains(rack("r1", 3), rack("r2", 2)))
	catalog.Set(nodeType("plain", 0, zone("dc1", 2)))
	first := catalog.InstanceTypesFor(everything, NewDemand(podsWith(3, inRack("r1")), nil))
	same := catalog.InstanceTypesFor(everything, NewDemand(podsWith(3, inRack("r1")), nil))
	other := catalog.InstanceTypesFor(everything, NewDemand(podsWith(4, inRack("r1")), nil))
	if first[0] != same[0] || first[0] == other[0] {
		t.Errorf("same demand, same type: %v; other demand, other type: %v", first[0] == same[0], first[0] != other[0])
	}
	if first[1] != other[1] || first[1] != catalog.InstanceTypes(everything)[1] {
		t.Error("a type without racks was converted again")
	}
}

// TestRemoveReservationIDs: the requirements of pods stay.
func TestRemoveReservationIDs(t *testing.T) {
	byRack := karpv1.NodeSelectorRequirementWithMinValues{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"r1"}}
	nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
	nodeClaim.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: v1alpha1.ReservationIDLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"a100.1a2b3c4d"}}, byRack,
	}
	RemoveReservationIDs(nodeClaim)
	if diff := cmp.Diff([]karpv1.NodeSelectorRequirementWithMinValues{byRack}, nodeClaim.Spec.Requirements); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
