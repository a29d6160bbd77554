// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
)

// ArgMaxPods is the kubelet's argument for the maximum number of pods.
const ArgMaxPods = "max-pods"

// Kubelet is how a kubelet divides a server, according to its arguments. The zero Kubelet has no arguments.
type Kubelet struct {
	isSet                              bool
	maxPods, podsPerCore, reservedCPUs *int64 // nil: not set
	systemReserved                     corev1.ResourceList
	evictionHard                       map[corev1.ResourceName]threshold
}

// IsDefault reports whether no argument affects the resources of the node.
func (k Kubelet) IsDefault() bool { return !k.isSet }

// threshold of an eviction: a quantity, or a share of the capacity between 0 and 1. The kubelet has it as a float32.
type threshold struct {
	quantity resource.Quantity
	share    float32
}

// defaultEvictionHard are the kubelet's own thresholds. A signal that eviction-hard omits keeps its default here. The
// kubelet uses 0 instead, unless its configuration has mergeDefaultEvictionSettings, which we cannot know.
var defaultEvictionHard = map[corev1.ResourceName]threshold{
	corev1.ResourceMemory: {quantity: resource.MustParse("100Mi")}, corev1.ResourceEphemeralStorage: {share: 0.1},
}

var evictionSignals = map[string]corev1.ResourceName{
	"memory.available": corev1.ResourceMemory, "nodefs.available": corev1.ResourceEphemeralStorage,
}

// ParseKubelet reads a kubelet's arguments by their names without dashes. It ignores arguments without an effect on the
// resources of the node. The error names all that keep the kubelet from starting; the result has the others.
func ParseKubelet[T ~string](args map[string]T) (Kubelet, error) {
	kubelet := Kubelet{evictionHard: map[corev1.ResourceName]threshold{}}
	var errs []error
	parse := func(name string, set func(value string) error) {
		value, isSet := args[name]
		if !isSet {
			return
		}
		kubelet.isSet = true
		if err := set(string(value)); err != nil {
			errs = append(errs, fmt.Errorf("kubelet would not start with %s=%s: %w", name, value, err))
		}
	}
	number := func(target **int64) func(string) error {
		return func(value string) error {
			parsed, err := strconv.ParseUint(value, 10, 31)
			*target = ptr.To(int64(parsed)) //nolint:gosec // 31 bits
			return err
		}
	}
	parse(ArgMaxPods, number(&kubelet.maxPods))
	parse("pods-per-core", number(&kubelet.podsPerCore))
	parse("system-reserved", func(value string) error {
		kubelet.systemReserved = corev1.ResourceList{}
		return eachPair(value, "=", func(name, amount string) error {
			quantity, err := parseQuantity(amount)
			kubelet.systemReserved[corev1.ResourceName(name)] = quantity
			return err
		})
	})
	parse("reserved-cpus", func(value string) error {
		set, err := cpuset.Parse(value)
		kubelet.reservedCPUs = ptr.To(int64(set.Size()))
		return err
	})
	parse("eviction-hard", func(value string) error {
		return eachPair(value, "<", func(signal, value string) error {
			parsed, err := parseThreshold(value)
			if name, counts := evictionSignals[signal]; counts {
				kubelet.evictionHard[name] = parsed
			}
			return err
		})
	})
	return kubelet, errors.Join(errs...)
}

// eachPair parses "cpu=500m,memory=1Gi" or "memory.available<500Mi,nodefs.available<10%".
func eachPair(text, separator string, read func(name, value string) error) error {
	for pair := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(pair, separator)
		if pair != "" && !found {
			return fmt.Errorf("%q has no %q", pair, separator)
		}
		if found {
			if err := read(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
				return err
			}
		}
	}
	return nil
}

func parseQuantity(text string) (resource.Quantity, error) {
	quantity, err := resource.ParseQuantity(text)
	if err != nil || quantity.Sign() < 0 {
		return resource.Quantity{}, fmt.Errorf("%q is not a quantity such as 500m or 1Gi", text)
	}
	return quantity, nil
}

func parseThreshold(text string) (threshold, error) {
	percent, isShare := strings.CutSuffix(text, "%")
	if !isShare {
		quantity, err := parseQuantity(text)
		return threshold{quantity: quantity}, err
	}
	parsed, err := strconv.ParseFloat(percent, 32)
	if err != nil || parsed < 0 || parsed > 100 {
		return threshold{}, fmt.Errorf("%q is not between 0%% and 100%%", text)
	}
	if parsed == 100 { // as 0%: the kubelet ignores the signal
		parsed = 0
	}
	return threshold{share: float32(parsed) / 100}, nil
}

// quantityOf returns how much of a capacity the threshold sets aside. It rounds a share up to a MiB, for messages.
func (t threshold) quantityOf(capacity resource.Quantity) resource.Quantity {
	if t.share == 0 {
		return t.quantity.DeepCopy()
	}
	kept := int64(float64(capacity.Value()) * float64(t.share))
	return *resource.NewQuantity((kept+1<<20-1)>>20<<20, resource.BinarySI)
}

// MaxCapacity returns the largest capacity for which Allocatable is at most the given allocatable resources. It is
// relative to a server of the type, so anything that was set aside without our knowledge counts as missing. Memory and
// disk are in whole MiB: the kernels of servers of one model leave some KiB more or less.
func (k Kubelet) MaxCapacity(server Server, allocatable corev1.ResourceList) corev1.ResourceList {
	planned, divided := k.Allocatable(server), corev1.ResourceList{}
	for _, name := range Measured() {
		total, less := server.Resources[name].DeepCopy(), planned[name]
		has, reported := allocatable[name]
		// If nothing was planned for pods, how much is missing is unknown. A kubelet with zero has not measured yet.
		if !reported || has.Sign() <= 0 || less.Sign() <= 0 {
			continue
		}
		less.Sub(has)
		if share := k.threshold(name).share; share > 0 { // in a plan the share is rounded to a MiB
			less = *resource.NewQuantity(int64(float64(less.Value()+1<<20)/(1-float64(share))), resource.BinarySI)
		}
		if total.Sub(less); name != corev1.ResourceCPU {
			whole := total.Value() // rounded up
			if total.CmpInt64(whole) < 0 {
				whole--
			}
			total = *resource.NewQuantity(whole>>20<<20, resource.BinarySI)
		}
		if total.Sign() > 0 {
			divided[name] = total
		}
	}
	return divided
}

func (k Kubelet) threshold(name corev1.ResourceName) threshold {
	if set, isSet := k.evictionHard[name]; isSet {
		return set
	}
	return defaultEvictionHard[name]
}

// Server is what a kubelet divides: Resources is its node's capacity, KubeReserved what the NodeType sets aside.
type Server struct {
	Resources, KubeReserved corev1.ResourceList
}

// Node is the capacity that a node reports, and the parts of it that pods cannot use.
type Node struct {
	Capacity, KubeReserved, SystemReserved, EvictionReserved corev1.ResourceList
}

// Node returns the node that the kubelet makes of a server. The result shares no map with either.
func (k Kubelet) Node(server Server) Node {
	node := Node{
		Capacity: server.Resources.DeepCopy(), KubeReserved: server.KubeReserved.DeepCopy(), SystemReserved: k.systemReserved.DeepCopy(),
		EvictionReserved: corev1.ResourceList{},
	}
	if k.maxPods != nil {
		node.Capacity[corev1.ResourcePods] = *resource.NewQuantity(*k.maxPods, resource.DecimalSI)
	}
	if pods, known := node.Capacity[corev1.ResourcePods]; known && ptr.Deref(k.podsPerCore, 0) > 0 {
		pods.Set(min(pods.Value(), *k.podsPerCore*node.Capacity.Cpu().Value()))
		node.Capacity[corev1.ResourcePods] = pods
	}
	if ptr.Deref(k.reservedCPUs, 0) > 0 { // replaces all other reservations of cpus
		delete(node.KubeReserved, corev1.ResourceCPU)
		if node.SystemReserved == nil {
			node.SystemReserved = corev1.ResourceList{}
		}
		node.SystemReserved[corev1.ResourceCPU] = *resource.NewQuantity(*k.reservedCPUs, resource.DecimalSI)
	}
	for name := range defaultEvictionHard {
		if capacity, has := node.Capacity[name]; has {
			node.EvictionReserved[name] = k.threshold(name).quantityOf(capacity)
		}
	}
	return node
}

// Allocatable returns what the kubelet leaves of a server for pods, at least zero. Huge pages are part of the memory,
// but pods that request memory cannot use them.
func (k Kubelet) Allocatable(server Server) corev1.ResourceList {
	node := k.Node(server)
	hugePages := corev1.ResourceList{}
	for name, quantity := range node.Capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			quantity.Add(hugePages[corev1.ResourceMemory])
			hugePages[corev1.ResourceMemory] = quantity
		}
	}
	for _, reserved := range []corev1.ResourceList{node.KubeReserved, node.SystemReserved, node.EvictionReserved, hugePages} {
		for name, quantity := range reserved {
			if left, has := node.Capacity[name]; has {
				if left.Sub(quantity); left.Sign() < 0 {
					left = *resource.NewQuantity(0, left.Format)
				}
				node.Capacity[name] = left
			}
		}
	}
	return node.Capacity
}
