// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestServersWithDevicesNeedRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		request Request
		host    string
		message string
	}{
		"Nothing": {"it would use a server with GPUs without need", Request{Resources: list("cpu", "1")}, "",
			"dra: has accelerators (gpu.example.com) and the Machine requests none of them"},
		"Driver": {"its pods were given devices of it", Request{Resources: list("cpu", "1"), Drivers: []string{"gpu.example.com"}}, "d1",
			""},
		"AnotherDriver": {"devices of the network are no reason for a GPU server",
			Request{Resources: list("cpu", "1"), Drivers: []string{"net.example.com"}}, "", "dra: has accelerators"},
		"OneOfTheDrivers": {"what else the claims were given may belong to no server",
			Request{Resources: list("cpu", "1"), Drivers: []string{"net.example.com", "gpu.example.com"}}, "d1", ""},
		"NodeTypeByName": {"an explicitly named type wins", Request{NodeType: "dra"}, "d1", ""},
		"Resource": {"a card can be offered by a device plugin and by a DRA driver", Request{Resources: list("nvidia.com/gpu", "1")}, "b1",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := NewInventory(Options{})
			devices, both := profile("dra", 1, list("cpu", "64", "memory", "256Gi")),
				profile("both", 2, list("cpu", "64", "memory", "256Gi", "nvidia.com/gpu", "4"))
			devices.Drivers, both.Drivers = []string{"gpu.example.com"}, []string{"gpu.nvidia.com"}
			inventory.SetType(devices)
			inventory.SetType(both)
			inventory.SetHost(available("d1", map[string]string{"kind": "dra"}))
			inventory.SetHost(available("b1", map[string]string{"kind": "both"}))
			choice, err := inventory.give(tc.request)
			if tc.message == "" {
				if err != nil || choice.Host.Name != tc.host {
					t.Errorf("%s: got server %q and error %v, want %q", tc.reason, choice.Host.Name, err, tc.host)
				}
				return
			}
			var none *NoHostError
			if !errors.As(err, &none) || none.Reason != v1alpha1.ReasonNoMatchingType || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s: got %v, want %s with %q", tc.reason, err, v1alpha1.ReasonNoMatchingType, tc.message)
			}
		})
	}
}

// TestAcceleratorLabels: the summary of a type has the labels that its hosts have now.
func TestAcceleratorLabels(t *testing.T) {
	inventory := NewInventory(Options{})
	inventory.SetType(profile("any", 1, nil))
	expect := func(reason string, want ...string) {
		t.Helper()
		summary, _ := inventory.Summary("any")
		if !slices.Equal(summary.Accelerators, want) {
			t.Errorf("%s: %v, want %v", reason, summary.Accelerators, want)
		}
	}
	set := func(name string, labels map[string]string) {
		labels["kind"] = "any"
		inventory.SetHost(available(name, labels))
	}
	expect("there is no host")
	set("h1", map[string]string{"rack": "a"})
	set("h2", map[string]string{"gpu-count": "0", "gpu-model": "none"})
	expect("none has any")
	set("h3", map[string]string{"gpu-count": "8", "gpu-model": "h100"})
	set("h4", map[string]string{"gpu-model": "h100"})
	set("h1", map[string]string{"rack": "a", "gpu-count": "4"})
	expect("the model comes first, and each is named once", "gpu-count=4", "gpu-model=h100")
	set("h1", map[string]string{"rack": "a"})
	inventory.DeleteHost(types.NamespacedName{Namespace: "metal3", Name: "h3"})
	expect("one has it still", "gpu-model=h100")
	set("h4", map[string]string{})
	expect("no label is left")
	for n := range MaxNamed + 1 {
		set(fmt.Sprint("m", n), map[string]string{"gpu-model": fmt.Sprint("g", n)})
	}
	expect("as many as are named", "gpu-model=g0", "gpu-model=g1", "gpu-model=g2", "gpu-model=g3", "gpu-model=g4")
}
