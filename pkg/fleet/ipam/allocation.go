// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Allocation is the address of an owner.
type Allocation struct {
	// Address, with the prefix length of its network.
	Address netip.Prefix
	// Gateway of the network; the zero Addr if there is none.
	Gateway netip.Addr
	// Pool that the address was taken from, for people.
	Pool string
	// Network that the address is used in, as in Pool.In.
	Network string
}

// Holds reports whether the address is in the pool, with the prefix length and gateway of the pool.
func (p Pool) Holds(allocation Allocation) bool {
	return p.tenantNetwork == allocation.Network && p.Contains(allocation.Address.Addr()) &&
		p.network.Bits() == allocation.Address.Bits() && p.gateway == allocation.Gateway
}

// objectName names the object that stands for an address of a network. Each address must have exactly one name.
func objectName(network string, address netip.Addr) string {
	name := strings.ReplaceAll(address.Unmap().StringExpanded(), ":", "-")
	if network == "" {
		return name
	}
	return networkName(network) + "." + name
}

// networkName returns a network in a form for object names: vlan-100 for vlan:100. A custom ID, which names a network
// that is neither a VLAN nor a VNI, may hold anything. Only a hash of it is sure to fit.
func networkName(network string) string {
	name := strings.Replace(network, ":", "-", 1)
	if kind, _, found := strings.Cut(network, ":"); found && (kind == "vlan" || kind == "vni") && len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(network))
	return "id-" + hex.EncodeToString(sum[:hashBytes])
}

// hashBytes is how much of the hash of a network's name is used. Even among a million networks a collision is unlikely.
const hashBytes = 12

// NewObject returns the object that an owner creates to claim an address.
func NewObject(owner v1alpha1.MachineReference, pool Pool, address netip.Addr) *v1alpha1.IPAddress {
	object := &v1alpha1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name:        objectName(pool.tenantNetwork, address),
			Labels:      map[string]string{v1alpha1.MachineUIDLabelKey: string(owner.UID)},
			Annotations: map[string]string{v1alpha1.AddressPoolAnnotationKey: pool.spec()},
		},
		Spec: v1alpha1.IPAddressSpec{
			Address:      address.String(),
			PrefixLength: int32(pool.network.Bits()),
			Pool:         pool.text,
			Network:      pool.tenantNetwork,
			MachineRef:   owner,
		},
	}
	if pool.gateway.IsValid() {
		object.Spec.Gateway = pool.gateway.String()
	}
	return object
}

// AllocationOf reads an object that NewObject made.
func AllocationOf(object *v1alpha1.IPAddress) (Allocation, error) {
	address, err := netip.ParseAddr(object.Spec.Address)
	if err != nil {
		return Allocation{}, fmt.Errorf("reading IPAddress %s, %w", object.Name, err)
	}
	result := Allocation{Address: netip.PrefixFrom(address, int(object.Spec.PrefixLength)), Pool: object.Spec.Pool,
		Network: object.Spec.Network}
	if object.Spec.Gateway == "" {
		return result, nil
	}
	if result.Gateway, err = netip.ParseAddr(object.Spec.Gateway); err != nil {
		return Allocation{}, fmt.Errorf("reading the gateway of IPAddress %s, %w", object.Name, err)
	}
	return result, nil
}

// networkAnnotations are the keys that a DHCP server reads from a host.
var networkAnnotations = slices.Concat(v1alpha1.Spellings(v1alpha1.IPAddressAnnotationKey),
	v1alpha1.Spellings(v1alpha1.GatewayAnnotationKey), v1alpha1.Spellings(v1alpha1.DNSServersAnnotationKey),
	v1alpha1.Spellings(v1alpha1.NTPServersAnnotationKey))

// Annotate returns the annotations for a host whose server is to have the address, each under both of its keys. It does
// not modify the given map. It saves the earlier values among the annotations once: a second call, with the same
// address or another, does not overwrite the saved values. An invalid gateway and an empty list of servers leave no
// annotation, since an earlier value would belong to another network.
func Annotate(annotations map[string]string, given Allocation, dns []netip.Addr, ntp []string) map[string]string {
	result := maps.Clone(annotations)
	if result == nil {
		result = map[string]string{}
	}
	result[v1alpha1.SavedNetworkAnnotationKey] = save(annotations)
	servers := make([]string, 0, len(dns))
	for _, server := range dns {
		servers = append(servers, server.String())
	}
	gateway := ""
	if given.Gateway.IsValid() {
		gateway = given.Gateway.String()
	}
	for key, value := range map[string]string{
		v1alpha1.IPAddressAnnotationKey:  given.Address.String(),
		v1alpha1.GatewayAnnotationKey:    gateway,
		v1alpha1.DNSServersAnnotationKey: strings.Join(servers, ","),
		v1alpha1.NTPServersAnnotationKey: strings.Join(ntp, ","),
	} {
		for _, spelling := range v1alpha1.Spellings(key) {
			if result[spelling] = value; value == "" {
				delete(result, spelling)
			}
		}
	}
	return result
}

// Restore returns the annotations of a host as they were before Annotate. It changes nothing if nothing was saved. If
// the saved value cannot be read, it removes the annotations: none are better than a deleted Machine's.
func Restore(annotations map[string]string) map[string]string {
	result := maps.Clone(annotations)
	text, saved := result[v1alpha1.SavedNetworkAnnotationKey]
	if !saved {
		return result
	}
	delete(result, v1alpha1.SavedNetworkAnnotationKey)
	before, readable := savedIn(text)
	for _, key := range networkAnnotations {
		value, saved := before[key]
		switch {
		case value != nil:
			result[key] = *value
		case saved || !readable:
			delete(result, key)
		} // a manager of an earlier version has neither saved nor written the others
	}
	return result
}

// savedIn parses the output of save.
func savedIn(text string) (before map[string]*string, readable bool) {
	err := json.Unmarshal([]byte(text), &before)
	return before, err == nil && before != nil
}

// save encodes the current annotations, with null for missing ones. It keeps what is saved already. It adds keys that a
// manager of an earlier version did not know and so did not save.
func save(annotations map[string]string) string {
	text, found := annotations[v1alpha1.SavedNetworkAnnotationKey]
	before, readable := savedIn(text)
	if found && !readable {
		return text
	}
	if before == nil {
		before = map[string]*string{}
	}
	for _, key := range networkAnnotations {
		if _, saved := before[key]; saved {
			continue
		}
		before[key] = nil
		if value, set := annotations[key]; set {
			before[key] = &value
		}
	}
	saved, _ := json.Marshal(before) // a map of strings always is JSON
	return string(saved)
}

// ExhaustedError means that all addresses of a pool are taken.
type ExhaustedError struct {
	Pool string
	Size uint64
	// Assumed is the number of addresses that Machines with a server are about to take.
	Assumed int
	// Others is the number of the pool's addresses that were taken through overlapping pools. Tenants read the error,
	// and must not see the pools of others.
	Others int
}

// Error implements error.
func (e *ExhaustedError) Error() string {
	text := fmt.Sprintf("address pool %s is exhausted: all %d addresses are taken", e.Pool, e.Size)
	if e.Size == 1 {
		text = fmt.Sprintf("address pool %s is exhausted: its only address is taken", e.Pool)
	}
	if e.Assumed > 0 {
		text += fmt.Sprintf(", %d of them by Machines that have been given a server", e.Assumed)
	}
	if e.Others > 0 {
		text += fmt.Sprintf(", %d of them through other pools, which overlap it", e.Others)
	}
	return text + ": delete Machines that have one, or make the pool larger (" + networkProperties + ")"
}

const networkProperties = v1alpha1.PropertyNetworkCIDR + ", " + v1alpha1.PropertyNetworkIPRange

// Exhausted returns the error for a pool without a free address, given the taken addresses and how many are assumed.
func (p Pool) Exhausted(taken []v1alpha1.IPAddress, assumed int) *ExhaustedError {
	result := &ExhaustedError{Pool: p.Title(), Size: p.Size(), Assumed: assumed}
	for i := range taken {
		if _, ours := p.has(&taken[i]); ours && taken[i].Spec.Pool != p.text {
			result.Others++
		}
	}
	return result
}

// Assumed is a Machine that is about to take some address of a pool.
type Assumed struct {
	Owner v1alpha1.MachineReference
	Pool  Pool
}

// Check returns an *ExhaustedError if the owner can have no address beside the taken ones and the ones that others are
// assumed to take. An owner that has an address keeps it. A pool does not see the addresses assumed in another pool
// that overlaps it.
func (p Pool) Check(owner v1alpha1.MachineReference, taken []v1alpha1.IPAddress, assumed []Assumed) error {
	used, owners := uint64(0), map[v1alpha1.MachineReference]bool{}
	for i := range taken {
		owners[taken[i].Spec.MachineRef] = true
		if _, ours := p.has(&taken[i]); ours {
			used++
		}
	}
	if owners[owner] {
		return nil
	}
	expected := 0
	for _, assumption := range assumed {
		if assumption.Pool.Is(p) && !owners[assumption.Owner] {
			expected++
		}
	}
	if used+uint64(expected) >= p.Size() {
		return p.Exhausted(taken, expected)
	}
	return nil
}

// Overlapping names the other pools that have taken, or are assumed to take, addresses of this one in its network. Two
// equal pools count as one.
func (p Pool) Overlapping(taken []v1alpha1.IPAddress, assumed []Assumed) []string {
	others := map[string]bool{}
	for i := range taken {
		spec := taken[i].Spec
		if others[spec.Pool] || spec.Network != p.tenantNetwork || spec.Pool == p.text {
			continue
		}
		_, ours := p.has(&taken[i])
		others[spec.Pool] = ours || len(p.Overlap(poolOf(&taken[i]))) > 0
	}
	for _, assumption := range assumed {
		if assumption.Pool.text != p.text && len(p.Overlap(assumption.Pool)) > 0 {
			others[assumption.Pool.text] = true
		}
	}
	maps.DeleteFunc(others, func(_ string, overlaps bool) bool { return !overlaps })
	return slices.Sorted(maps.Keys(others))
}

// Free yields the free addresses of the pool, starting at the owner's start address.
func (p Pool) Free(owner v1alpha1.MachineReference, taken []v1alpha1.IPAddress) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if p.set == nil {
			return
		}
		free := &netipx.IPSetBuilder{}
		free.AddSet(p.set)
		for i := range taken {
			if address, ours := p.has(&taken[i]); ours {
				free.Remove(address)
			}
		}
		start := p.start(string(owner.UID))
		for {
			set, err := free.IPSet()
			if err != nil || len(set.Ranges()) == 0 { // IPSet fails only for invalid ranges, and there are none
				return
			}
			address := next(set, start)
			if !yield(address) {
				return
			}
			free.Remove(address)
		}
	}
}
