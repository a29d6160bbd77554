// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package servers

import "testing"

// The hosts of both fleets are in one namespace.
func TestAllHaveNamesOfTheirOwn(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, server := range all {
		if seen[server.Name] {
			t.Errorf("there are two servers %s", server.Name)
		}
		seen[server.Name] = true
	}
}
