// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// reported is a Machine of a namespace whose node has that on a server.
func reported(namespace, server string, pairs ...string) v1alpha1.Machine {
	machine := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}}
	machine.Spec.Node = &v1alpha1.MachineNode{Name: "node", Resources: list(pairs...)}
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: "type"}
	machine.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3", Name: server}
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionJoined, Status: metav1.ConditionTrue}}
	return machine
}

// TestSmaller: nodes are named that have less than a server may have that is claimed as the type.
func TestSmaller(t *testing.T) {
	claimed := reported("acme", "s1", "cpu", "1", "memory", "1Ki")
	claimed.Status.Conditions[0].Status = metav1.ConditionFalse
	for name, tc := range map[string]struct {
		reason   string
		machines []v1alpha1.Machine
		want     []string
	}{
		"None":      {reason: "nothing is known"},
		"Tolerated": {"servers with so much are claimed", []v1alpha1.Machine{reported("acme", "s1", "cpu", "64", "memory", "500Gi")}, nil},
		"Bigger":    {"it is no fault", []v1alpha1.Machine{reported("acme", "s1", "cpu", "128", "memory", "1Ti")}, nil},
		"Smaller": {"of each resource", []v1alpha1.Machine{reported("globex", "s2", "memory", "508558Mi", "cpu", "64"),
			reported("acme", "s1", "cpu", "1", "memory", "360Gi", "ephemeral-storage", "1Gi")},
			[]string{"acme/m on metal3/s1 (cpu 1 of 64, memory 360Gi of 512Gi, ephemeral-storage 1Gi of 7Ti)",
				"globex/m on metal3/s2 (memory 508558Mi of 512Gi)"}},
		"NotJoined": {"no server has been installed", []v1alpha1.Machine{claimed}, nil},
		"Devices":   {"devices come and go", []v1alpha1.Machine{reported("acme", "s1", "nvidia.com/gpu", "0")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			nodeType := &v1alpha1.NodeType{}
			nodeType.Spec.Resources = list("cpu", "64", "memory", "512Gi", "ephemeral-storage", "7Ti")
			if diff := cmp.Diff(Nodes{Smaller: tc.want}, NodesOf(nodeType, tc.machines)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestServerOf: a tenant plans with what its own nodes have had instead of the tolerance, and never with more than the
// type declares.
func TestServerOf(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		own    corev1.ResourceList
		want   corev1.ResourceList
	}{
		"Unknown": {"a server that has so much less is claimed, too", nil,
			list("cpu", "64", "memory", "508559Mi", "ephemeral-storage", "7Ti")},
		"More": {"there is no need to tolerate", list("memory", "510Gi"),
			list("cpu", "64", "memory", "510Gi", "ephemeral-storage", "7Ti")},
		"Less": {"it is the tenant's own word", list("cpu", "1", "memory", "1Gi"),
			list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "7Ti")},
		"Bigger": {"other servers of the type need not be", list("cpu", "65", "memory", "1Ti"),
			list("cpu", "64", "memory", "512Gi", "ephemeral-storage", "7Ti")},
		"NoMemory": {"a kubelet that has not measured it says nothing of it", list("cpu", "60"),
			list("cpu", "60", "memory", "508559Mi", "ephemeral-storage", "7Ti")},
	} {
		nodeType := &v1alpha1.NodeType{}
		nodeType.Spec.Resources = list("cpu", "64", "memory", "512Gi", "ephemeral-storage", "7Ti")
		if diff := cmp.Diff(tc.want, ServerOf(nodeType, tc.own).Resources); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

// BenchmarkNodesOf is what a status of a type with 10,000 nodes costs.
func BenchmarkNodesOf(b *testing.B) {
	nodeType := &v1alpha1.NodeType{}
	nodeType.Spec.Resources = list("cpu", "64", "memory", "512Gi", "ephemeral-storage", "7Ti")
	var machines []v1alpha1.Machine
	for n := range 10000 {
		machine := reported(fmt.Sprint("tenant-", n%50), fmt.Sprint("s", n), "cpu", "64",
			"memory", fmt.Sprintf("%dKi", 500<<20+n), "ephemeral-storage", "7Ti")
		machine.Status.Progress = joinedAfter("", int64(600+n*7%600)).Status.Progress
		machines = append(machines, machine)
	}
	for b.Loop() {
		NodesOf(nodeType, machines)
	}
}

// joinedAfter is a Machine of a namespace whose node has joined so many seconds after the claim.
func joinedAfter(namespace string, seconds int64) v1alpha1.Machine {
	machine := reported(namespace, "s", "cpu", "64")
	claimed := time.Unix(1_000_000, 0)
	machine.Status.Progress = &v1alpha1.MachineProgress{Step: 5, Steps: 5, StartTime: metav1.NewTime(claimed),
		LastProgressTime: metav1.NewTime(claimed.Add(time.Duration(seconds) * time.Second))}
	return machine
}

func TestTypical(t *testing.T) {
	joined := func(change func(*v1alpha1.Machine)) v1alpha1.Machine {
		machine := joinedAfter("acme", 1080)
		change(&machine)
		return machine
	}
	for name, tc := range map[string]struct {
		reason   string
		machines []v1alpha1.Machine
		want     int64
	}{
		"None":  {reason: "an estimate out of nothing would be a lie"},
		"First": {"one is better than none", []v1alpha1.Machine{joinedAfter("acme", 1080)}, 1080},
		"Median": {"one slow server is not the usual one",
			[]v1alpha1.Machine{joinedAfter("acme", 600), joinedAfter("acme", 620), joinedAfter("acme", 9000)}, 620},
		"TwoNamespaces": {"one that delays its joins changes nothing for the other",
			[]v1alpha1.Machine{joinedAfter("acme", 9000), joinedAfter("acme", 9000), joinedAfter("acme", 9000), joinedAfter("globex", 600)}, 600},
		"NotJoined": {"its duration is not known yet",
			[]v1alpha1.Machine{joined(func(m *v1alpha1.Machine) { m.Status.Conditions[0].Status = metav1.ConditionFalse })}, 0},
		"StepsLeft": {"it was adopted on its way, and the last step is not written yet",
			[]v1alpha1.Machine{joined(func(m *v1alpha1.Machine) { m.Status.Progress.Step = 4 })}, 0},
		"NoProgress": {"an older manager kept none",
			[]v1alpha1.Machine{joined(func(m *v1alpha1.Machine) { m.Status.Progress = nil })}, 0},
		"Interrupted": {"an hour in error is no measure",
			[]v1alpha1.Machine{joined(func(m *v1alpha1.Machine) { m.Status.Progress.Interrupted = true })}, 0},
		"Backwards": {"the clock was set back", []v1alpha1.Machine{joinedAfter("acme", -60)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var want *v1alpha1.ProvisioningEstimate
			if tc.want != 0 {
				want = &v1alpha1.ProvisioningEstimate{TypicalSeconds: tc.want}
			}
			if diff := cmp.Diff(want, NodesOf(&v1alpha1.NodeType{}, tc.machines).Provisioning); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNobodySetsTypicalTimeAlone: whatever one of several namespaces reports, and however often, the estimate is not
// longer than the longest of the others, and with three or more of them not shorter than the shortest.
func TestNobodySetsTypicalTimeAlone(t *testing.T) {
	for seed := range uint64(2_000) {
		random := rand.New(rand.NewPCG(seed, 0))
		honest := 1 + random.IntN(5)
		var machines []v1alpha1.Machine
		for namespace := range honest {
			for range 1 + random.IntN(4) {
				machines = append(machines, joinedAfter(fmt.Sprint("honest-", namespace), 600+random.Int64N(120)))
			}
		}
		for range 1 + random.IntN(50) {
			machines = append(machines, joinedAfter("liar", random.Int64N(2)*random.Int64N(100_000)))
		}
		random.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		got := NodesOf(&v1alpha1.NodeType{}, machines).Provisioning.TypicalSeconds
		if got >= 720 || (honest > 1 && got < 600) {
			t.Errorf("seed %d: %d honest namespaces took 600 to 719 s, and the type usually takes %d s", seed, honest, got)
		}
	}
}
