// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rights compares the rights of our programs with those that they used: other tests run them with the rights in
// config/rbac on API servers with audit logs, which this package reads.
package rights
