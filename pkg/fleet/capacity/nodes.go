// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Nodes sums up the nodes of a type, from the status of its Machines.
type Nodes struct {
	// Smaller names Machines for people, sorted: their nodes have less cpu, memory or disk than any server that can be
	// claimed as the type. Nothing is decided by it, because tenants control their nodes.
	Smaller []string
	// Provisioning is nil if no Machine has joined without an interruption of its installation.
	Provisioning *v1alpha1.ProvisioningEstimate
}

// NodesOf sums up the nodes of a type. It ignores Machines that have not joined.
func NodesOf(nodeType *v1alpha1.NodeType, machines []v1alpha1.Machine) Nodes {
	nodes := Nodes{Provisioning: typical(machines)}
	resources, least := Declared(nodeType).Resources, corev1.ResourceList{}
	for _, name := range Measured() {
		if _, found := resources[name]; found {
			least[name] = tolerated(resources, name)
		}
	}
	for i := range machines {
		machine := &machines[i]
		var lacks []string
		for _, name := range Measured() {
			has, reported := machine.NodeSize()[name]
			if floor, found := least[name]; found && reported && has.Cmp(floor) < 0 {
				declared := resources[name]
				lacks = append(lacks, fmt.Sprintf("%s %s of %s", name, has.String(), declared.String()))
			}
		}
		if host := machine.Status.HostRef; len(lacks) > 0 && host != nil {
			nodes.Smaller = append(nodes.Smaller, fmt.Sprintf("%s/%s on %s/%s (%s)", machine.Namespace, machine.Name,
				host.Namespace, host.Name, strings.Join(lacks, ", ")))
		}
	}
	slices.Sort(nodes.Smaller)
	return nodes
}

// tolerated returns the least amount of a resource with which a server can still be claimed as a type. For memory it
// subtracts the tolerance, in whole MiB for messages; for other resources it returns all.
func tolerated(resources corev1.ResourceList, name corev1.ResourceName) resource.Quantity {
	has := resources[name]
	if name == corev1.ResourceMemory {
		return *resource.NewQuantity((has.Value()-MemoryTolerance(has.Value()))>>20<<20, resource.BinarySI)
	}
	return has
}

// typical returns how long servers of a type usually take from the claim to the node. A tenant can delay when its
// servers join. So each namespace has one vote, the median of its Machines, and the lower median of the votes counts:
// with two namespaces the shorter time, and with more a time that none of them sets alone.
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

// lowerMedian sorts the numbers, at least one, and returns their lower median.
func lowerMedian(numbers []int64) int64 {
	slices.Sort(numbers)
	return numbers[(len(numbers)-1)/2]
}
