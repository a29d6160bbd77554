// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rights compares what our programs may do with what they have done: other tests run them with the rights in
// config/rbac on API servers that keep audit logs, and this one reads those.
package rights
