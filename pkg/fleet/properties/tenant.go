// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// tenantKeys are the keys with a built-in meaning that a tenant may set if its TenantCluster does not list any. The
// names in their values are checked in any case.
var tenantKeys = []string{v1alpha1.PropertyOSImage, v1alpha1.PropertySSHKeys, v1alpha1.PropertyUserDataTemplate,
	v1alpha1.PropertyNTPServers}

// nameKeys are the keys whose values name objects of the platform, with the TenantProperties field for more names.
var nameKeys = map[string]struct {
	field string
	names func(*v1alpha1.TenantProperties) []string
}{
	v1alpha1.PropertyOSImage:             {"osImages", func(p *v1alpha1.TenantProperties) []string { return p.OSImages }},
	v1alpha1.PropertySSHKeys:             {"sshKeys", func(p *v1alpha1.TenantProperties) []string { return p.SSHKeys }},
	v1alpha1.PropertyUserDataTemplate:    {"machineConfigTemplates", templatesOf},
	v1alpha1.PropertyNetworkDataTemplate: {"machineConfigTemplates", templatesOf},
}

func templatesOf(p *v1alpha1.TenantProperties) []string { return p.MachineConfigTemplates }

// maxNamed limits how many names an error lists.
const maxNamed = 5

// CheckTenant returns an *Error for each value of a layer that the tenant may not set, sorted by key. The layer is
// written in a tenant, or with the rights of its provider. The errors do not depend on whether the named objects exist.
// Values from the pools of the TenantCluster are the platform's and allowed. nodeTypes and providers are all that
// exist.
func CheckTenant(
	layer Layer, tenant *v1alpha1.TenantCluster, nodeTypes []*v1alpha1.NodeType, providers []*v1alpha1.NodeProvider,
) []error {
	set, policy := Merge(layer), tenant.Spec.TenantProperties
	if policy == nil {
		policy = &v1alpha1.TenantProperties{}
	}
	owner := "TenantCluster " + tenant.Namespace + "/" + tenant.Name
	values := layer.Values
	mayWrite := lo.Map(policy.Keys, func(key string, _ int) string { return v1alpha1.CanonicalKey(key) })
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !isFreeText(key) || setByPool(tenant, key, values[key]) {
			continue
		}
		if !matches(mayWrite, key) && (policy.Keys != nil || !slices.Contains(tenantKeys, key)) {
			remedy := "set it in a pool of " + owner + ", or have the key added to its spec.tenantProperties.keys"
			if policy.Keys == nil {
				remedy += ", with those of the default that the tenant is to keep: " + strings.Join(tenantKeys, ", ")
			}
			faults = append(faults, set.wrong(key, "must not be set by the tenant", remedy))
			continue
		}
		kind, isName := nameKeys[key]
		if !isName || matches(kind.names(policy), anyValue) {
			continue
		}
		allowed := append(namesOf(key, tenant, nodeTypes, providers), kind.names(policy)...)
		if !slices.ContainsFunc(namesIn(values[key]), func(name string) bool { return !slices.Contains(allowed, name) }) {
			continue
		}
		remedy := fmt.Sprintf("have it added to spec.tenantProperties.%s of %s", kind.field, owner)
		if slices.Sort(allowed); len(allowed) > 0 {
			remedy = "choose from " + conditions.List(slices.Compact(allowed), maxNamed) + ", or " + remedy
		}
		faults = append(faults, set.wrong(key, "is not among what the tenant may name", remedy))
	}
	return faults
}

// matches reports whether a list contains the value, or the wildcard for all values.
func matches(list []string, value string) bool {
	return slices.Contains(list, value) || slices.Contains(list, anyValue)
}

// namesIn returns the names in a value. An empty value, which removes the platform's names, is a name on no list.
func namesIn(value string) []string {
	if value == "" {
		return []string{""}
	}
	return splitList(value)
}

// namesOf returns the names that the platform has set for a key and this tenant: in the NodeTypes that it may have, in
// their NodeProviders, and in its own pools.
func namesOf(
	key string, tenant *v1alpha1.TenantCluster, nodeTypes []*v1alpha1.NodeType, providers []*v1alpha1.NodeProvider,
) (names []string) {
	add := func(values v1alpha1.Properties) { names = append(names, splitList(values[key])...) }
	for _, nodeType := range nodeTypes {
		provider, found := lo.Find(providers, func(p *v1alpha1.NodeProvider) bool { return p.Name == nodeType.Spec.ProviderRef.Name })
		if !tenant.Allows(nodeType.Name, provider.Maker(nodeType)) {
			continue
		}
		add(nodeType.Spec.Properties)
		if found {
			add(provider.Spec.Properties)
		}
	}
	for values := range ofPools(tenant) {
		add(values)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// setByPool reports whether a pool of the TenantCluster sets a key to the value.
func setByPool(tenant *v1alpha1.TenantCluster, key, value string) bool {
	for values := range ofPools(tenant) {
		if own, found := values[key]; found && own == value {
			return true
		}
	}
	return false
}

// ofPools yields the properties of the pools of a TenantCluster.
func ofPools(tenant *v1alpha1.TenantCluster) iter.Seq[v1alpha1.Properties] {
	return func(yield func(v1alpha1.Properties) bool) {
		if tenant.Spec.PrivateNodes == nil {
			return
		}
		for i := range tenant.Spec.PrivateNodes.AutoNodes {
			entry := &tenant.Spec.PrivateNodes.AutoNodes[i]
			if !yield(entry.Properties) {
				return
			}
			for j := range entry.Static {
				if !yield(entry.Static[j].Properties) {
					return
				}
			}
			for j := range entry.Dynamic {
				if !yield(entry.Dynamic[j].Properties) {
					return
				}
			}
		}
	}
}

// CheckImageHosts returns an *Error if the image or its checksum comes from a host that the NodeProvider does not list.
// An empty list allows all hosts.
func (s Set) CheckImageHosts(provider *v1alpha1.NodeProvider) error {
	if len(provider.Spec.ImageHosts) == 0 {
		return nil
	}
	for _, key := range []string{v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum} {
		location, isURL := parseURL(s.Get(key), "http", "https", schemeOCI)
		if isURL && !slices.ContainsFunc(provider.Spec.ImageHosts, func(allowed string) bool { return isHost(location, allowed) }) {
			problem := fmt.Sprintf("is on host %s, which is not among spec.imageHosts of %s %s", location.Host, kindProvider, provider.Name)
			return s.wrong(key, problem, "choose from "+conditions.List(provider.Spec.ImageHosts, maxNamed)+", or have the host added there")
		}
	}
	return nil
}

// isHost reports whether a URL is on an allowed host. The host is a name or an address, with a port or for all ports.
// An IPv6 address may be in brackets, as in URLs.
func isHost(location *url.URL, allowed string) bool {
	return strings.EqualFold(location.Hostname(), strings.Trim(allowed, "[]")) || strings.EqualFold(location.Host, allowed)
}
