// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// hardware has the results of Metal3's inspection that a type's resources can be compared with. Zero means not found.
type hardware struct {
	cpus, memory, disks int64 // threads, bytes, bytes
	// smallestDisk is the one that an operating system may be on, in bytes.
	smallestDisk int64
}

func hardwareOf(host *bmov1alpha1.BareMetalHost) hardware {
	details := host.Status.HardwareDetails
	if details == nil {
		return hardware{}
	}
	found := hardware{cpus: int64(details.CPU.Count), memory: int64(details.RAMMebibytes) << 20}
	for i := range details.Storage {
		size := int64(details.Storage[i].SizeBytes)
		found.disks += size
		if size >= capacity.SmallestRootDisk && (found.smallestDisk == 0 || size < found.smallestDisk) {
			found.smallestDisk = size
		}
	}
	return found
}

// Lacks returns what a host has less of than the resources of a type say, in words: "cpu 64 of 96, memory 512Gi of 768Gi". It
// is empty for a host that is big enough, or of which nothing else is known: a host that has not been inspected is not
// judged, and neither is what inspection does not find, such as accelerators.
//
// cpu is threads, as kubelet counts them, and may not be less at all. memory may be less by
// capacity.MemoryTolerance. ephemeral-storage may not be more than all disks together.
func Lacks(host *bmov1alpha1.BareMetalHost, resources corev1.ResourceList) string {
	return hardwareOf(host).lacks(resources)
}

func (h hardware) lacks(resources corev1.ResourceList) string {
	var lacking []string
	compare := func(name corev1.ResourceName, found, tolerance int64, format resource.Format) {
		said, named := resources[name]
		if has := resource.NewQuantity(found, format); found > 0 && named && said.Cmp(*resource.NewQuantity(found+tolerance, format)) > 0 {
			lacking = append(lacking, fmt.Sprintf("%s %s of %s", name, has, said.String()))
		}
	}
	memory := resources.Memory().Value()
	compare(corev1.ResourceCPU, h.cpus, 0, resource.DecimalSI)
	compare(corev1.ResourceMemory, h.memory, capacity.MemoryTolerance(memory), resource.BinarySI)
	compare(corev1.ResourceEphemeralStorage, h.disks, 0, resource.BinarySI)
	return strings.Join(lacking, ", ")
}

// TrimHost drops from a host what no decision reads, before it goes into a cache. With thousands of hosts, what inspection
// has found is most of a program's memory. What remains is how big the host is and how its network interfaces are named.
// Templates may read all of a host: they are rendered with one that is read from the API server.
//
// A trimmed host must be written as a patch of what has changed, never as a whole.
func TrimHost(host *bmov1alpha1.BareMetalHost) {
	delete(host.Annotations, bmov1alpha1.HardwareDetailsAnnotation)
	host.Status.OperationHistory = bmov1alpha1.OperationHistory{}
	host.Status.GoodCredentials = bmov1alpha1.CredentialsStatus{}
	host.Status.TriedCredentials = bmov1alpha1.CredentialsStatus{}
	host.Status.Provisioning.Firmware = nil
	details := host.Status.HardwareDetails
	if details == nil {
		return
	}
	kept := &bmov1alpha1.HardwareDetails{
		RAMMebibytes: details.RAMMebibytes,
		CPU:          bmov1alpha1.CPU{Arch: details.CPU.Arch, Count: details.CPU.Count},
		NIC:          make([]bmov1alpha1.NIC, len(details.NIC)),
		Storage:      disksOf(details.Storage),
	}
	for i := range details.NIC {
		kept.NIC[i] = bmov1alpha1.NIC{Name: details.NIC[i].Name, MAC: details.NIC[i].MAC}
	}
	host.Status.HardwareDetails = kept
}

// sharedDisks are lists of disks by their sizes. Thousands of servers have the same, and a list of ten disks takes 2 KiB.
var sharedDisks sync.Map

// disksOf returns disks that have nothing but their sizes. The list must not be written to: other hosts have it, too.
func disksOf(disks []bmov1alpha1.Storage) []bmov1alpha1.Storage {
	var sizes []byte
	for i := range disks {
		sizes = strconv.AppendInt(append(sizes, ' '), int64(disks[i].SizeBytes), 10)
	}
	shared, known := sharedDisks.Load(string(sizes))
	if !known {
		kept := make([]bmov1alpha1.Storage, len(disks))
		for i := range disks {
			kept[i].SizeBytes = disks[i].SizeBytes
		}
		shared, _ = sharedDisks.LoadOrStore(string(sizes), kept)
	}
	return shared.([]bmov1alpha1.Storage)
}

// MaxNamed is how many of the servers that are too small are named.
const MaxNamed = 5

// SmallServer is a host that a type selects and that has less than the type says.
type SmallServer struct {
	// Server is namespace/name of the host.
	Server string
	// Lacks is what it has less of, in words: "cpu 64 of 96".
	Lacks string
}

// String names the server and what it lacks: "metal3/server-01 (cpu 64 of 96)".
func (s SmallServer) String() string { return fmt.Sprintf("%s (%s)", s.Server, s.Lacks) }

// Named lists servers of which there are count, of which the first are given.
func Named(servers []SmallServer, count int) string {
	parts := make([]string, 0, len(servers)+1)
	for _, server := range servers {
		parts = append(parts, server.String())
	}
	if more := count - len(servers); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// as is what a host that counts like this adds to the counts of a type, for which it may be too small. It is that
// whatever else is the matter with it, and is never to be had.
func (h *host) as(typeName string, counts Counts) Counts {
	if h.lacks[typeName] != "" {
		counts.TooSmall, counts.Available, counts.NotReady = counts.Total, 0, 0
	}
	return counts
}

// tooSmall are the first, by name, of the hosts that are too small for the type and whose nodes would have labels that meet
// the requirements. It looks at buckets, and at few hosts of each.
func (t *nodeType) tooSmall(requirements []labels.Requirement) []SmallServer {
	if t.counts.TooSmall == 0 {
		return nil
	}
	var first []*host
	for _, b := range t.buckets {
		if b.counts.TooSmall == 0 || matching.Unmet(requirements, nodeLabels{b.labels, t.labels}) != nil {
			continue
		}
		first = append(first, b.small[:min(len(b.small), MaxNamed)]...)
	}
	slices.SortFunc(first, byName)
	var named []SmallServer
	for _, h := range first[:min(len(first), MaxNamed)] {
		named = append(named, SmallServer{Server: h.key.String(), Lacks: h.lacks[t.profile.Name]})
	}
	return named
}

// TooSmall looks, among the hosts of a namespace that a selector selects, for those that have less than the resources say.
// It returns the first of them by name, and how many there are. It looks at the hosts that Matching looks at.
func (i *Inventory) TooSmall(namespace string, selector labels.Selector, resources corev1.ResourceList) (first []SmallServer, count int) {
	i.lock.Lock()
	defer i.lock.Unlock()
	i.candidates(namespace, selector, func(h *host) {
		if h.key.Namespace != namespace || !selector.Matches(labels.Set(h.labels)) {
			return
		}
		if lacks := h.hardware.lacks(resources); lacks != "" {
			first = append(first, SmallServer{Server: h.key.String(), Lacks: lacks})
		}
	})
	slices.SortFunc(first, func(a, b SmallServer) int { return strings.Compare(a.Server, b.Server) })
	return first[:min(len(first), MaxNamed)], len(first)
}
