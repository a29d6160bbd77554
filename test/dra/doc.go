// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra tests the sync of Dynamic Resource Allocation end to end: the provider's own binary with the rights in
// config/rbac, between a host with the real kube-scheduler and kube-controller-manager and tenants with API servers of
// their own. It needs `make tools build`.
package dra
