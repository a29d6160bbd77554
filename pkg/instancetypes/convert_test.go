// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

func TestMain(m *testing.M) {
	if err := Register(topology.Defaults()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func zone(name string, available int32) v1alpha1.ZoneCapacity {
	return v1alpha1.ZoneCapacity{Name: name, Capacity: v1alpha1.Capacity{Total: 2, Available: available}}
}

func nodeType(name string, accelerators int64, zones ...v1alpha1.ZoneCapacity) *v1alpha1.NodeType {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi")}
	if accelerators > 0 {
		resources["nvidia.com/gpu"] = *resource.NewQuantity(accelerators, resource.DecimalSI)
	}
	return &v1alpha1.NodeType{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", ResourceVersion: "1"},
		Spec: v1alpha1.NodeTypeSpec{
			ProviderRef: v1alpha1.NameReference{Name: "metal3"},
			HardwareProfile: v1alpha1.HardwareProfile{
				Resources: resources,
				Overhead:  &v1alpha1.NodeTypeOverhead{KubeReserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			},
		},
		Status: v1alpha1.NodeTypeStatus{
			Cost: 1234, Zones: zones,
			Requirements: []v1alpha1.NodeTypeRequirement{
				{Key: corev1.LabelArchStable, Values: []string{"amd64"}},
				{Key: "rack", Values: []string{"r1", "r2"}},
				{Key: "example.com/team", Values: []string{}},
			},
		},
	}
}

func TestRequirements(t *testing.T) {
	gpu := convert(nodeType("a100", 4, zone("dc1", 2)), []string{"rack", "example.com/fabric"}, DefaultPods, byRack)
	sized := nodeType("h100", 8, zone("dc1", 2))
	sized.Status.Requirements = append(sized.Status.Requirements,
		v1alpha1.NodeTypeRequirement{Key: v1alpha1.InstanceGPUCountLabelKey, Values: []string{"8"}},
		v1alpha1.NodeTypeRequirement{Key: v1alpha1.ReferenceKey(v1alpha1.PropertyOSImage), Values: []string{"ubuntu"}},
		v1alpha1.NodeTypeRequirement{Key: corev1.LabelTopologyRegion, Values: []string{"eu"}})
	h100 := convert(sized, nil, DefaultPods, byRack)
	more := func(value string) scheduling.Requirements {
		return scheduling.NewRequirements(scheduling.NewRequirement(v1alpha1.InstanceGPUCountLabelKey, corev1.NodeSelectorOpGt, value))
	}
	plain := convert(nodeType("cpu", 0, zone("dc1", 2)), nil, DefaultPods, byRack)
	silent := nodeType("shown", 0, zone("dc1", 2))
	silent.Spec.Resources, silent.Status.FoundAccelerators = nil, []string{"gpu-model=a100"}
	shown := convert(silent, nil, DefaultPods, byRack)
	in := func(key string, values ...string) scheduling.Requirements {
		return scheduling.NewRequirements(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...))
	}
	lacks := func(key string) scheduling.Requirements {
		return scheduling.NewRequirements(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
	}
	for name, tc := range map[string]struct {
		reason         string
		offered, wants scheduling.Requirements
		meets          bool
	}{
		"own name": {"it is a label of its nodes", gpu.Requirements, in(v1alpha1.NodeTypeLabelKey, "a100"), true},
		"own name by the alias": {"the reference selects types this way", gpu.Requirements,
			in(v1alpha1.ReferenceKey(v1alpha1.NodeTypeLabelKey), "a100"), true},
		"other name by the alias": {"it is another type", gpu.Requirements,
			in(v1alpha1.ReferenceKey(v1alpha1.NodeTypeLabelKey), "h100"), false},
		"image": {"its manager is of an earlier version, and knows the alias alone", h100.Requirements,
			in(v1alpha1.PropertyOSImage, "ubuntu"), true},
		"other name":               {"it is another type", gpu.Requirements, in(corev1.LabelInstanceTypeStable, "h100"), false},
		"rack of some server":      {"all values of all servers count", gpu.Requirements, in("rack", "r2"), true},
		"rack of no server":        {"core must not ask for it", gpu.Requirements, in("rack", "r9"), false},
		"topology that it lacks":   {"core lets pass what a type says nothing of", gpu.Requirements, in("nvlink-domain", "n1"), false},
		"property of another type": {"as above", gpu.Requirements, in("example.com/fabric", "ib"), false},
		"property with any value":  {"its property is *", gpu.Requirements, in("example.com/team", "ml"), true},
		"no property of any value": {"each node has a value", gpu.Requirements, lacks("example.com/team"), false},
		"more GPUs":                {"it has eight", h100.Requirements, more("4"), true},
		"still more GPUs":          {"it has eight", h100.Requirements, more("8"), false},
		"GPUs of unknown number":   {"its manager is of an earlier version", gpu.Requirements, more("0"), false},
		"own region":               {"a property or a label of its hosts", h100.Requirements, in(corev1.LabelTopologyRegion, "eu"), true},
		"region":                   {"as above, for what Kubernetes knows", gpu.Requirements, in(corev1.LabelTopologyRegion, "eu"), false},
		"pool": {"every claim has one, and types know none", gpu.Requirements, in(karpv1.NodePoolLabelKey, "gpu"),
			true},
		"os":                            {"all servers run Linux", gpu.Requirements, in(corev1.LabelOSStable, "linux"), true},
		"architecture":                  {"from the hosts", gpu.Requirements, in(corev1.LabelArchStable, "arm64"), false},
		"reservation":                   {"core writes it into claims", gpu.Requirements, in(v1alpha1.ReservationIDLabelKey, "a100"), true},
		"accelerators, not to be had":   {"this keeps pods off that ask for none", gpu.Requirements, lacks(v1alpha1.AcceleratedLabelKey), false},
		"accelerators by a label":       {"they would be of no use to such pods", shown.Requirements, lacks(v1alpha1.AcceleratedLabelKey), false},
		"no accelerators, as it should": {"plain types stay", plain.Requirements, lacks(v1alpha1.AcceleratedLabelKey), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.offered.Intersects(tc.wants) == nil; got != tc.meets {
				t.Errorf("meets %s: %v, want %v: %s", tc.wants, got, tc.meets, tc.reason)
			}
		})
	}
	if got := gpu.Allocatable()[corev1.ResourceCPU]; got.Value() != 63 {
		t.Errorf("allocatable cpu %s, want 63", got.String())
	}
	if got := gpu.Capacity[corev1.ResourcePods]; got.Value() != DefaultPods {
		t.Errorf("capacity for pods %s, want %d", got.String(), DefaultPods)
	}
}

func TestReservationIDIsALabel(t *testing.T) {
	long := strings.Repeat("gpu-server.", 20) + "x"
	ids := []string{
		reservationID(long), reservationID("a100"),
		poolID(long, ""), poolID(long, "rack=r1,"), poolID("a100", ""), poolID("a100", "rack=r1,"),
		sharedPoolID([]string{"a100", long}, ""), sharedPoolID([]string{"a100", "h100"}, ""), sharedPoolID([]string{"a100", "h100"}, "rack=r1,"),
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if problems := validation.IsValidLabelValue(id); len(problems) > 0 {
			t.Errorf("%q: %v", id, problems)
		}
		if seen[id] {
			t.Errorf("two pools share the reservation %q", id)
		}
		seen[id] = true
	}
}

func TestKnown(t *testing.T) {
	fresh := nodeType("new", 0)
	fresh.Status = v1alpha1.NodeTypeStatus{}
	spoiled := nodeType("spoiled", 0)
	spoiled.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse}}
	if Known(fresh) {
		t.Error("a type without a status has no cost and no servers yet")
	}
	if !Known(spoiled) {
		t.Error("a type that turned bad must stay, or its nodes are replaced")
	}
}

func TestRegisterNamesWrongLabels(t *testing.T) {
	err := Register([]string{"rack", "gpu model", "a/b/c"})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", "gpu model")) || !strings.Contains(err.Error(), "a/b/c") {
		t.Errorf("got %v", err)
	}
}
