// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

// Template is filled in by Management. The chart has a copy, which Helm fills in.
func Template() string { return management }

// MutatingTemplate is filled in by Mutating. The chart has a copy of it, too.
func MutatingTemplate() string { return mutating }
