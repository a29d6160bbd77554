// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"maps"
)

// ReferenceDomain is the domain of the reference's keys, which also use its subdomains.
const ReferenceDomain = "vcluster.com"

// ReferenceNetworkEnvironment is a property of the reference that has no meaning here.
const ReferenceNetworkEnvironment = ReferenceDomain + "/network-environment"

// references maps our keys to the keys of the reference that are understood. docs/migration.md has them.
//
// Programs compare by our key whatever they read, and store our key. Labels on nodes and instance types have both keys.
var references = map[string]string{
	NodeTypeLabelKey:            "vcluster.com/node-type",
	NodeProfileLabelKey:         "vcluster.com/node-profile",
	PropertyOSImage:             "vcluster.com/os-image",
	PropertyServerName:          "metal3.vcluster.com/server-name",
	PropertyImageURL:            "metal3.vcluster.com/image-url",
	PropertyImageChecksum:       "metal3.vcluster.com/image-checksum",
	PropertyImageChecksumType:   "metal3.vcluster.com/image-checksum-type",
	PropertySSHKeys:             "vcluster.com/ssh-keys",
	PropertyUserData:            "vcluster.com/user-data",
	PropertyUserDataTemplate:    "vcluster.com/user-data-template-config",
	PropertyNetworkDataTemplate: "vcluster.com/network-data-template-config",
	PropertyNetworkCIDR:         "metal3.vcluster.com/network-cidr",
	PropertyNetworkIPRange:      "metal3.vcluster.com/network-ip-range",
	PropertyDNSServers:          "metal3.vcluster.com/dns-servers", // also the key of DNSServersAnnotationKey
	PropertyNTPServers:          "metal3.vcluster.com/ntp-servers", // also the key of NTPServersAnnotationKey
	PropertyNetworkData:         "metal3.vcluster.com/network-data",
	IPAddressAnnotationKey:      "metal3.vcluster.com/ip-address",
	GatewayAnnotationKey:        "metal3.vcluster.com/gateway",
	RebootAnnotationKey:         "machines.vcluster.com/reboot",
}

// canonical maps the reference's keys to ours.
var canonical = func() map[string]string {
	keys := make(map[string]string, len(references))
	for key, reference := range references {
		keys[reference] = key
	}
	return keys
}()

// Aliases returns the reference's keys by our keys. The caller owns the map.
func Aliases() map[string]string { return maps.Clone(references) }

// CanonicalKey returns our key for a key of the reference, and any other key unchanged.
func CanonicalKey(key string) string {
	if ours, isAlias := canonical[key]; isAlias {
		return ours
	}
	return key
}

// ReferenceKey returns the reference's key for one of ours, and any other key unchanged.
func ReferenceKey(key string) string {
	if reference, has := references[key]; has {
		return reference
	}
	return key
}

// Spellings returns the keys of a label, a property or an annotation: ours and then the reference's, or the key alone.
func Spellings(key string) []string {
	ours := CanonicalKey(key)
	if reference, has := references[ours]; has {
		return []string{ours, reference}
	}
	return []string{key}
}

// Properties are properties of machines by key. JSON may have the reference's keys. Decoding puts our keys in their place,
// so a program reads and stores our keys only. A key of the reference stays beside our key if their values differ. Our key
// counts then, and the webhook denies such an object.
//
// +kubebuilder:validation:MaxProperties=64
type Properties map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (p *Properties) UnmarshalJSON(data []byte) error {
	var read map[string]string
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	for key, value := range read {
		ours := CanonicalKey(key)
		if own, both := read[ours]; ours == key || both && own != value {
			continue
		}
		delete(read, key)
		read[ours] = value
	}
	*p = read
	return nil
}

// InBothSpellings adds the reference's keys. A merge patch removes only keys that the object has before: a stored object may
// have the reference's key where a program reads ours.
func (p Properties) InBothSpellings() Properties {
	both := maps.Clone(p)
	maps.Copy(both, OtherSpellings(p))
	return both
}

// NodeProfileOf returns the name of the NodeProfile in the labels of a NodePool, empty for none.
func NodeProfileOf(labels map[string]string) string {
	if name, found := labels[NodeProfileLabelKey]; found {
		return name
	}
	return labels[ReferenceKey(NodeProfileLabelKey)]
}

// OtherSpellings returns the values that are there under only one of two keys, by the other key.
func OtherSpellings[V any, M ~map[string]V](values M) M {
	others := M{}
	for key, value := range values {
		for _, spelling := range Spellings(key) {
			if _, has := values[spelling]; !has {
				others[spelling] = value
			}
		}
	}
	return others
}
