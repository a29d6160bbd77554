// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet computes what a kubelet reports of a server. It follows Kubernetes' pkg/kubelet (nodestatus/setters.go,
// cm/node_container_manager_linux.go, cm/helpers.go, eviction/helpers.go) and nothing of this project: tests compare what Karpenter
// plans with to it.
package kubelet

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// defaultPods is the kubelet's default for max-pods.
const defaultPods = 110

// Resources returns what a kubelet with the arguments reports of a machine: its capacity, and what of it pods may use. The machine
// has what its kernel shows: threads, MemTotal, the file system of /var/lib/kubelet, huge pages, and what device plugins add.
func Resources(machine corev1.ResourceList, args map[string]string) (capacity, allocatable corev1.ResourceList) {
	capacity = machine.DeepCopy()
	pods, isSet := machine[corev1.ResourcePods]
	if !isSet {
		pods = *resource.NewQuantity(defaultPods, resource.DecimalSI)
	}
	if most, err := strconv.ParseInt(args["max-pods"], 10, 32); err == nil {
		pods = *resource.NewQuantity(most, resource.DecimalSI)
	}
	if perCore, err := strconv.ParseInt(args["pods-per-core"], 10, 32); err == nil && perCore > 0 {
		pods = *resource.NewQuantity(min(pods.Value(), perCore*machine.Cpu().Value()), resource.DecimalSI)
	}
	capacity[corev1.ResourcePods] = pods

	kubeReserved, systemReserved := pairs(args["kube-reserved"], "="), pairs(args["system-reserved"], "=")
	if cpus := countCPUs(args["reserved-cpus"]); cpus > 0 {
		delete(kubeReserved, "cpu")
		systemReserved["cpu"] = strconv.Itoa(cpus)
	}
	evictionHard := map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}
	if text, isSet := args["eviction-hard"]; isSet {
		evictionHard = pairs(text, "<") // signals that are not named have no threshold
	}
	allocatable = corev1.ResourceList{}
	for name, has := range capacity {
		reserved := resource.Quantity{}
		for _, set := range []map[string]string{kubeReserved, systemReserved} {
			if text, isSet := set[string(name)]; isSet {
				reserved.Add(resource.MustParse(text))
			}
		}
		switch name {
		case corev1.ResourceMemory:
			reserved.Add(threshold(evictionHard["memory.available"], has))
		case corev1.ResourceEphemeralStorage:
			reserved.Add(threshold(evictionHard["nodefs.available"], has))
		}
		left := has.DeepCopy()
		if left.Sub(reserved); left.Sign() < 0 {
			left = resource.Quantity{}
		}
		allocatable[name] = left
	}
	for name, has := range capacity {
		if strings.HasPrefix(string(name), "hugepages-") {
			memory := allocatable[corev1.ResourceMemory]
			if memory.Sub(has); memory.Sign() < 0 {
				memory = resource.Quantity{}
			}
			allocatable[corev1.ResourceMemory] = memory
		}
	}
	return capacity, allocatable
}

func pairs(text, separator string) map[string]string {
	result := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, value, found := strings.Cut(pair, separator); found {
			result[name] = value
		}
	}
	return result
}

func threshold(text string, capacity resource.Quantity) resource.Quantity {
	switch percent, is := strings.CutSuffix(text, "%"); {
	case text == "", text == "0%", text == "100%":
		return resource.Quantity{}
	case is:
		value, _ := strconv.ParseFloat(percent, 32)
		return *resource.NewQuantity(int64(float64(capacity.Value())*float64(float32(value)/100)), resource.BinarySI)
	}
	return resource.MustParse(text)
}

// countCPUs counts those of "0-3,8".
func countCPUs(text string) (count int) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if err == nil && errTo == nil {
			count += to - from + 1
		}
	}
	return count
}
