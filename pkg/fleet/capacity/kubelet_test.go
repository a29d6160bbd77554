// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/kubelet"
)

func TestParseKubelet(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   map[string]string
		wrong  string
	}{
		"None":   {"the defaults", nil, ""},
		"Others": {"what does not concern the resources is not looked at", map[string]string{"v": "many"}, ""},
		"All": {"as the documentation of the kubelet writes them", map[string]string{"max-pods": "200", "pods-per-core": "4",
			"system-reserved": "cpu=500m,memory=1Gi,ephemeral-storage=10Gi,pid=1000", "reserved-cpus": "0-3,8",
			"eviction-hard": "memory.available<5%,nodefs.available<50Gi,imagefs.available<15%"}, ""},
		"Pods":     {"a word", map[string]string{"max-pods": "many"}, `kubelet would not start with max-pods=many`},
		"Reserved": {"no quantity", map[string]string{"system-reserved": "cpu=lots"}, "kubelet would not start with system-reserved=cpu=lots"},
		"Eviction": {"another operator", map[string]string{"eviction-hard": "memory.available>1Gi"},
			"kubelet would not start with eviction-hard=memory.available>1Gi"},
		"CPUs": {"no set", map[string]string{"reserved-cpus": "a-b"}, "kubelet would not start with reserved-cpus=a-b"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseKubelet(tc.args)
			if got := fmt.Sprint(err); (err == nil) != (tc.wrong == "") || err != nil && got[:min(len(got), len(tc.wrong))] != tc.wrong {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.wrong)
			}
		})
	}
}

func TestNode(t *testing.T) {
	nodeType := &v1alpha1.NodeType{}
	nodeType.Spec.Resources = list("cpu", "64", "memory", "512Gi", "ephemeral-storage", "100Gi", "hugepages-1Gi", "64Gi", "pods", "250")
	nodeType.Spec.Overhead = &v1alpha1.NodeTypeOverhead{KubeReserved: list("cpu", "1", "memory", "2Gi")}
	for name, tc := range map[string]struct {
		reason string
		args   map[string]string
		want   corev1.ResourceList
	}{
		"Defaults": {"kubeReserved, huge pages, memory.available<100Mi, nodefs.available<10%", nil,
			list("cpu", "63", "memory", "430.54234375Gi", "ephemeral-storage", "90Gi", "pods", "250")},
		"Arguments": {"all that a class may say", map[string]string{"max-pods": "50", "system-reserved": "memory=8Gi,cpu=500m",
			"eviction-hard": "memory.available<1Gi,nodefs.available<5Gi"},
			list("cpu", "62500m", "memory", "421.64Gi", "ephemeral-storage", "95Gi", "pods", "50")},
		"OneSignal": {"the other keeps its default: the kubelet's configuration may say so",
			map[string]string{"eviction-hard": "memory.available<100Mi"},
			list("cpu", "63", "memory", "430.54234375Gi", "ephemeral-storage", "90Gi", "pods", "250")},
		"ReservedCPUs": {"instead of all other reservations of cpus", map[string]string{"reserved-cpus": "0-3", "system-reserved": "cpu=10"},
			list("cpu", "60", "memory", "430.54234375Gi", "ephemeral-storage", "90Gi", "pods", "250")},
		"PodsPerCore": {"if it is less", map[string]string{"pods-per-core": "2"},
			list("cpu", "63", "memory", "430.54234375Gi", "ephemeral-storage", "90Gi", "pods", "128")},
		"Nothing": {"never less", map[string]string{"system-reserved": "memory=1Ti,cpu=64"},
			list("cpu", "0", "memory", "0", "ephemeral-storage", "90Gi", "pods", "250")},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := ParseKubelet(tc.args)
			if err != nil {
				t.Fatal(err)
			}
			got := parsed.Allocatable(ServerOf(nodeType, nil))
			delete(got, "hugepages-1Gi")
			for name, want := range tc.want {
				has := got[name]
				tolerance := 0.0
				if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
					tolerance = 1 << 20
				}
				if diff := has.AsApproximateFloat64() - want.AsApproximateFloat64(); diff > tolerance || diff < -tolerance {
					t.Errorf("%s: %s is %s, want %s, bytes to the MiB", tc.reason, name, has.String(), want.String())
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

// TestPlannedIsThere: whatever the type, the arguments of the kubelet and the hardware of a server that may be claimed as the type, a
// node has at least what Karpenter plans with. If it has less, Karpenter launches servers for a pod that fits none of them, one
// after the other.
func TestPlannedIsThere(t *testing.T) {
	random, seed := seeded(t)
	for range 20000 {
		nodeType, machine := drawType(random)
		args := drawArgs(random)
		parsed, err := ParseKubelet(args)
		if err != nil {
			t.Fatal(err)
		}
		if reserved := nodeType.KubeReserved(); reserved != "" {
			args["kube-reserved"] = reserved
		}
		_, has := kubelet.Resources(machine, args)
		var own corev1.ResourceList
		if random.IntN(2) == 0 { // a node like this one has been there, with something set aside that is not known
			for _, name := range Measured() {
				left := has[name]
				// A kubelet that had something still has something: nothing would mean that it has not measured it.
				least := min(1, left.MilliValue())
				left = *resource.NewMilliQuantity(max(least, int64(float64(left.MilliValue())*(0.9+random.Float64()/10))), left.Format)
				has[name] = left
			}
			own = parsed.MaxCapacity(ServerOf(nodeType, nil), has)
		}
		server := ServerOf(nodeType, own)
		server.Resources[corev1.ResourcePods] = resource.MustParse("110")
		planned := parsed.Allocatable(server)
		for name, quantity := range planned {
			if got := has[name]; got.Cmp(quantity) < 0 {
				t.Fatalf("SEED=%d: %s: planned %s, a kubelet has %s\nresources %v, status.ephemeralStorage %s\narguments %v\nmachine %v", seed, name,
					quantity.String(), got.String(), nodeType.Spec.Resources, nodeType.Status.EphemeralStorage, args, machine)
			}
		}
	}
}

// TestPlannedIsThereToTheByte: a node that has a fraction of a byte less than planned has the next lower MiB.
func TestPlannedIsThereToTheByte(t *testing.T) {
	server := Server{Resources: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("4Gi")}}
	has := Kubelet{}.Allocatable(server)[corev1.ResourceMemory]
	has.Sub(resource.MustParse("369m"))
	server.Resources = Kubelet{}.MaxCapacity(server, corev1.ResourceList{corev1.ResourceMemory: has})
	if planned := (Kubelet{}).Allocatable(server)[corev1.ResourceMemory]; planned.Cmp(has) > 0 {
		t.Errorf("planned %s, the kubelet has %s", planned.String(), has.String())
	}
}

// TestNothingIsNoCapacity: what a kubelet leaves of a share does not become a capacity that no API server takes.
func TestNothingIsNoCapacity(t *testing.T) {
	got := Kubelet{}.MaxCapacity(Server{Resources: list("ephemeral-storage", "100Gi", "cpu", "8")}, list("ephemeral-storage", "1", "cpu", "7"))
	if diff := cmp.Diff(list("cpu", "7"), got); diff != "" {
		t.Errorf("a node with a byte of disk (-want +got):\n%s", diff)
	}
}

// seeded is a source of random numbers, and its seed: that of SEED, or another for each run.
func seeded(t *testing.T) (*rand.Rand, uint64) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		parsed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = parsed
	}
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// drawType draws a type, and a machine that may be claimed as it: as its kernel shows it.
func drawType(random *rand.Rand) (*v1alpha1.NodeType, corev1.ResourceList) {
	bytes := func(gib float64) resource.Quantity {
		return *resource.NewQuantity(int64(gib*(1<<30)), resource.BinarySI)
	}
	nodeType := &v1alpha1.NodeType{}
	memory := []float64{2, 4, 16, 62.3, 256, 768, 2048}[random.IntN(7)] * (0.9 + random.Float64()/5)
	cpus := int64(1 + random.IntN(256))
	nodeType.Spec.Resources = corev1.ResourceList{"cpu": *resource.NewQuantity(cpus, resource.DecimalSI), "memory": bytes(memory)}
	declared := nodeType.Spec.Resources["memory"]
	// Firmware and kernel keep a share of what the type says, up to what is tolerated of inspection.
	kept := random.Int64N(MemoryTolerance(declared.Value()) + 1)
	machine := corev1.ResourceList{"cpu": *resource.NewQuantity(cpus+random.Int64N(3), resource.DecimalSI),
		"memory": *resource.NewQuantity(declared.Value()-kept, resource.BinarySI)}
	if random.IntN(2) == 0 {
		huge := bytes(float64(random.IntN(int(memory))))
		nodeType.Spec.Resources["hugepages-2Mi"], machine["hugepages-2Mi"] = huge, huge
	}
	disk := float64(8 + random.IntN(8000))
	if random.IntN(2) == 0 {
		nodeType.Spec.Resources["ephemeral-storage"], machine["ephemeral-storage"] = bytes(disk), bytes(disk*(1+random.Float64()))
	} else {
		nodeType.Status.EphemeralStorage = EphemeralStorage(&nodeType.Spec.HardwareProfile, int64(disk*(1<<30)), resource.Quantity{})
		machine["ephemeral-storage"] = bytes(min(disk*0.92, disk-1)) // boot partitions and the tables of ext4
	}
	if random.IntN(2) == 0 {
		nodeType.Spec.Overhead = &v1alpha1.NodeTypeOverhead{KubeReserved: corev1.ResourceList{
			"cpu": *resource.NewMilliQuantity(random.Int64N(cpus*1000), resource.DecimalSI), "memory": bytes(random.Float64() * memory),
			"ephemeral-storage": bytes(random.Float64() * 10)}}
	}
	return nodeType, machine
}

func drawArgs(random *rand.Rand) map[string]string {
	args := map[string]string{}
	for _, argument := range []struct {
		name string
		draw func() string
	}{
		{"max-pods", func() string { return strconv.Itoa(1 + random.IntN(500)) }},
		{"pods-per-core", func() string { return strconv.Itoa(random.IntN(10)) }},
		{"system-reserved", func() string {
			return fmt.Sprintf("cpu=%dm,memory=%dMi,ephemeral-storage=%dGi,pid=100", random.IntN(8000), random.IntN(1<<17), random.IntN(50))
		}},
		{"reserved-cpus", func() string { return fmt.Sprintf("0-%d,200", random.IntN(4)) }},
		{"eviction-hard", func() string {
			return []string{
				"memory.available<500Mi", "memory.available<5%,nodefs.available<12.5%", "nodefs.available<1Gi,imagefs.available<5%",
				"memory.available<0%,nodefs.available<100%",
				fmt.Sprintf("memory.available<%d%%,nodefs.available<%d%%", random.IntN(101), random.IntN(101)),
			}[random.IntN(5)]
		}},
		{"cpu-manager-policy", func() string { return "static" }},
	} {
		if random.IntN(3) == 0 {
			args[argument.name] = argument.draw()
		}
	}
	return args
}

func list(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

func TestMemoryTolerance(t *testing.T) {
	got := []int64{}
	for _, gib := range []int64{2, 4, 16, 100} {
		got = append(got, MemoryTolerance(gib<<30)>>20)
	}
	if diff := cmp.Diff([]int64{512, 1024, 1024, 3072}, got); diff != "" {
		t.Errorf("MiB of 2, 4, 16 and 100 GiB (-want +got):\n%s", diff)
	}
}
