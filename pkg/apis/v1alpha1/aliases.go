// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "maps"

// ReferenceDomain is the domain of the keys of the reference, with those below it.
const ReferenceDomain = "vcluster.com"

// ReferenceNetworkEnvironment is a property of the reference that has no meaning here.
const ReferenceNetworkEnvironment = ReferenceDomain + "/network-environment"

// references are the keys of the reference by ours. They are the only ones that are understood, and docs/migration.md has them.
//
// Everything that is read is compared by our key, and what the programs store themselves has our key. Labels on nodes and instance types
// have both.
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

// canonical are our keys by those of the reference.
var canonical = func() map[string]string {
	keys := make(map[string]string, len(references))
	for key, reference := range references {
		keys[reference] = key
	}
	return keys
}()

// Aliases returns the keys of the reference by the keys that they stand for. The caller owns the map.
func Aliases() map[string]string { return maps.Clone(references) }

// CanonicalKey returns our key for one of the reference's, and any other key as it is.
func CanonicalKey(key string) string {
	if ours, isAlias := canonical[key]; isAlias {
		return ours
	}
	return key
}

// ReferenceKey returns the key of the reference for one of ours, and any other key as it is.
func ReferenceKey(key string) string {
	if reference, has := references[key]; has {
		return reference
	}
	return key
}

// Spellings returns the keys by which a label, a property or an annotation is known, ours first: two, or the key alone.
func Spellings(key string) []string {
	ours := CanonicalKey(key)
	if reference, has := references[ours]; has {
		return []string{ours, reference}
	}
	return []string{key}
}

// ByCanonicalKey returns values by our keys. Where both keys of one are there, ours wins. The map that is returned may be the one that
// is given, so it must not be changed.
func ByCanonicalKey[V any](values map[string]V) map[string]V {
	var result map[string]V
	for key, value := range values {
		ours, is := canonical[key]
		if !is {
			continue
		}
		if result == nil {
			result = maps.Clone(values)
		}
		delete(result, key)
		if _, has := values[ours]; !has {
			result[ours] = value
		}
	}
	if result == nil {
		return values
	}
	return result
}

// Value returns the value of a key of ours, or of the reference's for it if ours is not there.
func Value(values map[string]string, key string) string {
	if value, found := values[key]; found {
		return value
	}
	return values[ReferenceKey(key)]
}

// OtherSpellings returns, by their other key, the values that are there under one key of two only.
func OtherSpellings[V any](values map[string]V) map[string]V {
	others := map[string]V{}
	for key, value := range values {
		for _, spelling := range Spellings(key) {
			if _, has := values[spelling]; !has {
				others[spelling] = value
			}
		}
	}
	return others
}
