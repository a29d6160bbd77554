// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

// Template is what Management fills in. The chart has a copy of it, which Helm fills in.
func Template() string { return management }
