// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"maps"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Belief is what is believed, for all tenants, of the nodes of a type.
type Belief struct {
	// Smallest is how much cpu in cores, and memory and ephemeral-storage in bytes, its nodes have at least. It is nil if no node has
	// been measured.
	Smallest corev1.ResourceList
	// Agreed names, for each resource of which Smallest is less than inspection tolerates, the two namespaces that report it, sorted.
	Agreed map[corev1.ResourceName][]string
	// Accelerators are the names of those that nodes advertise and the type does not declare, sorted: the ones that two namespaces report
	// from different servers, at most MaxAccelerators.
	Accelerators []string
	// Provisioning is nil if no Machine has joined that was installed without an interruption.
	Provisioning *v1alpha1.ProvisioningEstimate
}

// Believe returns what the Machines of a type say of its nodes. A tenant has control of its nodes, and shares the type with others. So
// one namespace counts only as far as a server may have less than its type declares and still be claimed as it. Less is believed if a
// second namespace, with another server, reports it too: then the greater of the two numbers counts. Of the time that a server takes, no
// namespace decides for the others either. Machines that have not joined do not count. What is believed depends on these Machines alone,
// and not on earlier ones.
func Believe(nodeType *v1alpha1.NodeType, machines []v1alpha1.Machine) Belief {
	belief := Belief{Provisioning: typical(machines), Accelerators: undeclared(nodeType, machines)}
	resources := declared(nodeType).Resources
	for _, name := range Measured() {
		if _, found := resources[name]; !found {
			continue
		}
		first, least := leastOf(machines, name, nil)
		if first == nil {
			continue
		}
		if belief.Smallest == nil {
			belief.Smallest = corev1.ResourceList{}
		}
		if floor := tolerated(resources, name); least.Cmp(floor) < 0 {
			least = floor
			if second, has := leastOf(machines, name, first); second != nil && has.Cmp(floor) < 0 {
				least = has
				if belief.Agreed == nil {
					belief.Agreed = map[corev1.ResourceName][]string{}
				}
				belief.Agreed[name] = []string{first.Namespace, second.Namespace}
				slices.Sort(belief.Agreed[name])
			}
		}
		belief.Smallest[name] = least.DeepCopy()
	}
	return belief
}

// MaxAccelerators bounds how many names of accelerators are believed.
const MaxAccelerators = 16

// undeclared are the accelerators that two namespaces report from nodes on different servers of a type that names nothing.
func undeclared(nodeType *v1alpha1.NodeType, machines []v1alpha1.Machine) []string {
	if !nodeType.Spec.NamesNothing() {
		return nil
	}
	first, agreed := map[string]*v1alpha1.Machine{}, map[string]bool{}
	for i := range machines {
		machine := &machines[i]
		for _, name := range machine.NodeAccelerators() {
			if earlier := first[name]; earlier == nil {
				first[name] = machine
			} else if earlier.Namespace != machine.Namespace && !sameServer(earlier, machine) {
				agreed[name] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(agreed))
	return names[:min(len(names), MaxAccelerators)]
}

// leastOf returns the Machine whose node has least of a resource, and how much. Those of the namespace of first, and of its server, are
// left out. It parses nothing: a type may have ten thousand nodes.
func leastOf(machines []v1alpha1.Machine, name corev1.ResourceName,
	first *v1alpha1.Machine) (found *v1alpha1.Machine, least resource.Quantity) {
	for i := range machines {
		machine := &machines[i]
		if first != nil && (machine.Namespace == first.Namespace || sameServer(machine, first)) {
			continue
		}
		if has, reported := machine.NodeSize()[name]; reported && (found == nil || has.Cmp(least) < 0) {
			found, least = machine, has
		}
	}
	return found, least
}

func sameServer(a, b *v1alpha1.Machine) bool {
	return a.Status.HostRef != nil && b.Status.HostRef != nil && *a.Status.HostRef == *b.Status.HostRef
}

// tolerated is the least of a resource that a server may have and still be claimed as a type with these: memory less its tolerance, in
// whole MiB for messages, and all of the others.
func tolerated(resources corev1.ResourceList, name corev1.ResourceName) resource.Quantity {
	has := resources[name]
	if name == corev1.ResourceMemory {
		return *resource.NewQuantity((has.Value()-MemoryTolerance(has.Value()))>>20<<20, resource.BinarySI)
	}
	return has
}

// typical returns how long servers of a type usually take from the claim to the node. A tenant can delay when its servers join. So each
// namespace has one vote, the median of its Machines, and the lower median of the votes counts: with two namespaces the shorter one, and
// with more a time that none of them sets alone.
func typical(machines []v1alpha1.Machine) *v1alpha1.ProvisioningEstimate {
	took := map[string][]int64{}
	for i := range machines {
		machine := &machines[i]
		progress := machine.Status.Progress
		if !machine.HasJoined() || progress == nil || progress.Step < progress.Steps || progress.Interrupted {
			continue
		}
		// Below 0 if the clock was set back meanwhile.
		if seconds := int64(progress.LastProgressTime.Sub(progress.StartTime.Time).Round(time.Second) / time.Second); seconds >= 0 {
			took[machine.Namespace] = append(took[machine.Namespace], seconds)
		}
	}
	votes := lo.MapToSlice(took, func(_ string, seconds []int64) int64 { return lowerMedian(seconds) })
	if len(votes) == 0 {
		return nil
	}
	return &v1alpha1.ProvisioningEstimate{TypicalSeconds: lowerMedian(votes)}
}

// lowerMedian sorts the numbers, of which there is at least one.
func lowerMedian(numbers []int64) int64 {
	slices.Sort(numbers)
	return numbers[(len(numbers)-1)/2]
}
