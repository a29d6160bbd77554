// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Allocation is an address that an owner has.
type Allocation struct {
	// Address and the length of its network's prefix.
	Address netip.Prefix
	// Gateway of the network. It is not valid if there is none.
	Gateway netip.Addr
	// Pool that the address was taken from, for people.
	Pool string
	// Network that the address is used in, as Pool.In has it.
	Network string
}

// Holds returns whether an address could have been taken from the pool, with its gateway.
func (p Pool) Holds(one Allocation) bool {
	return p.of == one.Network && p.Contains(one.Address.Addr()) && p.network.Bits() == one.Address.Bits() && p.gateway == one.Gateway
}

// objectName is the name of the object that stands for an address of a network. There must be exactly one for each.
func objectName(network string, address netip.Addr) string {
	name := strings.ReplaceAll(address.Unmap().StringExpanded(), ":", "-")
	if network == "" {
		return name
	}
	return networkName(network) + "." + name
}

// networkName is a network as it can stand in a name: vlan-100 for vlan:100. A custom ID, the name of a network that is
// neither a VLAN nor a VNI, may hold anything, and only a hash of it is sure to fit.
func networkName(network string) string {
	name := strings.Replace(network, ":", "-", 1)
	if kind, _, found := strings.Cut(network, ":"); found && (kind == "vlan" || kind == "vni") && len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(network))
	return "id-" + hex.EncodeToString(sum[:hashBytes])
}

// hashBytes of the hash of a network's name are used: two networks of one name among a million are as good as excluded.
const hashBytes = 12

// NewObject is what an owner creates to have an address.
func NewObject(owner v1alpha1.MachineReference, pool Pool, address netip.Addr) *v1alpha1.IPAddress {
	object := &v1alpha1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name:        objectName(pool.of, address),
			Labels:      map[string]string{v1alpha1.MachineUIDLabelKey: string(owner.UID)},
			Annotations: map[string]string{v1alpha1.AddressPoolAnnotationKey: pool.spec()},
		},
		Spec: v1alpha1.IPAddressSpec{
			Address:      address.String(),
			PrefixLength: int32(pool.network.Bits()),
			Pool:         pool.text,
			Network:      pool.of,
			MachineRef:   owner,
		},
	}
	if pool.gateway.IsValid() {
		object.Spec.Gateway = pool.gateway.String()
	}
	return object
}

// AllocationOf reads what NewObject wrote.
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

// networkAnnotations are the keys that a DHCP server reads off a host.
var networkAnnotations = []string{v1alpha1.IPAddressAnnotationKey, v1alpha1.GatewayAnnotationKey, v1alpha1.DNSServersAnnotationKey}

// Annotate returns the annotations of a host whose server is to have the address, and leaves those it is given alone.
// What they were before is saved among them, once: doing it again, with the same address or another, does not
// overwrite what was saved. A gateway that is not valid and an empty list of name servers leave no annotation, since
// what stands there from before is for another network.
func Annotate(annotations map[string]string, given Allocation, dns []netip.Addr) map[string]string {
	result := maps.Clone(annotations)
	if result == nil {
		result = map[string]string{}
	}
	if _, saved := result[v1alpha1.SavedNetworkAnnotationKey]; !saved {
		result[v1alpha1.SavedNetworkAnnotationKey] = save(annotations)
	}
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
	} {
		if value == "" {
			delete(result, key)
		} else {
			result[key] = value
		}
	}
	return result
}

// Restore returns the annotations of a host as they were before Annotate. It changes nothing where nothing was saved.
// If the saved value cannot be read, the annotations are removed: none are better than those of a deleted Machine.
func Restore(annotations map[string]string) map[string]string {
	result := maps.Clone(annotations)
	text, saved := result[v1alpha1.SavedNetworkAnnotationKey]
	if !saved {
		return result
	}
	delete(result, v1alpha1.SavedNetworkAnnotationKey)
	before := map[string]*string{}
	if err := json.Unmarshal([]byte(text), &before); err != nil {
		before = nil
	}
	for _, key := range networkAnnotations {
		if value := before[key]; value != nil {
			result[key] = *value
		} else {
			delete(result, key)
		}
	}
	return result
}

// save writes down what the annotations are, null for those that are not there.
func save(annotations map[string]string) string {
	before := map[string]*string{}
	for _, key := range networkAnnotations {
		before[key] = nil
		if value, set := annotations[key]; set {
			before[key] = &value
		}
	}
	text, _ := json.Marshal(before) // a map of strings always is JSON
	return string(text)
}
