// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestExpand(t *testing.T) {
	got := Expand([]v1alpha1.NodeTypeDevice{
		{
			Driver: "gpu.example.com", Count: 3, PCIeRoots: []string{"a", "b"},
			Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"model": {String: ptr.To("big")}},
			Capacity:   map[string]resource.Quantity{"memory": resource.MustParse("80Gi")},
		},
		{Driver: "nic.example.com", Count: 1, PCIeRoots: []string{"b"}},
		{Driver: "gpu.example.com", Count: 1},
	})
	big := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: ptr.To("big")}}
	memory := map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}}
	noAttributes, noCapacity := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{},
		map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}
	want := []Driver{
		{Name: "gpu.example.com", Devices: []Device{
			{Name: "device-0", Attributes: big, Capacity: memory, Root: "a"},
			{Name: "device-1", Attributes: big, Capacity: memory, Root: "b"},
			{Name: "device-2", Attributes: big, Capacity: memory, Root: "a"},
			// A name that two devices of one pool share would make the pool invalid.
			{Name: "device-3", Attributes: noAttributes, Capacity: noCapacity},
		}},
		{Name: "nic.example.com", Devices: []Device{{Name: "device-0", Attributes: noAttributes, Capacity: noCapacity, Root: "b"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// Each GPU has a set of counters, and its slices are dealt out to the sets.
func TestExpandDealsOutCounters(t *testing.T) {
	drivers := Expand([]v1alpha1.NodeTypeDevice{
		{Driver: "gpu.example.com", Count: 4, ConsumesCounters: []v1alpha1.NodeTypeCounterConsumption{
			{CounterSet: "gpu", Counters: map[string]resource.Quantity{"slices": resource.MustParse("1")}},
			{CounterSet: "board", Counters: map[string]resource.Quantity{"watts": resource.MustParse("100")}},
		}},
		{Driver: "nic.example.com", Count: 1},
		{Driver: "gpu.example.com", Count: 2, AllowMultipleAllocations: true,
			Capacity:        map[string]resource.Quantity{"memory": resource.MustParse("80Gi")},
			RequestPolicies: map[string]resourcev1.CapacityRequestPolicy{"memory": {Default: ptr.To(resource.MustParse("1Gi"))}},
			SharedCounters: []v1alpha1.NodeTypeCounterSet{
				{Name: "gpu", Count: 2, Counters: map[string]resource.Quantity{"slices": resource.MustParse("7")}},
				{Name: "board", Counters: map[string]resource.Quantity{"watts": resource.MustParse("1000")}},
			},
			ConsumesCounters: []v1alpha1.NodeTypeCounterConsumption{
				{CounterSet: "gpu", Counters: map[string]resource.Quantity{"slices": resource.MustParse("7")}},
			}},
	})
	counters := func(name, value string) map[string]resourcev1.Counter {
		return map[string]resourcev1.Counter{name: {Value: resource.MustParse(value)}}
	}
	want := []resourcev1.CounterSet{{Name: "gpu-0", Counters: counters("slices", "7")}, {Name: "gpu-1", Counters: counters("slices", "7")},
		{Name: "board-0", Counters: counters("watts", "1000")}}
	if diff := cmp.Diff(want, drivers[0].CounterSets); diff != "" {
		t.Errorf("sets of counters (-want +got):\n%s", diff)
	}
	for n, want := range []string{"gpu-0 board-0", "gpu-0 board-0", "gpu-0", "gpu-1 board-0", "gpu-1 board-0", "gpu-1"} {
		var got []string
		for _, consumption := range drivers[0].Devices[n].ConsumesCounters {
			got = append(got, consumption.CounterSet)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("device %d consumes from %v, want %s", n, got, want)
		}
	}
	if diff := cmp.Diff(counters("slices", "1"), drivers[0].Devices[4].ConsumesCounters[0].Counters); diff != "" {
		t.Errorf("what a slice consumes (-want +got):\n%s", diff)
	}
	shared := drivers[0].Devices[5]
	if policy := shared.Capacity["memory"].RequestPolicy; !shared.Shared || policy == nil || policy.Default.String() != "1Gi" ||
		drivers[0].Devices[0].Shared {
		t.Errorf("%+v is not shared by its policy", shared)
	}
}

func TestValidateNamesFieldValueAndRemedy(t *testing.T) {
	attribute := func(key string, value v1alpha1.NodeTypeDeviceAttribute) func(*v1alpha1.NodeTypeDevice) {
		return func(d *v1alpha1.NodeTypeDevice) {
			d.Attributes = map[string]v1alpha1.NodeTypeDeviceAttribute{key: value}
		}
	}
	text := v1alpha1.NodeTypeDeviceAttribute{String: ptr.To("x")}
	for name, tc := range map[string]struct {
		reason string
		change func(*v1alpha1.NodeTypeDevice)
		want   []string
	}{
		"Good":        {"an ordinary GPU", attribute("model", text), nil},
		"OtherDomain": {"drivers publish standard attributes too", attribute("resource.kubernetes.io/numaNode", text), nil},
		"NoDriver": {"no driver would publish it", func(d *v1alpha1.NodeTypeDevice) { d.Driver = "" },
			[]string{"devices[0].driver", `""`, "gpu.nvidia.com"}},
		"WrongDriver": {"the API server would refuse its slices", func(d *v1alpha1.NodeTypeDevice) { d.Driver = "a..b" },
			[]string{`"a..b"`}},
		"NoDevices": {"it would have a driver and no device", func(d *v1alpha1.NodeTypeDevice) { d.Count = 0 },
			[]string{"devices[0].count"}},
		"TwoValues": {"it is not known which one the driver publishes",
			attribute("model", v1alpha1.NodeTypeDeviceAttribute{String: ptr.To("x"), Bool: ptr.To(true)}),
			[]string{`attributes["model"]`, ": 2: values", "exactly one"}},
		"NoValue": {"a selector on it would fail", attribute("model", v1alpha1.NodeTypeDeviceAttribute{}), []string{": 0: values"}},
		"NotAVersion": {"comparing it fails where claims are allocated",
			attribute("driverVersion", v1alpha1.NodeTypeDeviceAttribute{Version: ptr.To("v570")}),
			[]string{`attributes["driverVersion"].version`, `"v570"`, "1.2.3"}},
		"NotAnIdentifier": {"no driver can publish it", attribute("gpu model", text), []string{`"gpu model"`, "identifier"}},
		"WrongDomain":     {"no driver can publish it", attribute("Example/model", text), []string{`"Example"`}},
		"TwoWaysToSayRoots": {"they could contradict each other", func(d *v1alpha1.NodeTypeDevice) {
			attribute(string(PCIeRoot), text)(d)
			d.PCIeRoots = []string{"a"}
		}, []string{"pcieRoots", "remove one"}},
		"NegativeCapacity": {"no device has it", func(d *v1alpha1.NodeTypeDevice) {
			d.Capacity = map[string]resource.Quantity{"memory": resource.MustParse("-1")}
		}, []string{`capacity["memory"]`, "-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			device := v1alpha1.NodeTypeDevice{Driver: "gpu.example.com", Count: 1}
			tc.change(&device)
			err := Validate(field.NewPath("devices"), []v1alpha1.NodeTypeDevice{device}).ToAggregate()
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q does not say %q", tc.reason, err, want)
				}
			}
		})
	}
}
