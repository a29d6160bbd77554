// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// hardware has the results of Metal3's inspection that can be compared with a type's resources. Zero means not found.
type hardware struct {
	cpus, memory, disks int64 // threads, bytes, bytes
	// smallestDisk is the smallest disk that an operating system may be on, in bytes.
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

// amount returns the cpu or memory that inspection found, in threads or bytes.
func (h hardware) amount(name corev1.ResourceName) int64 {
	if name == corev1.ResourceCPU {
		return h.cpus
	}
	return h.memory
}

// unknown reports whether inspection has not found one of the resources.
func (h hardware) unknown(names []corev1.ResourceName) bool {
	return slices.ContainsFunc(names, func(name corev1.ResourceName) bool { return h.amount(name) == 0 })
}

// Lacks returns the resources of a type that a host has less of, in words: "cpu 64 of 96, memory 512Gi of 768Gi". It is
// empty for a host that is big enough. A host that was not inspected is not judged. Nor is a resource that inspection
// does not find, such as accelerators.
//
// cpu is threads, as kubelet counts them, and may not be less at all. memory may be less by capacity.MemoryTolerance.
// ephemeral-storage may not be more than all disks together.
func Lacks(host *bmov1alpha1.BareMetalHost, resources corev1.ResourceList) string {
	return hardwareOf(host).lacks(resources)
}

func (h hardware) lacks(resources corev1.ResourceList) string {
	var lacking []string
	compare := func(name corev1.ResourceName, found, tolerance int64, format resource.Format) {
		declared, named := resources[name]
		if has := resource.NewQuantity(found, format); found > 0 && named && declared.Cmp(*resource.NewQuantity(found+tolerance, format)) > 0 {
			lacking = append(lacking, fmt.Sprintf("%s %s of %s", name, has, declared.String()))
		}
	}
	memory := resources.Memory().Value()
	compare(corev1.ResourceCPU, h.cpus, 0, resource.DecimalSI)
	compare(corev1.ResourceMemory, h.memory, capacity.MemoryTolerance(memory), resource.BinarySI)
	compare(corev1.ResourceEphemeralStorage, h.disks, 0, resource.BinarySI)
	return strings.Join(lacking, ", ")
}

// TrimHost drops from a host what no decision reads, before the host goes into a cache. With thousands of hosts,
// inspection data would be most of a program's memory. The size of the host and the names of its network interfaces
// remain. Templates may read all of a host: they are rendered with a host from the API server.
//
// A program must write a trimmed host as a patch of its changes, never as a whole.
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

// sharedDisks are lists of disks by their sizes. Thousands of servers share a list; one of ten disks takes 2 KiB.
var sharedDisks sync.Map

// disksOf returns disks with only their sizes. The caller must not write to the list: other hosts share it.
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

// MaxNamed is how many of the too small servers are named.
const MaxNamed = 5

// Least is the smallest amount of a resource that inspection has found in the hosts of a type.
type Least struct {
	Quantity resource.Quantity
	// Server is the first host, by name, with no more than that, as namespace/name.
	Server string
}

// least returns the least amounts of the resources that the type leaves out.
func (t *nodeType) least() map[corev1.ResourceName]Least {
	var least map[corev1.ResourceName]Least
	for name, found := range t.found {
		if len(found) == 0 {
			continue
		}
		if least == nil {
			least = map[corev1.ResourceName]Least{}
		}
		format := resource.BinarySI
		if name == corev1.ResourceCPU {
			format = resource.DecimalSI
		}
		size := slices.Min(slices.Collect(maps.Keys(found)))
		least[name] = Least{Quantity: *resource.NewQuantity(size, format), Server: found[size][0].key.String()}
	}
	return least
}

// SmallServer is a host of a type that has less than the type says.
type SmallServer struct {
	// Server is namespace/name of the host.
	Server string
	// Lacks is what the host has less of, in words: "cpu 64 of 96".
	Lacks string
}

// String names the server and what it lacks: "metal3/server-01 (cpu 64 of 96)".
func (s SmallServer) String() string { return fmt.Sprintf("%s (%s)", s.Server, s.Lacks) }

// Named lists the given servers and says how many more there are; count is the number of all.
func Named(servers []SmallServer, count int) string {
	parts := lo.Map(servers, func(server SmallServer, _ int) string { return server.String() })
	if more := count - len(servers); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// countedAs returns what a host with these counts adds to the counts of a type. A host that is too small for the type
// counts as too small whatever else is wrong with it, and is never available.
func (h *host) countedAs(typeName string, counts Counts) Counts {
	if h.lacks[typeName] != "" {
		counts.TooSmall, counts.Available, counts.NotReady, counts.NotCleaned, counts.Maintenance = counts.Total, 0, 0, 0, 0
	}
	if h.buckets[typeName].anyTenant {
		counts.Available, counts.NotCleaned = counts.Available+counts.NotCleaned, 0
	}
	if h.hardware.unknown(h.buckets[typeName].leftOut) {
		counts.NotReady, counts.Available, counts.NotCleaned = counts.NotReady+counts.Available+counts.NotCleaned, 0, 0
	}
	return counts
}

// freeFor returns the only tenant that can claim a host with these counts, empty for any, and whether one can at all.
func (h *host) freeFor(counts Counts) (tenant string, free bool) {
	if counts.NotCleaned > 0 {
		return h.eligibility.LastTenant, h.eligibility.LastTenant != ""
	}
	return "", counts.Available > 0
}

// tooSmall returns the first, by name, of the hosts that are too small for the type and whose nodes would have labels
// that meet the requirements. It looks at buckets, and at few hosts of each.
func (t *nodeType) tooSmall(requirements requirements) []SmallServer {
	if t.counts.TooSmall == 0 {
		return nil
	}
	var first []*host
	for _, b := range t.buckets {
		if b.counts.TooSmall == 0 || requirements.unmet(t, b) != nil {
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

// host is the inventory's record of a BareMetalHost: only what a decision or a count depends on.
type host struct {
	key         types.NamespacedName
	uid         types.UID
	labels      map[string]string // the informer's own map, never written to
	arch        string
	hardware    hardware
	eligibility Eligibility
	// claimedAs is the type that one of our Machines has claimed the host as, by its annotation.
	claimedAs string
	// assumedBy is the Machine that the host was given to while its claim is not on the host yet.
	assumedBy types.UID
	assumedAs string
	// assumedFor is the namespace of the Machine in assumedBy.
	assumedFor string
	// heldBy is the tenant that the host belongs to in its domains while it is not assumed. If that is only because it
	// was not cleaned (uncleaned), and all its types say anyTenant, the host belongs to nobody.
	heldBy               string
	uncleaned, anyTenant bool
	// domains that the host is in, by label.
	domains []*domain
	// claim is the last claim that was decided.
	claim claim
	// buckets of the host by type, one for each type that it matches.
	buckets map[string]*bucket
	// lacks names what the host has less of than a type declares, by the name of the type; empty if it is big enough.
	lacks map[string]string
	// suspect is true if the host is quarantined on the word of a tenant alone.
	suspect bool
	// faulty is true if the last use of the host ended in a fault.
	faulty       bool
	provisioning bmov1alpha1.ProvisioningState
	// matches are the names of the types that the host matches, sorted.
	matches []string
}

// claim of a host by a Machine.
type claim struct {
	machine types.UID
	number  int64
}

func newHost(from *bmov1alpha1.BareMetalHost) *host {
	h := &host{
		key:          types.NamespacedName{Namespace: from.Namespace, Name: from.Name},
		uid:          from.UID,
		labels:       from.Labels,
		arch:         architecture(from),
		hardware:     hardwareOf(from),
		eligibility:  EligibilityOf(from),
		provisioning: from.Status.Provisioning.State,
		buckets:      map[string]*bucket{},
		lacks:        map[string]string{},
	}
	h.heldBy, h.uncleaned = holderOf(from)
	h.faulty = has(from, v1alpha1.FaultAnnotationKey)
	quarantine, _ := QuarantineOf(from)
	h.suspect = quarantine.Suspect
	if consumer := from.Spec.ConsumerRef; consumer != nil && groupOf(consumer) == v1alpha1.Group {
		h.claimedAs = from.Annotations[v1alpha1.NodeTypeAnnotationKey]
	}
	return h
}

// alike reports whether two states of a host belong to the same buckets.
func (h *host) alike(other *host) bool {
	return h.arch == other.arch && h.hardware == other.hardware && maps.Equal(h.labels, other.labels) &&
		h.eligibility.LastTenant == other.eligibility.LastTenant && h.suspect == other.suspect && h.faulty == other.faulty
}

func (h *host) reference() v1alpha1.HostReference {
	return v1alpha1.HostReference{Namespace: h.key.Namespace, Name: h.key.Name, UID: h.uid}
}

// usedAs returns the type whose maxCapacity the host counts against, empty if none.
func (h *host) usedAs() string {
	if h.assumedBy != "" {
		return h.assumedAs
	}
	return h.claimedAs
}

// counts returns what the host adds to the counts of a type that it is big enough for.
func (h *host) counts() Counts {
	counts := Counts{Total: 1}
	if h.eligibility.UsedBy != "" {
		counts.Foreign = 1
	}
	if h.eligibility.Quarantined {
		counts.AllQuarantined = 1
	}
	if h.suspect {
		counts.Suspects = 1
	}
	if h.eligibility.Claimed || h.assumedBy != "" {
		counts.Claimed = 1
		return counts
	}
	switch h.eligibility.Reason {
	case "":
		counts.Available = 1
	case ReasonQuarantined:
		counts.Quarantined = 1
	case ReasonError:
		counts.Error = 1
	case ReasonMaintenance:
		counts.Maintenance = 1
	case ReasonNotCleaned:
		counts.NotCleaned = 1
	default:
		counts.NotReady = 1
	}
	return counts
}

func byName(a, b *host) int {
	return cmp.Or(strings.Compare(a.key.Namespace, b.key.Namespace), strings.Compare(a.key.Name, b.key.Name))
}

// byFault orders hosts whose last use ended in a fault last, and then by name.
func byFault(a, b *host) int {
	if a.faulty != b.faulty {
		return lo.Ternary(a.faulty, 1, -1)
	}
	return byName(a, b)
}

// architecture returns a value of kubernetes.io/arch. Hosts that were not inspected count as amd64, as most are.
func architecture(from *bmov1alpha1.BareMetalHost) string {
	reported := from.Spec.Architecture
	if details := from.Status.HardwareDetails; details != nil && details.CPU.Arch != "" {
		reported = details.CPU.Arch
	}
	switch reported {
	case "aarch64", "arm64":
		return "arm64"
	}
	return "amd64"
}
