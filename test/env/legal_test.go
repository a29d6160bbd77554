// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strings"
	"testing"
)

// TestLegalNames has names of each length that Kubernetes takes: an object is refused where its name could not become what it has to
// become later, or it is accepted.
func TestLegalNames(t *testing.T) {
	namespace, long := environment.Namespace(t), "it has at most 63 characters"
	for name, tc := range map[string]struct {
		reason     string
		kind, spec string
		// want of a name that is longer than the value of a label, empty if it is accepted.
		want string
	}{
		"NodeType":       {"its name is a label of nodes, and a value of requirements", "NodeType", "{providerRef: {name: fleet}}", long},
		"NodeProfile":    {"its name is a label of nodes", "NodeProfile", "{}", long},
		"MetalNodeClass": {"Karpenter makes its name a label of NodeClaims", "MetalNodeClass", "{}", long},
		"Machine":        {"its name is that of the Node", "Machine", "{tenantClusterRef: {name: t}, nodeTypeRef: {name: t}}", long},
		"StandAlone":     {"it becomes no node", "Machine", "{nodeTypeRef: {name: t}}", ""},
		"NodeProvider":   {"its name is no label", "NodeProvider", "{metal3: {clusterRef: {namespace: ns}}}", ""},
		"TenantCluster":  {"its label is a hash if it is long", "TenantCluster", "{apiServerEndpoint: 'a:1'}", ""},
		"OSImage":        {"properties refuse a name that they cannot hold", "OSImage", "{properties: {a: b}}", ""},
		"SSHKey":         {"as an OSImage", "SSHKey", "{publicKey: ssh-ed25519 AAAA}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, tc.reason, "", refusal(t, object(t, tc.kind, strings.Repeat("a", 63), namespace, tc.spec)))
			for _, length := range []int{64, 253} {
				check(t, tc.reason, tc.want, refusal(t, object(t, tc.kind, strings.Repeat("a", length), namespace, tc.spec)))
			}
		})
	}
}

// TestLegalQuantities has amounts in each form that Kubernetes takes, for each field that has some: it is accepted, or refused with the
// reason that is right. What is no amount is refused where it stands: an object that no program can read would stop them all.
func TestLegalQuantities(t *testing.T) {
	namespace := environment.Namespace(t)
	const (
		zero  = "must be greater than zero"
		field = ".cpu"
	)
	fields := map[string]struct {
		reason, kind, spec string
		// zero is what is said of nothing; empty if it is accepted.
		zero string
	}{
		"NodeType": {"a type names what servers have", "NodeType", "{providerRef: {name: fleet}, resources: {cpu: %s}}", zero},
		"NodeProvider": {"its templates are types", "NodeProvider",
			"{metal3: {clusterRef: {namespace: ns}, nodeTypes: [{name: t, resources: {cpu: %s}}]}}", zero},
		"Overhead": {"nothing may be set aside", "NodeType",
			"{providerRef: {name: fleet}, overhead: {kubeReserved: {cpu: %s}}}", ""},
		"Machine": {"nothing may be asked for", "Machine", "{resources: {cpu: %s}}", ""},
	}
	for value, want := range map[string]string{
		"1": "", "'1'": "", "'01'": "", "'+1'": "", "1000m": "", "'1e3'": "", "1E3": "", "'12e-1'": "", "0.5Gi": "", "'.5'": "", "'5.'": "",
		"1Ei": "", "100n": "", "'001.500'": "", "'00.1'": "",
		"0": zero, "'0'": zero, "0e3": zero, "'0e3'": zero, "0Gi": zero,
		// The webhook refuses these where nothing makes no sense: quantity() of CEL is too dear for a schema.
		"'00'": "", "'0.0'": "", "'+0'": "", "0.000m": "",
		"'1_'": field, "'1 Gi'": field, "one": field, "'0x10'": field, "1GiB": field, "'1,5'": field, "Gi": field, "1e1.5": field,
		"'1e1000'": field,
	} {
		for name, tc := range fields {
			t.Run(name+"/"+value, func(t *testing.T) {
				if want == zero {
					check(t, tc.reason, tc.zero, refusal(t, object(t, tc.kind, "q", namespace, fmt.Sprintf(tc.spec, value))))
					return
				}
				check(t, tc.reason, want, refusal(t, object(t, tc.kind, "q", namespace, fmt.Sprintf(tc.spec, value))))
			})
		}
	}
}
