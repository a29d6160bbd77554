// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

func list(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

func profile(name string, cost int64, resources corev1.ResourceList) Profile {
	return Profile{
		Name: name, MadeBy: "fleet", Namespace: "metal3", Cost: cost, Resources: resources,
		Server:   capacity.Server{Resources: resources},
		Selector: labels.SelectorFromSet(labels.Set{"kind": name}),
	}
}

// claimed makes the host show a claim as that type.
func claimed(host *bmov1alpha1.BareMetalHost, typeName string) *bmov1alpha1.BareMetalHost {
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "tenant",
		Name: "m"}
	host.Annotations = map[string]string{v1alpha1.NodeTypeAnnotationKey: typeName}
	return host
}

func failed(host *bmov1alpha1.BareMetalHost) *bmov1alpha1.BareMetalHost {
	host.Status.OperationalStatus, host.Status.ErrorType = bmov1alpha1.OperationalStatusError, bmov1alpha1.RegistrationError
	return host
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// rack is the reference fleet: two H100 servers in two NVLink domains, two A100 servers, one without accelerators.
func rack() *Inventory {
	inventory := NewInventory(Options{})
	inventory.SetType(profile("h100-8x", 82496, list("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")))
	inventory.SetType(profile("a100-4x", 41152, list("cpu", "64", "memory", "256Gi", "nvidia.com/gpu", "4")))
	inventory.SetType(profile("cpu", 875, list("cpu", "32", "memory", "256Gi")))
	inventory.SetHost(available("h1", map[string]string{"kind": "h100-8x", "rack": "r1", "nvlink-domain": "n1", "datacenter": "dc1"}))
	inventory.SetHost(available("h2", map[string]string{"kind": "h100-8x", "rack": "r2", "nvlink-domain": "n2", "datacenter": "dc2"}))
	inventory.SetHost(available("a1", map[string]string{"kind": "a100-4x", "rack": "r1", "datacenter": "dc1"}))
	inventory.SetHost(available("a2", map[string]string{"kind": "a100-4x", "rack": "r1", "datacenter": "dc1"}))
	inventory.SetHost(available("c1", map[string]string{"kind": "cpu", "rack": "r1", "datacenter": "dc1"}))
	return inventory
}

func TestChoose(t *testing.T) {
	oneGPU := list("cpu", "1", "nvidia.com/gpu", "1")
	limit := int32(1)
	for name, tc := range map[string]struct {
		reason   string
		prepare  func(*Inventory)
		request  Request
		host     string
		nodeType string
		refused  string // reason
		message  string
	}{
		"Cheapest": {reason: "a100-4x before h100-8x", request: Request{Resources: oneGPU}, host: "a1", nodeType: "a100-4x"},
		"CheapestByPrice": {reason: "the cost decides, not the size", prepare: func(i *Inventory) {
			i.SetType(profile("h100-8x", 5, list("cpu", "96", "nvidia.com/gpu", "8")))
		}, request: Request{Resources: oneGPU}, host: "h1", nodeType: "h100-8x"},
		"TooBigForCheapest": {reason: "eight are in no a100-4x", request: Request{Resources: list("nvidia.com/gpu", "8")}, host: "h1",
			nodeType: "h100-8x"},
		"CPUOnly": {reason: "plain work goes to plain servers", request: Request{Resources: list("cpu", "4", "pods", "7")}, host: "c1",
			nodeType: "cpu"},
		"NeverAccelerators": {
			reason:  "GPU servers are not for claims that ask for none, even when they alone are free",
			prepare: func(i *Inventory) { i.SetHost(claimed(available("c1", map[string]string{"kind": "cpu"}), "cpu")) },
			request: Request{Resources: list("cpu", "4")}, refused: v1alpha1.ReasonNoCapacity,
			message: "no server available: cpu: 1 server matches, 1 claimed, 0 in error; a100-4x: has accelerators (nvidia.com/gpu) and the " +
				"Machine requests none of them; h100-8x: has accelerators (nvidia.com/gpu) and the Machine requests none of them",
		},
		"NamedType": {reason: "an explicitly named type wins, with and without resources", request: Request{NodeType: "h100-8x"}, host: "h1",
			nodeType: "h100-8x"},
		"UnknownType": {reason: "a typo is found at once", request: Request{NodeType: "h100"}, refused: v1alpha1.ReasonNoMatchingType,
			message: `NodeType "h100" does not exist: create it, or name one that does`},
		"Topology": {reason: "one NVLink domain without pinning",
			request: Request{Resources: oneGPU, Requirements: []corev1.NodeSelectorRequirement{in("nvlink-domain", "n2")}}, host: "h2",
			nodeType: "h100-8x"},
		"Zone": {reason: "the zone is the datacenter",
			request: Request{NodeType: "h100-8x", Requirements: []corev1.NodeSelectorRequirement{in("topology.kubernetes.io/zone", "dc2")}},
			host:    "h2", nodeType: "h100-8x"},
		"NotIn": {reason: "a host without the label meets NotIn",
			request: Request{Resources: oneGPU,
				Requirements: []corev1.NodeSelectorRequirement{{Key: "nvlink-domain", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n1"}}}},
			host: "a1", nodeType: "a100-4x"},
		"NoSuchRack": {
			reason:  "waiting would not help",
			request: Request{Resources: list("nvidia.com/gpu", "8"), Requirements: []corev1.NodeSelectorRequirement{in("rack", "r9")}},
			refused: v1alpha1.ReasonNoMatchingType,
			message: "no NodeType fits: cpu: has no nvidia.com/gpu; a100-4x: too small: asks nvidia.com/gpu 8, has 4; h100-8x: does not meet rack " +
				"in (r9)",
		},
		"Exhausted": {
			reason: "counts are of the hosts that meet the requirements",
			prepare: func(i *Inventory) {
				i.SetHost(claimed(available("h1", map[string]string{"kind": "h100-8x", "rack": "r1"}), "h100-8x"))
				i.SetHost(failed(available("h2", map[string]string{"kind": "h100-8x", "rack": "r1"})))
				paused := available("h3", map[string]string{"kind": "h100-8x", "rack": "r1"})
				paused.Annotations = map[string]string{bmov1alpha1.PausedAnnotation: ""}
				i.SetHost(paused)
				i.SetHost(available("h4", map[string]string{"kind": "h100-8x", "rack": "r2"}))
			},
			request: Request{NodeType: "h100-8x", Requirements: []corev1.NodeSelectorRequirement{in("rack", "r1")}},
			refused: v1alpha1.ReasonNoCapacity, message: "no server available: h100-8x: 3 servers match, 1 claimed, 1 in error, 1 not ready",
		},
		"OfOthers": {
			reason: "a host that others use is claimed, too, and no other of our Machines will give it back",
			prepare: func(i *Inventory) {
				i.SetHost(claimed(available("h1", map[string]string{"kind": "h100-8x", "rack": "r1"}), "h100-8x"))
				others := available("h2", map[string]string{"kind": "h100-8x", "rack": "r1"})
				others.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine",
					Namespace: "capi", Name: "worker-7"}
				i.SetHost(others)
			},
			request: Request{NodeType: "h100-8x", Requirements: []corev1.NodeSelectorRequirement{in("rack", "r1")}},
			refused: v1alpha1.ReasonNoCapacity, message: "no server available: h100-8x: 2 servers match, 2 claimed (1 by others), 0 in error",
		},
		"MaxCapacity": {
			reason: "a claimed host of the type counts, a free one does not help",
			prepare: func(i *Inventory) {
				limited := profile("h100-8x", 82496, list("cpu", "96", "nvidia.com/gpu", "8"))
				limited.MaxCapacity = &limit
				i.SetType(limited)
				i.SetHost(claimed(available("h1", map[string]string{"kind": "h100-8x"}), "h100-8x"))
			},
			request: Request{NodeType: "h100-8x"}, refused: v1alpha1.ReasonNoCapacity,
			message: "no server available: h100-8x: 2 servers match, 1 claimed, 0 in error, maxCapacity 1 is reached",
		},
		"MaxCapacityOfAnotherType": {
			reason: "a host that is claimed as another type it matches does not count",
			prepare: func(i *Inventory) {
				limited := profile("h100-8x", 82496, list("cpu", "96", "nvidia.com/gpu", "8"))
				limited.MaxCapacity = &limit
				i.SetType(limited)
				i.SetHost(claimed(available("h1", map[string]string{"kind": "h100-8x"}), "h100-reserved"))
			},
			request: Request{NodeType: "h100-8x"}, host: "h2", nodeType: "h100-8x",
		},
		"NotAllowed": {reason: "the type fits, the tenant may not have it",
			request: Request{Resources: oneGPU, Allowed: func(typeName, _ string) bool { return typeName == "cpu" }},
			refused: v1alpha1.ReasonNotAllowed,
			message: "this tenant is allowed no NodeType that fits: cpu: has no nvidia.com/gpu; 2 NodeTypes are not for this tenant"},
		"AllowedDearer": {reason: "the cheapest that is allowed", request: Request{Resources: oneGPU,
			Allowed: func(typeName, _ string) bool { return typeName == "h100-8x" }}, host: "h1", nodeType: "h100-8x"},
		"Operator": {reason: "names the requirement",
			request: Request{Requirements: []corev1.NodeSelectorRequirement{{Key: "rack", Operator: "Is"}}}, refused: v1alpha1.ReasonInvalidSpec,
			message: `spec.requirements[0].operator: Unsupported value: "Is": supported values: "DoesNotExist", "Exists", "Gt", "In", "Lt", ` +
				`"NotIn": correct it`},
		"Values": {reason: "names the requirement",
			request: Request{Requirements: []corev1.NodeSelectorRequirement{in("rack", "r1"), in("zone")}}, refused: v1alpha1.ReasonInvalidSpec,
			message: `spec.requirements[1]: Invalid value: "zone In": for 'in', 'notin' operators, values set can't be empty: correct it`},
		"Pinned": {reason: "only that server", request: Request{Resources: oneGPU, ServerName: "h2"}, host: "h2", nodeType: "h100-8x"},
		"PinnedToMissing": {reason: "never another server", request: Request{NodeType: "h100-8x", ServerName: "h9"},
			refused: v1alpha1.ReasonNoCapacity, message: `pinned to server "h9", which cannot be had: h100-8x: server metal3/h9 does not exist`},
		"PinnedToWrongType": {reason: "waiting does not help", request: Request{NodeType: "h100-8x", ServerName: "a1"},
			refused: v1alpha1.ReasonNoMatchingType,
			message: `pinned to server "a1", which cannot be had: h100-8x: server metal3/a1 is not of this ` +
				`type`},
		"PinnedToTaken": {reason: "the message has the consumer", prepare: func(i *Inventory) {
			i.SetHost(claimed(available("h1", map[string]string{"kind": "h100-8x"}), "h100-8x"))
		},
			request: Request{NodeType: "h100-8x", ServerName: "h1"}, refused: v1alpha1.ReasonNoCapacity,
			message: `pinned to server "h1", which cannot be had: h100-8x: server metal3/h1 is claimed by a Machine`},
		"PinnedToAssumed": {reason: "parallel workers do not pick it twice",
			prepare: func(i *Inventory) { _, _ = i.give(Request{Machine: "other", ServerName: "h1", NodeType: "h100-8x"}) },
			request: Request{NodeType: "h100-8x", ServerName: "h1"}, refused: v1alpha1.ReasonNoCapacity,
			message: `pinned to server "h1", which cannot be had: h100-8x: server metal3/h1 is being claimed by another Machine`},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := rack()
			if tc.prepare != nil {
				tc.prepare(inventory)
			}
			tc.request.Machine = "machine"
			choice, err := inventory.give(tc.request)
			var none *NoHostError
			if errors.As(err, &none) {
				if diff := cmp.Diff([]string{tc.refused, tc.message}, []string{none.Reason, none.Error()}); diff != "" {
					t.Errorf("%s: error (-want +got):\n%s", tc.reason, diff)
				}
			} else if err != nil || tc.refused != "" {
				t.Errorf("%s: error is %v, want reason %q", tc.reason, err, tc.refused)
			}
			if diff := cmp.Diff([]string{tc.host, tc.nodeType}, []string{choice.Host.Name, choice.NodeType}); diff != "" {
				t.Errorf("%s: host and type (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestChoiceLabels(t *testing.T) {
	inventory := rack()
	labelled := profile("a100-4x", 41152, list("cpu", "64", "nvidia.com/gpu", "4"))
	labelled.Properties = map[string]string{
		v1alpha1.PropertyOSImage: "ubuntu", "team": "ml", "rack": "overridden by the host",
		v1alpha1.PropertyImageURL: "https://not.a/label", v1alpha1.NodeTypeLabelKey: "not-the-name",
	}
	inventory.SetType(labelled)
	arm := available("a0", map[string]string{"kind": "a100-4x", "rack": "r7"})
	arm.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Arch: "aarch64"}}
	inventory.SetHost(arm)
	choice, err := inventory.give(Request{Resources: list("nvidia.com/gpu", "1"),
		Requirements: []corev1.NodeSelectorRequirement{in("rack", "r7")}})
	if err != nil {
		t.Fatal(err)
	}
	want := Choice{
		Host:     v1alpha1.HostReference{Namespace: "metal3", Name: "a0", UID: "uid-of-a0"},
		NodeType: "a100-4x", Cost: 41152,
		Labels: map[string]string{
			"karpenter.metal3.io/node-type": "a100-4x", "node.kubernetes.io/instance-type": "a100-4x",
			"topology.kubernetes.io/zone": "global", "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
			"rack": "r7", "team": "ml", "karpenter.metal3.io/os-image": "ubuntu",
		},
	}
	if diff := cmp.Diff(want, choice); diff != "" {
		t.Errorf("Choose (-want +got):\n%s", diff)
	}
	for _, key := range v1alpha1.Spellings(v1alpha1.PropertyOSImage) {
		if _, err := inventory.give(Request{NodeType: "a100-4x", Requirements: []corev1.NodeSelectorRequirement{in(key, "ubuntu")}}); err != nil {
			t.Errorf("a server is selected by %s: %v", key, err)
		}
	}
	if again, _ := inventory.give(Request{NodeType: "a100-4x", ServerName: "a0"}); again.Host.Name != "a0" {
		t.Error("a request without a Machine assumed the host")
	}
}

// TestMappedLabels: nodes inherit labels of hosts under other keys, and claims select on those. The region of a type is a property.
func TestMappedLabels(t *testing.T) {
	mapping, err := topology.Parse([]string{"rack=network.topology.nvidia.com/leaf", "nvlink-domain=nvidia.com/gpu.clique",
		"row=topology.kubernetes.io/zone"})
	if err != nil {
		t.Fatal(err)
	}
	inventory := NewInventory(Options{Topology: &mapping})
	big := profile("h100-8x", 1, list("cpu", "96", "nvidia.com/gpu", "8"))
	big.Properties = map[string]string{corev1.LabelTopologyRegion: "eu", v1alpha1.InstanceGPUNameLabelKey: "h100",
		v1alpha1.InstanceCPULabelKey: "1"}
	big.Instance = map[string]string{v1alpha1.InstanceCPULabelKey: "96", v1alpha1.InstanceGPUCountLabelKey: "8"}
	inventory.SetType(big)
	inventory.SetHost(available("h1", map[string]string{"kind": "h100-8x", "rack": "r1", "row": "row-1", "nvlink-domain": "n1"}))
	inventory.SetHost(available("h2", map[string]string{"kind": "h100-8x", "rack": "r2", "row": "row-1", "datacenter": "dc1"}))
	where := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	for name, tc := range map[string]struct {
		reason      string
		requirement corev1.NodeSelectorRequirement
		host        string
	}{
		"Leaf":     {"the label under its key on nodes", in("network.topology.nvidia.com/leaf", "r2"), "h2"},
		"OfHost":   {"nodes do not have it under its key on hosts", in("rack", "r2"), ""},
		"Zone":     {"from another label than the data center", in(corev1.LabelTopologyZone, "row-1"), "h1"},
		"NoClique": {"a server without the label", where("nvidia.com/gpu.clique", corev1.NodeSelectorOpDoesNotExist), "h2"},
		"Region":   {"a property", in(corev1.LabelTopologyRegion, "eu"), "h1"},
		"CPUs": {"numbers are compared, and a property cannot change them",
			where(v1alpha1.InstanceCPULabelKey, corev1.NodeSelectorOpGt, "64"), "h1"},
		"FewGPUs": {"numbers are compared", where(v1alpha1.InstanceGPUCountLabelKey, corev1.NodeSelectorOpLt, "8"), ""},
		"GPUName": {"a property says what the type does not", in(v1alpha1.InstanceGPUNameLabelKey, "h100"), "h1"},
	} {
		t.Run(name, func(t *testing.T) {
			choice, err := inventory.Choose(Request{NodeType: "h100-8x", Requirements: []corev1.NodeSelectorRequirement{tc.requirement}})
			if choice.Host.Name != tc.host || (err == nil) != (tc.host != "") {
				t.Errorf("%s: host %q (%v), want %q", tc.reason, choice.Host.Name, err, tc.host)
			}
		})
	}
	summary, _ := inventory.Summary("h100-8x")
	want := []map[string]string{{"network.topology.nvidia.com/leaf": "r1", "nvidia.com/gpu.clique": "n1"},
		{"network.topology.nvidia.com/leaf": "r2"}}
	var got []map[string]string
	for _, domain := range summary.Domains {
		got = append(got, domain.Labels)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
}

// A property may have several values, or any: a node has the one that is asked for.
func TestPropertyWithSeveralValues(t *testing.T) {
	inventory := rack()
	several := profile("cpu", 875, list("cpu", "32", "memory", "256Gi"))
	several.Properties = map[string]string{"fabric": "roce, ib", "team": "*", v1alpha1.PropertySSHKeys: "alice,bob"}
	inventory.SetType(several)
	type all = []corev1.NodeSelectorRequirement
	const notIn, exists, absent = corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist
	requirement := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
	}
	for name, tc := range map[string]struct {
		reason       string
		requirements all
		fabric, team string
		refused      bool
	}{
		"None":   {reason: "the first value, and none of any", fabric: "roce"},
		"First":  {reason: "the type has it", requirements: all{in("fabric", "roce")}, fabric: "roce"},
		"Second": {reason: "the type has it, too", requirements: all{in("fabric", "ib")}, fabric: "ib"},
		"Both": {reason: "each requirement narrows the values", fabric: "ib",
			requirements: all{in("fabric", "ib", "roce"), requirement("fabric", notIn, "roce")}},
		"Other":    {reason: "the type has it not", requirements: all{in("fabric", "tcp")}, refused: true},
		"NotFirst": {reason: "the other is left", requirements: all{requirement("fabric", notIn, "roce")}, fabric: "ib"},
		"NotIn": {reason: "the server must not come in", refused: true,
			requirements: all{requirement("fabric", notIn, "roce", "ib")}},
		"Exists":       {reason: "it has a value", requirements: all{requirement("fabric", exists)}, fabric: "roce"},
		"DoesNotExist": {reason: "as NotIn", requirements: all{requirement("fabric", absent)}, refused: true},
		"Any":          {reason: "any value is right", requirements: all{in("team", "ml")}, fabric: "roce", team: "ml"},
		"AnyExists":    {reason: "a value is not known", requirements: all{requirement("team", exists)}, fabric: "roce"},
		"AnyNot":       {reason: "it has one", requirements: all{requirement("team", absent)}, refused: true},
		"KeysOfOthers": {reason: "SSH keys are a list, and no label", refused: true,
			requirements: all{in(v1alpha1.PropertySSHKeys, "alice")}},
	} {
		t.Run(name, func(t *testing.T) {
			choice, err := inventory.Choose(Request{NodeType: "cpu", Requirements: tc.requirements})
			if (err != nil) != tc.refused || choice.Labels["fabric"] != tc.fabric || choice.Labels["team"] != tc.team {
				t.Errorf("%s: got %v (%v), want fabric %q, team %q, refused %t", tc.reason, choice.Labels, err, tc.fabric, tc.team, tc.refused)
			}
		})
	}
	summary, _ := inventory.Summary("cpu")
	for _, want := range []v1alpha1.NodeTypeRequirement{{Key: "fabric", Values: []string{"ib", "roce"}}, {Key: "team", Values: []string{}}} {
		if !slices.ContainsFunc(summary.Requirements, func(r v1alpha1.NodeTypeRequirement) bool { return cmp.Equal(want, r) }) {
			t.Errorf("the status of the type has no %v: %v", want, summary.Requirements)
		}
	}
}

func TestAssumption(t *testing.T) {
	h1 := types.NamespacedName{Namespace: "metal3", Name: "h1"}
	fresh := func() *bmov1alpha1.BareMetalHost {
		return available("h1", map[string]string{"kind": "h100-8x", "rack": "r1", "nvlink-domain": "n1", "datacenter": "dc1"})
	}
	request := func(machine string) Request { return Request{Machine: types.UID(machine), NodeType: "h100-8x"} }
	for name, tc := range map[string]struct {
		reason string
		then   func(*Inventory)
		ask    string
		host   string
	}{
		"SameMachine":        {"a worker that crashed asks again and gets the same", func(*Inventory) {}, "first", "h1"},
		"OtherMachine":       {"parallel workers do not pick it twice", func(*Inventory) {}, "second", "h2"},
		"Forgotten":          {"a claim that failed frees the host", func(i *Inventory) { i.Forget(h1, "first") }, "second", "h1"},
		"ForgottenByMistake": {"only the Machine that has it can give it up", func(i *Inventory) { i.Forget(h1, "second") }, "second", "h2"},
		"Echo":               {"an update without a consumer is older than the claim", func(i *Inventory) { i.SetHost(fresh()) }, "second", "h2"},
		"Relabelled": {"new labels move nothing",
			func(i *Inventory) { i.SetHost(available("h1", map[string]string{"kind": "h100-8x", "rack": "r5"})) }, "first", "h1"},
		"ShownAndGone": {"once the claim has shown, the watch decides", func(i *Inventory) {
			i.SetHost(claimed(fresh(), "h100-8x"))
			i.SetHost(fresh())
		}, "second", "h1"},
		"Deleted": {"a host of the same name is another host", func(i *Inventory) {
			i.DeleteHost(h1)
			i.SetHost(fresh())
		}, "second", "h1"},
		"Failed": {"the Machine gets a sound one instead", func(i *Inventory) {
			i.SetHost(failed(fresh()))
		}, "first", "h2"},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := rack()
			if choice, err := inventory.give(request("first")); err != nil || choice.Host.Name != "h1" {
				t.Fatalf("the first choice is %v, %v", choice.Host, err)
			}
			tc.then(inventory)
			choice, err := inventory.give(request(tc.ask))
			if err != nil || choice.Host.Name != tc.host {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, choice.Host.Name, err, tc.host)
			}
		})
	}
}

// TestChosenBefore: the host that was chosen for a Machine before is chosen again as long as it fits, also if it cannot be had.
func TestChosenBefore(t *testing.T) {
	labels := map[string]string{"kind": "h100-8x", "rack": "r2", "nvlink-domain": "n2", "datacenter": "dc2"}
	limit := int32(1)
	reference := v1alpha1.HostReference{Namespace: "metal3", Name: "h2", UID: available("h2", labels).UID}
	for name, tc := range map[string]struct {
		reason  string
		prepare func(*Inventory)
		change  func(*Request)
		want    string
	}{
		"Free": {reason: "another manager may be claiming it", want: "h2"},
		"Claimed": {reason: "the claim finds out which Machine has it", want: "h2",
			prepare: func(i *Inventory) { i.SetHost(claimed(available("h2", labels), "h100-8x")) }},
		"Assumed": {reason: "the claim decides", want: "h2", prepare: func(i *Inventory) {
			i.Assume(Choice{Host: reference, NodeType: "h100-8x"}, "another")
		}},
		"AtMaxCapacity": {reason: "the type may have no more", want: "", prepare: func(i *Inventory) {
			full := profile("h100-8x", 9, list("cpu", "96", "nvidia.com/gpu", "8"))
			full.MaxCapacity = &limit
			i.SetType(full)
			i.SetHost(claimed(available("h1", map[string]string{"kind": "h100-8x"}), "h100-8x"))
		}},
		"OtherType":  {reason: "it is none of that type", want: "h1", change: func(r *Request) { r.ChosenAs = "a100-4x" }},
		"NoSuchType": {reason: "the type has been deleted", want: "h1", change: func(r *Request) { r.ChosenAs = "gone" }},
		"OtherUID":   {reason: "it is another host", want: "h1", change: func(r *Request) { r.ChosenHost.UID = "former" }},
		"Requirements": {reason: "it does not meet them", want: "h1",
			change: func(r *Request) { r.Requirements = []corev1.NodeSelectorRequirement{in("rack", "r1")} }},
		"Pinned": {reason: "the Machine has been pinned since", want: "h1", change: func(r *Request) { r.ServerName = "h1" }},
		"NotAllowed": {reason: "the tenant may not have the type", want: "",
			change: func(r *Request) { r.Allowed = func(string, string) bool { return false } }},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := rack()
			if tc.prepare != nil {
				tc.prepare(inventory)
			}
			request := Request{Machine: "m", NodeType: "h100-8x", ChosenHost: reference, ChosenAs: "h100-8x"}
			if tc.change != nil {
				tc.change(&request)
			}
			if choice, err := inventory.Choose(request); choice.Host.Name != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, choice.Host.Name, err, tc.want)
			}
		})
	}
}
