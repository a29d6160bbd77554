// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra tests the sync of Dynamic Resource Allocation end to end: the provider's and the webhook's own binaries with the
// rights in config/rbac, between a host with the real kube-scheduler and kube-controller-manager and tenants with API
// servers of their own. The pods of one tenant are synced by the real vCluster, those of the others by one that is played.
// It needs `make tools dra-tools build`.
package dra
