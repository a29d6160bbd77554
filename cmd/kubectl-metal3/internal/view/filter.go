// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strings"
)

// Filter selects servers; empty fields select all.
type Filter struct {
	// State is a state, in upper or lower case.
	State string
	// Type is the name of a NodeType that the server matches.
	Type string
	// Tenant is the name of a TenantCluster, or NAMESPACE/NAME.
	Tenant     string
	Rack, Zone string
	// Text is a part of the name of the server, its Machine or its node, or of the reason in Why, in upper or lower
	// case.
	Text string
}

// Has reports whether the filter selects a server.
func (f *Filter) Has(server Server) bool {
	_, tenant, _ := strings.Cut(server.Tenant, "/")
	return (f.State == "" || strings.EqualFold(f.State, string(server.State))) &&
		(f.Type == "" || slices.Contains(server.Types, f.Type)) &&
		(f.Tenant == "" || f.Tenant == server.Tenant || f.Tenant == tenant) &&
		(f.Rack == "" || f.Rack == server.Rack) && (f.Zone == "" || f.Zone == server.Zone) &&
		(f.Text == "" || strings.Contains(
			strings.ToLower(strings.Join([]string{server.Key().String(), server.Machine, server.Node, server.Why}, "\n")),
			strings.ToLower(f.Text)))
}
