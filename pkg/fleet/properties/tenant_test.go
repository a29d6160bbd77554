// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func tenantOf(t *testing.T, spec string) *v1alpha1.TenantCluster {
	t.Helper()
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &tenant.Spec); err != nil {
		t.Fatal(err)
	}
	return tenant
}

func typeOf(name, provider string, properties map[string]string) *v1alpha1.NodeType {
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(providerOf(provider, nil), v1alpha1.GroupVersion.WithKind("NodeProvider"))}}}
	nodeType.Spec.ProviderRef.Name, nodeType.Spec.Properties = provider, properties
	return nodeType
}

func providerOf(name string, properties map[string]string, makes ...string) *v1alpha1.NodeProvider {
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	for _, name := range makes {
		provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes, v1alpha1.NodeTypeTemplate{Name: name})
	}
	provider.Spec.Properties = properties
	return provider
}

func TestCheckTenant(t *testing.T) {
	const image, keys, template = v1alpha1.PropertyOSImage, v1alpha1.PropertySSHKeys, v1alpha1.PropertyUserDataTemplate
	nodeTypes := []*v1alpha1.NodeType{
		typeOf("gpu", "own", map[string]string{image: "gpu-image"}),
		typeOf("by-hand", "own", map[string]string{image: "by-hand-image"}), // by the owner reference alone
		typeOf("foreign", "other", map[string]string{image: "foreign-image", template: "foreign-template"}),
	}
	providers := []*v1alpha1.NodeProvider{
		providerOf("own", map[string]string{keys: "ops, oncall", template: "base"}, "gpu"),
		providerOf("other", map[string]string{keys: "globex"}, "foreign"),
	}
	const own = "allowedNodeTypes: [gpu]"
	for name, tc := range map[string]struct {
		reason, spec string
		values       map[string]string
		want         []string
	}{
		"Nothing": {reason: "most Machines have none", spec: own},
		"Own": {reason: "keys without a meaning here are the tenant's", spec: own,
			values: map[string]string{"example.com/team": "vision", "rack": "r1"}},
		"Time": {reason: "a server's clock is its tenant's", spec: own, values: map[string]string{v1alpha1.PropertyNTPServers: "10.0.0.123"}},
		"TimeNotListed": {reason: "the platform says which", spec: own + "\ntenantProperties: {keys: [" + v1alpha1.PropertyUserData + "]}",
			values: map[string]string{v1alpha1.PropertyNTPServers: "10.0.0.123"}, want: []string{v1alpha1.PropertyNTPServers}},
		"OfType":     {reason: "its type names it", spec: own, values: map[string]string{image: "gpu-image"}},
		"OfProvider": {reason: "the provider of its type does", spec: own, values: map[string]string{keys: "oncall,ops", template: "base"}},
		"OfOtherType": {reason: "a type that it may not have", spec: own, values: map[string]string{image: "foreign-image", keys: "ops, globex",
			template: "foreign-template"}, want: []string{image, keys, template}},
		"AllTypes": {reason: "it may have all types", spec: "{}", values: map[string]string{image: "foreign-image", keys: "globex"}},
		"ByHand": {reason: "no NodeProvider has made the type", spec: "{}", values: map[string]string{image: "by-hand-image"},
			want: []string{image}},
		"ByHandAllOfProvider": {reason: "it is not the provider's", spec: "allowedNodeTypes: [own.*]",
			values: map[string]string{image: "by-hand-image"}, want: []string{image}},
		"ByHandByName": {reason: "the platform has named it", spec: "allowedNodeTypes: [by-hand]",
			values: map[string]string{image: "by-hand-image", template: "base"}},
		"OtherKey": {reason: "a name counts for the key that it is written for", spec: own, values: map[string]string{image: "base"},
			want: []string{image}},
		"Listed": {reason: "the platform lists it", spec: own +
			"\ntenantProperties: {osImages: [mine], sshKeys: ['*'], machineConfigTemplates: [t]}",
			values: map[string]string{image: "mine", keys: "any, globex", template: "t"}},
		"Emptied": {reason: "it would take the platform's template and keys away", spec: own, values: map[string]string{template: "", keys: ""},
			want: []string{keys, template}},
		"Denied": {reason: "what the platform's network fetches, parses and routes, and which server", spec: own, values: map[string]string{
			v1alpha1.PropertyImageURL: "http://x/y.iso", v1alpha1.PropertyImageChecksum: "", v1alpha1.PropertyNetworkCIDR: "10.0.0.1/24",
			v1alpha1.PropertyUserData: "#!/bin/sh", v1alpha1.PropertyServerName: "server-7"},
			want: []string{v1alpha1.PropertyImageChecksum, v1alpha1.PropertyImageURL, v1alpha1.PropertyNetworkCIDR,
				v1alpha1.PropertyServerName, v1alpha1.PropertyUserData}},
		"Keys": {reason: "the platform says which", spec: own + "\ntenantProperties: {keys: [" + v1alpha1.PropertyUserData + "]}",
			values: map[string]string{v1alpha1.PropertyUserData: "#!/bin/sh", image: "gpu-image"}, want: []string{image}},
		"NoKeys": {reason: "none is not the default", spec: own + "\ntenantProperties: {keys: []}",
			values: map[string]string{image: "gpu-image"}, want: []string{image}},
		"AllKeys": {reason: "names are checked all the same", spec: own + "\ntenantProperties: {keys: ['*']}", values: map[string]string{
			v1alpha1.PropertyImageURL: "http://x", v1alpha1.PropertyNetworkDataTemplate: "foreign-template", image: "foreign-image"},
			want: []string{v1alpha1.PropertyNetworkDataTemplate, image}},
		"Pool": {reason: "the platform has written the pool", spec: own + "\nprivateNodes: {autoNodes: [{provider: own, properties: {" +
			v1alpha1.PropertyImageURL + ": 'http://x'}, static: [{name: s, quantity: 1, properties: {" + v1alpha1.PropertyServerName +
			": server-7, " + keys + ": ''}}], dynamic: [{name: d, properties: {" + image + ": special}}]}]}",
			values: map[string]string{v1alpha1.PropertyImageURL: "http://x", v1alpha1.PropertyServerName: "server-7", keys: "",
				image: "special"}},
		"NotThatOfAPool": {reason: "another server than that of its pool", spec: own + "\nprivateNodes: {autoNodes: [{provider: own, static: " +
			"[{name: s, quantity: 1, properties: {" + v1alpha1.PropertyServerName + ": server-7}}]}]}",
			values: map[string]string{v1alpha1.PropertyServerName: "server-8"}, want: []string{v1alpha1.PropertyServerName}},
	} {
		t.Run(name, func(t *testing.T) {
			slices.Sort(tc.want)
			spec := tc.spec
			for ours, alias := range v1alpha1.Aliases() {
				spec = regexp.MustCompile(regexp.QuoteMeta(ours)+`\b`).ReplaceAllString(spec, alias)
			}
			aliased := lo.MapKeys(tc.values, func(_, key string) string { return v1alpha1.ReferenceKey(key) })
			for _, values := range []map[string]string{tc.values, aliased} {
				for _, spec := range []string{tc.spec, spec} {
					faults := CheckTenant(Layer{Source: "Machine acme/m", Values: env.Properties(t, values)}, tenantOf(t, spec), nodeTypes, providers)
					var got []string
					for _, err := range faults {
						got = append(got, keyOf(err))
					}
					if diff := cmp.Diff(tc.want, got); diff != "" {
						t.Errorf("%s, of %v and %s (-want +got):\n%s%v", tc.reason, values, spec, diff, faults)
					}
				}
			}
		})
	}
}

// TestCheckTenantKnowsAllKeys: a key with a meaning of its own that is not in the list would be allowed to every tenant.
func TestCheckTenantKnowsAllKeys(t *testing.T) {
	for _, key := range freeText {
		faults := CheckTenant(Layer{Values: map[string]string{key: "x"}}, tenantOf(t, "tenantProperties: {keys: []}"), nil, nil)
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), key) {
			t.Errorf("%s: got %v", key, faults)
		}
	}
}

func TestCheckImageHosts(t *testing.T) {
	const url, checksum = v1alpha1.PropertyImageURL, v1alpha1.PropertyImageChecksum
	for name, tc := range map[string]struct {
		reason string
		hosts  []string
		values map[string]string
		want   string
	}{
		"Unset":    {"all hosts", nil, map[string]string{url: "http://192.0.2.1/x"}, ""},
		"Allowed":  {"upper case is the same", []string{"images.example.com"}, map[string]string{url: "https://Images.example.com:8443/x"}, ""},
		"Other":    {"not that host", []string{"images.example.com"}, map[string]string{url: "http://192.0.2.1/x"}, url},
		"Suffix":   {"a host is compared as a whole", []string{"example.com"}, map[string]string{url: "http://evil-example.com/x"}, url},
		"Userinfo": {"a user name is no host", []string{"example.com"}, map[string]string{url: "http://example.com@192.0.2.1/x"}, url},
		"Port":     {"for one port", []string{"example.com:8443"}, map[string]string{url: "https://example.com/x"}, url},
		"SamePort": {"the same port", []string{"example.com:8443"}, map[string]string{url: "https://example.com:8443/x"}, ""},
		"Checksum": {"the conductor fetches it, too", []string{"example.com"},
			map[string]string{url: "http://example.com/x", checksum: "http://169.254.169.254/latest"}, checksum},
		"OCI": {"a registry is a host", []string{"registry.example.com"},
			map[string]string{url: "oci://192.0.2.1/os@sha256:" + strings.Repeat("0", 64)}, url},
		"IPv6":     {"an address, as in a list", []string{"2001:db8::1"}, map[string]string{url: "http://[2001:db8::1]:8080/x"}, ""},
		"Brackets": {"an address, as in a URL", []string{"[2001:db8::1]"}, map[string]string{url: "http://[2001:db8::1]:8080/x"}, ""},
		"IPv6Port": {"for one port", []string{"[2001:db8::1]:8443"}, map[string]string{url: "http://[2001:db8::1]:8080/x"}, url},
		"Digest": {"nothing is fetched", []string{"example.com"},
			map[string]string{url: "http://example.com/x", checksum: "d41d8cd98f00b204e9800998ecf8427e"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			provider := providerOf("p", nil)
			provider.Spec.ImageHosts = tc.hosts
			err := Merge(Layer{"Machine a/m", tc.values}).CheckImageHosts(provider)
			if got := keyOf(err); got != tc.want {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
