// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// reported is a Machine of a namespace whose node has that on a server.
func reported(namespace, server string, pairs ...string) v1alpha1.Machine {
	machine := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	machine.Spec.Node = &v1alpha1.MachineNode{Name: "node", Resources: list(pairs...)}
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: "type"}
	machine.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3", Name: server}
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionJoined, Status: metav1.ConditionTrue}}
	return machine
}

// TestBelieve: what one tenant says of a type counts for the others only as far as inspection bears it out, or another tenant.
func TestBelieve(t *testing.T) {
	claimed := reported("acme", "s1", "cpu", "1", "memory", "1Ki")
	claimed.Status.Conditions[0].Status = metav1.ConditionFalse
	for name, tc := range map[string]struct {
		reason   string
		machines []v1alpha1.Machine
		want     corev1.ResourceList
		agreed   map[corev1.ResourceName][]string
	}{
		"None": {reason: "nothing is known"},
		"First": {"within the tolerance it is what a node has",
			[]v1alpha1.Machine{reported("acme", "s1", "cpu", "64", "memory", "500Gi")}, list("cpu", "64", "memory", "500Gi"), nil},
		"Least": {"the least counts",
			[]v1alpha1.Machine{reported("acme", "s1", "memory", "505Gi"), reported("globex", "s2", "memory", "500Gi"),
				reported("globex", "s3", "memory", "510Gi")}, list("memory", "500Gi"), nil},
		"Bigger": {"it is no limit: servers are planned with what the type declares",
			[]v1alpha1.Machine{reported("acme", "s1", "cpu", "128", "memory", "1Ti")}, list("cpu", "128", "memory", "1Ti"), nil},
		"Alone": {"one namespace counts down to the tolerance",
			[]v1alpha1.Machine{reported("acme", "s1", "cpu", "1", "memory", "1Ki", "ephemeral-storage", "1")},
			list("cpu", "64", "memory", "508559Mi", "ephemeral-storage", "7Ti"), nil},
		"Many": {"many servers of one namespace are one tenant's word",
			[]v1alpha1.Machine{reported("acme", "s1", "memory", "1Gi"), reported("acme", "s2", "memory", "1Gi"),
				reported("acme", "s3", "memory", "1Gi")}, list("memory", "508559Mi"), nil},
		"Outlier": {"another's node with all of it does not agree",
			[]v1alpha1.Machine{reported("acme", "s1", "memory", "1Gi"), reported("globex", "s2", "memory", "511Gi")},
			list("memory", "508559Mi"), nil},
		"Agreed": {"two namespaces have seen that there is no more",
			[]v1alpha1.Machine{reported("globex", "s1", "memory", "360Gi"), reported("globex", "s2", "memory", "511Gi"),
				reported("acme", "s3", "memory", "400Gi")},
			list("memory", "400Gi"), map[corev1.ResourceName][]string{"memory": {"acme", "globex"}}},
		"Exaggerated": {"the greater of two numbers counts: two agree that there is no more",
			[]v1alpha1.Machine{reported("acme", "s1", "cpu", "1"), reported("globex", "s2", "cpu", "48"), reported("initech", "s3", "cpu", "60")},
			list("cpu", "48"), map[corev1.ResourceName][]string{"cpu": {"acme", "globex"}}},
		"EachResource": {"they agree about cpu, and about nothing else",
			[]v1alpha1.Machine{reported("acme", "s1", "cpu", "32", "memory", "1Gi"), reported("globex", "s2", "cpu", "32", "memory", "511Gi")},
			list("cpu", "32", "memory", "508559Mi"), map[corev1.ResourceName][]string{"cpu": {"acme", "globex"}}},
		"OneServer": {"a server that has lost memory is none of the others",
			[]v1alpha1.Machine{reported("acme", "s1", "memory", "360Gi"), reported("globex", "s1", "memory", "360Gi")},
			list("memory", "508559Mi"), nil},
		"NotJoined": {"no server has been installed", []v1alpha1.Machine{claimed}, nil, nil},
		"Devices":   {"devices come and go", []v1alpha1.Machine{reported("acme", "s1", "nvidia.com/gpu", "0")}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			nodeType := &v1alpha1.NodeType{}
			nodeType.Spec.Resources = list("cpu", "64", "memory", "512Gi", "ephemeral-storage", "7Ti")
			nodeType.Status.SmallestNode = list("cpu", "2", "memory", "2Gi") // of Machines that are gone
			got := Believe(nodeType, tc.machines)
			if diff := cmp.Diff(Belief{Smallest: tc.want, Agreed: tc.agreed}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestUndeclared: accelerators that a type does not declare are believed if two tenants report them, because pods of all others are kept
// off the type then.
func TestUndeclared(t *testing.T) {
	advertises := func(namespace, server string, names ...string) v1alpha1.Machine {
		machine := reported(namespace, server)
		machine.Spec.Node.Accelerators = names
		return machine
	}
	gone := advertises("globex", "s2", "nvidia.com/gpu")
	gone.Status.Conditions = nil
	both := []v1alpha1.Machine{advertises("acme", "s1", "amd.com/gpu", "nvidia.com/gpu"),
		advertises("globex", "s2", "nvidia.com/gpu", "amd.com/gpu")}
	for name, tc := range map[string]struct {
		reason   string
		profile  v1alpha1.HardwareProfile
		machines []v1alpha1.Machine
		want     []string
	}{
		"Agreed": {reason: "two tenants have seen them", machines: both, want: []string{"amd.com/gpu", "nvidia.com/gpu"}},
		"Alone": {reason: "it is one tenant's word, however often",
			machines: []v1alpha1.Machine{advertises("acme", "s1", "nvidia.com/gpu"), advertises("acme", "s2", "nvidia.com/gpu")}},
		"OneServer": {reason: "one server may have been given them",
			machines: []v1alpha1.Machine{advertises("acme", "s1", "nvidia.com/gpu"), advertises("globex", "s1", "nvidia.com/gpu")}},
		"Other": {reason: "they do not agree",
			machines: []v1alpha1.Machine{advertises("acme", "s1", "nvidia.com/gpu"), advertises("globex", "s2", "amd.com/gpu")}},
		"NotJoined": {reason: "it says nothing of a server", machines: []v1alpha1.Machine{advertises("acme", "s1", "nvidia.com/gpu"), gone}},
		"Declared":  {reason: "what the author says counts", machines: both, profile: v1alpha1.HardwareProfile{Resources: list("cpu", "64")}},
		"Devices": {reason: "what the author says counts", machines: both,
			profile: v1alpha1.HardwareProfile{Devices: []v1alpha1.NodeTypeDevice{{Driver: "gpu.nvidia.com", Count: 8}}}},
	} {
		nodeType := &v1alpha1.NodeType{}
		nodeType.Spec.HardwareProfile = tc.profile
		if diff := cmp.Diff(tc.want, Believe(nodeType, tc.machines).Accelerators, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

// TestOneNamespaceIsBounded: whatever the Machines of one namespace report, and however many others agree with what inspection finds,
// no type is planned with less than a server of it may have.
func TestOneNamespaceIsBounded(t *testing.T) {
	random, seed := seeded(t)
	for range 5000 {
		nodeType, _ := drawType(random)
		bare := ServerOf(nodeType).Resources
		var machines []v1alpha1.Machine
		for n := range random.IntN(6) {
			size := corev1.ResourceList{}
			for _, name := range Measured() {
				most := bare[name]
				if random.IntN(4) > 0 {
					size[name] = *resource.NewMilliQuantity(int64(float64(most.MilliValue())*random.Float64()*1.2), most.Format)
				}
			}
			machine := reported("liar", fmt.Sprint("s", n))
			machine.Spec.Node.Resources = size
			machines = append(machines, machine)
		}
		for n := range random.IntN(3) {
			machine := reported(fmt.Sprint("honest", n), fmt.Sprint("h", n))
			machine.Spec.Node.Resources = bare.DeepCopy()
			machines = append(machines, machine)
		}
		random.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		nodeType.Status.SmallestNode = Believe(nodeType, machines).Smallest
		for name, least := range bare {
			if got := ServerOf(nodeType).Resources[name]; got.Cmp(least) < 0 {
				t.Fatalf("SEED=%d: %s is %s, and any server has %s\nresources %v\nmachines %v", seed, name, got.String(), least.String(),
					nodeType.Spec.Resources, machines)
			}
		}
	}
}

// BenchmarkBelieve is what a status of a type with 10,000 nodes costs.
func BenchmarkBelieve(b *testing.B) {
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
		Believe(nodeType, machines)
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
			if diff := cmp.Diff(want, Believe(&v1alpha1.NodeType{}, tc.machines).Provisioning); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNobodySetsTypicalTimeAlone: whatever one of several namespaces reports, and however often, the estimate is not longer than the
// longest of the others, and with three or more of them not shorter than the shortest.
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
		got := Believe(&v1alpha1.NodeType{}, machines).Provisioning.TypicalSeconds
		if got >= 720 || (honest > 1 && got < 600) {
			t.Errorf("seed %d: %d honest namespaces took 600 to 719 s, and the type usually takes %d s", seed, honest, got)
		}
	}
}
