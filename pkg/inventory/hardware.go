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
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
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

// amount returns how much cpu or memory was found, in threads or bytes.
func (h hardware) amount(name corev1.ResourceName) int64 {
	if name == corev1.ResourceCPU {
		return h.cpus
	}
	return h.memory
}

// unknown returns whether inspection has not found one of the resources.
func (h hardware) unknown(names []corev1.ResourceName) bool {
	return slices.ContainsFunc(names, func(name corev1.ResourceName) bool { return h.amount(name) == 0 })
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

// Least is the least of a resource that inspection has found in the hosts of a type.
type Least struct {
	Quantity resource.Quantity
	// Server is the first that has no more, by name, as namespace/name.
	Server string
}

// least is what inspection has found of what the type leaves out.
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
	parts := lo.Map(servers, func(server SmallServer, _ int) string { return server.String() })
	if more := count - len(servers); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// countedAs is what a host that counts like this adds to the counts of a type, for which it may be too small. It is that
// whatever else is the matter with it, and is never to be had.
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

// freeFor returns which tenant can claim the host, empty for any, if it can be claimed and counts so.
func (h *host) freeFor(counts Counts) (tenant string, free bool) {
	if counts.NotCleaned > 0 {
		return h.eligibility.LastTenant, h.eligibility.LastTenant != ""
	}
	return "", counts.Available > 0
}

// tooSmall are the first, by name, of the hosts that are too small for the type and whose nodes would have labels that meet
// the requirements. It looks at buckets, and at few hosts of each.
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

// host is what the inventory keeps of a BareMetalHost: only what a decision or a count depends on.
type host struct {
	key         types.NamespacedName
	uid         types.UID
	labels      map[string]string // the informer's own map, never written to
	arch        string
	hardware    hardware
	eligibility Eligibility
	// claimedAs is the type that one of our Machines has claimed the host as, by its annotation.
	claimedAs string
	// assumedBy is the Machine that the host has been given to while the claim does not show on it yet.
	assumedBy types.UID
	assumedAs string
	// assumedFor is the namespace of that Machine.
	assumedFor string
	// heldBy is the tenant that the host counts as in its domains while it is not assumed, and uncleaned is true if it does only because it
	// was not cleaned. Then anyTenant, of all types that it matches, says that it does not.
	heldBy               string
	uncleaned, anyTenant bool
	// domains that the host is in, by label.
	domains []*domain
	// claim is the last one that was decided.
	claim claim
	// buckets that the host is in, by the name of the type. One for each type that it matches.
	buckets map[string]*bucket
	// lacks is what the host has less of than a type says, by the name of the type; nothing for those it is big enough for.
	lacks map[string]string
	// suspectOf is the namespace on whose word alone the host is quarantined, and suspectAs the type that it had it as; empty if none.
	suspectOf, suspectAs string
	suspectSince         time.Time
	// faulty is true if the last use of the host ended in a fault.
	faulty       bool
	provisioning bmov1alpha1.ProvisioningState
	// matches are the names of those types, sorted.
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
	if quarantine, ours := QuarantineOf(from); ours && quarantine.Suspect {
		h.suspectOf, h.suspectAs, h.suspectSince = quarantine.Machine.Namespace, quarantine.NodeType, quarantine.Since
	}
	if consumer := from.Spec.ConsumerRef; consumer != nil && groupOf(consumer) == v1alpha1.Group {
		h.claimedAs = from.Annotations[v1alpha1.NodeTypeAnnotationKey]
	}
	return h
}

// alike returns whether two states of a host belong to the same buckets.
func (h *host) alike(other *host) bool {
	return h.arch == other.arch && h.hardware == other.hardware && maps.Equal(h.labels, other.labels) &&
		h.eligibility.LastTenant == other.eligibility.LastTenant && h.suspectOf == other.suspectOf && h.suspectAs == other.suspectAs &&
		h.suspectSince.Equal(other.suspectSince) && h.faulty == other.faulty
}

func (h *host) reference() v1alpha1.HostReference {
	return v1alpha1.HostReference{Namespace: h.key.Namespace, Name: h.key.Name, UID: h.uid}
}

// usedAs is the type that the host counts for against maxCapacity, empty if none.
func (h *host) usedAs() string {
	if h.assumedBy != "" {
		return h.assumedAs
	}
	return h.claimedAs
}

// counts is what the host adds to the counts of a type that it is big enough for.
func (h *host) counts() Counts {
	counts := Counts{Total: 1}
	if h.eligibility.UsedBy != "" {
		counts.Foreign = 1
	}
	if h.eligibility.Quarantined {
		counts.AllQuarantined = 1
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

// byFault is byName, after those whose last use did not end in a fault.
func byFault(a, b *host) int {
	if a.faulty != b.faulty {
		return lo.Ternary(a.faulty, 1, -1)
	}
	return byName(a, b)
}

// architecture in the words of kubernetes.io/arch. Hosts that have not been inspected count as amd64, as most are.
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
