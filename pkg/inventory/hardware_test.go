// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestLacks(t *testing.T) {
	const gib = 1 << 10 // in MiB
	h100 := list("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")
	found := func(cpus, memory int, disks ...bmov1alpha1.Capacity) *bmov1alpha1.HardwareDetails {
		details := &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Count: cpus}, RAMMebibytes: memory}
		for _, size := range disks {
			details.Storage = append(details.Storage, bmov1alpha1.Storage{SizeBytes: size})
		}
		return details
	}
	for name, tc := range map[string]struct {
		reason    string
		found     *bmov1alpha1.HardwareDetails
		resources corev1.ResourceList
		want      string
	}{
		"Equal":        {"what the type was written from", found(96, 768*gib), h100, ""},
		"Bigger":       {"more does no harm", found(128, 1024*gib), h100, ""},
		"NotInspected": {"without inspection the type is trusted", nil, h100, ""},
		"NothingFound": {"an inspection that finds no numbers says nothing", found(0, 0), h100, ""},
		"FewerCPUs":    {"pods that need 96 would wait for ever on their node", found(64, 768*gib), h100, "cpu 64 of 96"},
		"OneCPULess":   {"nothing keeps a thread to itself", found(95, 768*gib), h100, "cpu 95 of 96"},
		"PartOfACPU":   {"a type may say less than a whole one", found(95, 768*gib), list("cpu", "94500m", "memory", "768Gi"), ""},
		"PartOfACPUMore": {"quantities are compared exactly", found(95, 768*gib), list("cpu", "95001m", "memory", "768Gi"),
			"cpu 95 of 95001m"},
		"LessMemory":          {"half of the slots are empty", found(96, 384*gib), h100, "memory 384Gi of 768Gi"},
		"AsTheKernelHasIt":    {"a node of a 768 GiB server has 755 GiB: page tables and firmware take the rest", found(96, 755*gib), h100, ""},
		"AtTheLimit":          {"3 % less is as much as may be missing: 744.96 GiB are left", found(96, 762840), h100, ""},
		"BelowTheLimit":       {"a MiB less is too little", found(96, 762839), h100, "memory 762839Mi of 768Gi"},
		"OneOf32Modules":      {"a module that has failed is no rounding", found(96, 31*24*gib), h100, "memory 744Gi of 768Gi"},
		"SmallServer":         {"of a small server, firmware takes more than 3 %", found(4, 15*gib), list("cpu", "4", "memory", "16Gi"), ""},
		"SmallServerTooSmall": {"but not more than 1 GiB", found(4, 15*gib-1), list("cpu", "4", "memory", "16Gi"), "memory 15359Mi of 16Gi"},
		"DecimalMemory":       {"a type may be written in GB", found(96, 768*gib), list("cpu", "96", "memory", "824G"), ""},
		"DecimalMemoryMore": {"and is told in what it was written in", found(96, 384*gib), list("cpu", "96", "memory", "824G"),
			"memory 384Gi of 824G"},
		"Both":            {"all that is missing, by name", found(48, 384*gib), h100, "cpu 48 of 96, memory 384Gi of 768Gi"},
		"OnlyMemoryFound": {"what was found is judged", found(0, 384*gib), h100, "memory 384Gi of 768Gi"},
		"Accelerators": {"Metal3 does not look for them", found(96, 768*gib), list("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "64"),
			""},
		"Disks": {"they can be one file system", found(96, 768*gib, 1<<40, 1<<40), list("cpu", "96", "ephemeral-storage", "2Ti"), ""},
		"DisksTooSmall": {"no file system is bigger than its disks", found(96, 768*gib, 1<<40), list("cpu", "96", "ephemeral-storage", "2Ti"),
			"ephemeral-storage 1Ti of 2Ti"},
		"NoDisksFound": {"inspection by the BMC may not see them", found(96, 768*gib), list("cpu", "96", "ephemeral-storage", "2Ti"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			host := available("h", nil)
			host.Status.HardwareDetails = tc.found
			if diff := cmp.Diff(tc.want, Lacks(host, tc.resources)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// inspected makes a host that can be claimed and has that many threads.
func inspected(name, kind string, cpus int) *bmov1alpha1.BareMetalHost {
	host := available(name, map[string]string{"kind": kind, "rack": "r-" + name})
	host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Count: cpus}}
	return host
}

// TestLeftOut: a type that says neither cpu nor memory is as big as the smallest of its inspected hosts, and no other is claimed as it.
func TestLeftOut(t *testing.T) {
	found := func(name string, cpus, gib int) *bmov1alpha1.BareMetalHost {
		host := inspected(name, "any", cpus)
		host.Status.HardwareDetails.RAMMebibytes = gib << 10
		return host
	}
	quantity := func(text string) resource.Quantity { return resource.MustParse(text) }
	for name, tc := range map[string]struct {
		reason    string
		resources corev1.ResourceList
		hosts     []*bmov1alpha1.BareMetalHost
		then      func(*Inventory)
		want      map[corev1.ResourceName]Least
		counts    Counts
		message   string // of a Machine that is pinned to the first host
	}{
		"None": {reason: "nothing is known", counts: Counts{}, message: "server metal3/h1 does not exist"},
		"NotInspected": {reason: "it is counted, and not to be had", hosts: []*bmov1alpha1.BareMetalHost{found("h1", 0, 0)},
			counts:  Counts{Total: 1, NotReady: 1},
			message: "server metal3/h1 has not been inspected by Metal3, and its type leaves out cpu or memory"},
		"Half": {reason: "an inspection that found one of the two is not enough", hosts: []*bmov1alpha1.BareMetalHost{found("h1", 96, 0)},
			want: map[corev1.ResourceName]Least{"cpu": {quantity("96"), "metal3/h1"}}, counts: Counts{Total: 1, NotReady: 1},
			message: "server metal3/h1 has not been inspected by Metal3, and its type leaves out cpu or memory"},
		"Least": {reason: "each by itself, with the first by name that has it",
			hosts: []*bmov1alpha1.BareMetalHost{found("h1", 96, 256), found("h3", 64, 512), found("h2", 64, 768), found("h4", 0, 0)},
			want: map[corev1.ResourceName]Least{"cpu": {quantity("64"), "metal3/h2"},
				"memory": {quantity("256Gi"), "metal3/h1"}},
			counts: Counts{Total: 4, Available: 3, NotReady: 1}},
		"Claimed": {reason: "a server in use is one of the type", hosts: []*bmov1alpha1.BareMetalHost{claimed(found("h1", 48, 256), "t")},
			want:   map[corev1.ResourceName]Least{"cpu": {quantity("48"), "metal3/h1"}, "memory": {quantity("256Gi"), "metal3/h1"}},
			counts: Counts{Total: 1, Claimed: 1}, message: "server metal3/h1 is claimed by a Machine"},
		"OneNamed": {reason: "a server with less than is said does not count", resources: list("cpu", "96", "nvidia.com/gpu", "8"),
			hosts:   []*bmov1alpha1.BareMetalHost{found("h1", 64, 128), found("h2", 96, 768)},
			want:    map[corev1.ResourceName]Least{"memory": {quantity("768Gi"), "metal3/h2"}},
			counts:  Counts{Total: 2, Available: 1, TooSmall: 1},
			message: "server metal3/h1 is too small for this type (cpu 64 of 96)"},
		"BothNamed": {reason: "there is nothing to find out", resources: list("cpu", "96", "memory", "768Gi"),
			hosts: []*bmov1alpha1.BareMetalHost{found("h1", 0, 0), found("h2", 96, 768)}, counts: Counts{Total: 2, Available: 2}},
		"Gone": {reason: "the smallest has been taken away",
			hosts:  []*bmov1alpha1.BareMetalHost{found("h1", 96, 256), found("h2", 64, 128)},
			then:   func(i *Inventory) { i.DeleteHost(types.NamespacedName{Namespace: "metal3", Name: "h2"}) },
			want:   map[corev1.ResourceName]Least{"cpu": {quantity("96"), "metal3/h1"}, "memory": {quantity("256Gi"), "metal3/h1"}},
			counts: Counts{Total: 1, Available: 1}},
		"AllGone": {reason: "nothing is known any more", hosts: []*bmov1alpha1.BareMetalHost{found("h1", 96, 256)},
			then:   func(i *Inventory) { i.DeleteHost(types.NamespacedName{Namespace: "metal3", Name: "h1"}) },
			counts: Counts{}, message: "server metal3/h1 does not exist"},
		"InspectedAgain": {reason: "it has been upgraded", hosts: []*bmov1alpha1.BareMetalHost{found("h1", 96, 256)},
			then:   func(i *Inventory) { i.SetHost(found("h1", 96, 512)) },
			want:   map[corev1.ResourceName]Least{"cpu": {quantity("96"), "metal3/h1"}, "memory": {quantity("512Gi"), "metal3/h1"}},
			counts: Counts{Total: 1, Available: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := NewInventory(Options{})
			nodeType := &v1alpha1.NodeType{}
			nodeType.Name, nodeType.Spec.Resources = "any", tc.resources
			nodeType.Spec.BareMetalHosts = &v1alpha1.HostSelection{Selector: &metav1.LabelSelector{}}
			provider := &v1alpha1.NodeProvider{}
			provider.Spec.Metal3.ClusterRef.Namespace = "metal3"
			if invalid := inventory.AddType(nodeType, provider, ""); invalid != nil {
				t.Fatal(invalid)
			}
			for _, host := range tc.hosts {
				inventory.SetHost(host)
			}
			if tc.then != nil {
				tc.then(inventory)
			}
			summary, _ := inventory.Summary("any")
			if diff := cmp.Diff(tc.want, summary.Least); diff != "" {
				t.Errorf("%s: the least (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.counts, summary.Counts()); diff != "" {
				t.Errorf("%s: counts (-want +got):\n%s", tc.reason, diff)
			}
			_, err := inventory.Choose(Request{Machine: "m", NodeType: "any", ServerName: "h1"})
			message := ""
			if err != nil {
				message = strings.TrimPrefix(err.Error(), `pinned to server "h1", which cannot be had: any: `)
			}
			if message != tc.message {
				t.Errorf("%s: got %q, want %q", tc.reason, message, tc.message)
			}
			// Without a name it is one of those that are to be had, or none.
			_, err = inventory.Choose(Request{Machine: "m", NodeType: "any"})
			if (err == nil) != (tc.counts.Available > 0) {
				t.Errorf("%s: choosing one gives %v", tc.reason, err)
			}
		})
	}
}

func TestTooSmallIsNotClaimed(t *testing.T) {
	big := profile("big", 2, list("cpu", "96", "memory", "768Gi"))
	every := profile("every", 3, list("cpu", "32", "memory", "768Gi"))
	every.Selector = labels.Everything()
	limited := profile("big", 2, list("cpu", "96", "memory", "768Gi"))
	limited.MaxCapacity = ptr.To[int32](0)
	for name, tc := range map[string]struct {
		reason   string
		types    []Profile
		hosts    []*bmov1alpha1.BareMetalHost
		request  Request
		host     string
		nodeType string
		refused  string
		message  string
	}{
		"TheOther": {reason: "the next one is big enough", types: []Profile{big},
			hosts:   []*bmov1alpha1.BareMetalHost{inspected("h1", "big", 64), inspected("h2", "big", 96)},
			request: Request{Machine: "m", NodeType: "big"}, host: "h2", nodeType: "big"},
		"None": {reason: "what is missing is said, server by server", types: []Profile{big},
			hosts:   []*bmov1alpha1.BareMetalHost{inspected("h1", "big", 64), inspected("h2", "big", 48)},
			request: Request{Machine: "m", NodeType: "big"}, refused: v1alpha1.ReasonNoCapacity,
			message: "no server available: big: 2 servers match, 0 claimed, 0 in error, 2 too small: metal3/h1 (cpu 64 of 96), metal3/h2 (cpu 48 " +
				"of 96)"},
		"OneClaimed": {reason: "each kind of trouble is counted", types: []Profile{big},
			hosts:   []*bmov1alpha1.BareMetalHost{inspected("h1", "big", 64), claimed(inspected("h2", "big", 96), "big")},
			request: Request{Machine: "m", NodeType: "big"}, refused: v1alpha1.ReasonNoCapacity,
			message: "no server available: big: 2 servers match, 1 claimed, 0 in error, 1 too small: metal3/h1 (cpu 64 of 96)"},
		"Many": {reason: "a hundred names would not be readable", types: []Profile{big}, hosts: []*bmov1alpha1.BareMetalHost{
			inspected("h1", "big", 64), inspected("h2", "big", 64), inspected("h3", "big", 64), inspected("h4", "big", 64),
			inspected("h5", "big", 64), inspected("h6", "big", 64), inspected("h7", "big", 64)},
			request: Request{Machine: "m", NodeType: "big"}, refused: v1alpha1.ReasonNoCapacity,
			message: "no server available: big: 7 servers match, 0 claimed, 0 in error, 7 too small: metal3/h1 (cpu 64 of 96), metal3/h2 (cpu 64 " +
				"of 96), metal3/h3 (cpu 64 of 96), metal3/h4 (cpu 64 of 96), metal3/h5 (cpu 64 of 96), and 2 more"},
		"InOneRack": {reason: "those elsewhere are beside the point", types: []Profile{big},
			hosts:   []*bmov1alpha1.BareMetalHost{inspected("h1", "big", 64), inspected("h2", "big", 48)},
			request: Request{Machine: "m", NodeType: "big", Requirements: []corev1.NodeSelectorRequirement{in("rack", "r-h2")}},
			refused: v1alpha1.ReasonNoCapacity,
			message: "no server available: big: 1 server matches, 0 claimed, 0 in error, 1 too small: metal3/h2 (cpu 48 of 96)"},
		"AnotherType": {reason: "it may be right for a type that says less", types: []Profile{big, every},
			hosts:   []*bmov1alpha1.BareMetalHost{inspected("h1", "big", 64)},
			request: Request{Machine: "m", Resources: list("cpu", "8")}, host: "h1", nodeType: "every"},
		"Pinned": {reason: "nor by name", types: []Profile{big},
			hosts:   []*bmov1alpha1.BareMetalHost{inspected("h1", "big", 64), inspected("h2", "big", 96)},
			request: Request{Machine: "m", ServerName: "h1"}, refused: v1alpha1.ReasonNoMatchingType,
			message: `pinned to server "h1", which cannot be had: big: server metal3/h1 is too small for this type (cpu 64 of 96)`},
		"PinnedAsAnotherType": {reason: "the pin is to the server, not to the type", types: []Profile{big, every},
			hosts:   []*bmov1alpha1.BareMetalHost{inspected("h1", "big", 64)},
			request: Request{Machine: "m", ServerName: "h1"}, host: "h1", nodeType: "every"},
		"Limited": {reason: "the limit is the reason then", types: []Profile{limited},
			hosts:   []*bmov1alpha1.BareMetalHost{inspected("h1", "big", 96)},
			request: Request{Machine: "m", NodeType: "big"}, refused: v1alpha1.ReasonNoCapacity,
			message: "no server available: big: 1 server matches, 0 claimed, 0 in error, maxCapacity 0 is reached"},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := NewInventory(Options{})
			for _, profile := range tc.types {
				inventory.SetType(profile)
			}
			for _, host := range tc.hosts {
				inventory.SetHost(host)
			}
			choice, err := inventory.give(tc.request)
			if choice.Host.Name != tc.host || choice.NodeType != tc.nodeType {
				t.Errorf("%s: got %s as %q (%v), want %s as %q", tc.reason, choice.Host.Name, choice.NodeType, err, tc.host, tc.nodeType)
			}
			var none *NoHostError
			if errors.As(err, &none) {
				if diff := cmp.Diff([]string{tc.refused, tc.message}, []string{none.Reason, none.Error()}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}

// TestInspectedAnew: a server that is repaired is claimed, and the listener is called; one that has lost something is not
// given to the Machine that it had been assumed for.
func TestInspectedAnew(t *testing.T) {
	inventory, called := NewInventory(Options{}), []string{}
	inventory.OnChange(func(names []string) { called = append(called, names...) })
	inventory.SetType(profile("big", 2, list("cpu", "96", "memory", "768Gi")))
	inventory.SetHost(inspected("h1", "big", 64))
	if _, err := inventory.give(Request{Machine: "m", NodeType: "big"}); err == nil {
		t.Fatal("a server that is too small was chosen")
	}
	called = nil
	inventory.SetHost(inspected("h1", "big", 96))
	if len(called) != 1 || called[0] != "big" {
		t.Errorf("the listener was called with %v when the server had grown, want its type", called)
	}
	if _, err := inventory.give(Request{Machine: "m", NodeType: "big"}); err != nil {
		t.Fatal(err)
	}
	inventory.SetHost(inspected("h1", "big", 64))
	if choice, err := inventory.give(Request{Machine: "m", NodeType: "big"}); err == nil {
		t.Errorf("the server has shrunk, and is given all the same: %+v", choice)
	}
	// Correcting the type instead of the server works too.
	inventory.SetType(profile("big", 2, list("cpu", "64", "memory", "768Gi")))
	if _, err := inventory.give(Request{Machine: types.UID("m"), NodeType: "big"}); err != nil {
		t.Error(err)
	}
}
