// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
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
