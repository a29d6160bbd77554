// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

// Known are the specs that do not pass, by name, with the reason in one sentence. docs/conformance.md has the same list.
var Known = map[string]string{
	"Drift NodePool Drift NodeRequirements": "the pool is changed to require spot capacity, which bare-metal servers do not have",
}
