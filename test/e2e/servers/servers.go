// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers has the servers that the tests of test/e2e need, for whatever makes clusters for them.
package servers

import (
	_ "embed"
	"slices"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

//go:embed servers.yaml
var testServers []byte

// All returns the servers of the reference fleet, and after them those that tests need beside it.
func All() ([]fleet.Server, error) {
	reference, err := fleet.Reference()
	if err != nil {
		return nil, err
	}
	others, err := fleet.Parse("test/e2e/servers/servers.yaml", testServers)
	return slices.Concat(reference, others), err
}
