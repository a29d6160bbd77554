// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
	"maps"
	"net/netip"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

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
// If what was saved is not to be read any more, the annotations go: better none than those of a Machine that is gone.
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
