// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"testing"
)

func TestDevicesValidation(t *testing.T) {
	for name, tc := range map[string]struct{ reason, device, want string }{
		"Good": {"a GPU as its driver publishes it", "{driver: gpu.nvidia.com, count: 8, attributes: {productName: {string: NVIDIA " +
			"H100}, driverVersion: {version: 570.1.0}}, capacity: {memory: 80Gi}, pcieRoots: [a, b]}", ""},
		"NoDriver": {"no driver would publish it", "{count: 8}", "driver: Required value"},
		"EmptyDriver": {"no driver would publish it", "{driver: '', count: 8}",
			"driver is the DNS name of the DRA driver that publishes the devices, for example gpu.nvidia.com"},
		"WrongDriver": {"the API server would refuse its slices", "{driver: NVIDIA GPU, count: 8}", "driver is the DNS name of the DRA driver"},
		"NoDevices":   {"what is not there is left out", "{driver: gpu.nvidia.com, count: 0}", "count"},
		"TooMany":     {"a slip of the finger", "{driver: gpu.nvidia.com, count: 800}", "count"},
		"TwoValues": {"it is not known which one the driver publishes",
			"{driver: gpu.nvidia.com, count: 1, attributes: {model: {string: H100, int: 100}}}", "set exactly one of string, int, bool and version"},
		"NoValue": {"a selector on it would fail", "{driver: gpu.nvidia.com, count: 1, attributes: {model: {}}}",
			"set exactly one of string, int, bool and version"},
		"Shared": {"claims share it by a policy", "{driver: d, count: 8, allowMultipleAllocations: true, capacity: {memory: 80Gi}, " +
			"requestPolicies: {memory: {default: 1Gi, validRange: {min: 1Gi, step: 1Gi}}}}", ""},
		"Partitioned": {"a GPU and its slices", "{driver: d, count: 8, sharedCounters: [{name: gpu, count: 8, counters: {slices: 7}}], " +
			"consumesCounters: [{counterSet: gpu, counters: {slices: 7}}]}, {driver: d, count: 56, consumesCounters: [{counterSet: gpu, " +
			"counters: {slices: 1}}]}", ""},
		"NotShared": {"a policy is for devices that are shared", "{driver: d, count: 1, capacity: {memory: 1Gi}, requestPolicies: {memory: " +
			"{default: 1Gi}}}", "set allowMultipleAllocations: true"},
		"NoCapacity": {"no such capacity", "{driver: d, count: 1, allowMultipleAllocations: true, capacity: {memory: 1Gi}, requestPolicies: " +
			"{cores: {default: 1}}}", "requestPolicies has a name that capacity does not have"},
		"NoDefault": {"a policy says what claims get", "{driver: d, count: 1, allowMultipleAllocations: true, capacity: {memory: 1Gi}, " +
			"requestPolicies: {memory: {}}}", "a policy of requestPolicies needs a default"},
		"ThreeSets": {"Kubernetes allows two", "{driver: d, count: 1, consumesCounters: [{counterSet: a, counters: {x: 1}}, {counterSet: b, " +
			"counters: {x: 1}}, {counterSet: c, counters: {x: 1}}]}", "consumesCounters: Too many"},
		"NoCounters":   {"it consumes nothing", "{driver: d, count: 1, consumesCounters: [{counterSet: a, counters: {}}]}", "counters"},
		"NoQuantity":   {"it is a quantity", "{driver: gpu.nvidia.com, count: 1, capacity: {memory: lots}}", "memory"},
		"NamelessRoot": {"roots are told apart by name", "{driver: gpu.nvidia.com, count: 1, pcieRoots: ['']}", "pcieRoots[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			profile := fmt.Sprintf("{providerRef: {name: p}, resources: {cpu: 1, memory: 1Gi}, bareMetalHosts: {selector: {}}, devices: [%s]}",
				tc.device)
			check(t, tc.reason, tc.want, refusal(t, object(t, "NodeType", "devices", "", profile)))
			provider := fmt.Sprintf("{metal3: {clusterRef: {namespace: m}, nodeTypes: [{name: t, resources: {cpu: 1, memory: 1Gi}, bareMetalHosts: "+
				"{selector: {}}, devices: [%s]}]}}", tc.device)
			check(t, tc.reason, tc.want, refusal(t, object(t, "NodeProvider", "devices", "", provider)))
		})
	}
}
