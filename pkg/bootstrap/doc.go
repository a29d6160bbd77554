// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap knows what a server needs to join a tenant cluster: cloud-init user data that ends in a
// `kubeadm join`, the bootstrap token that the join presents, and the hashes by which it recognises the cluster.
//
// Building and reading user data are pure functions of values. Only the functions of tokens.go talk to an API, and
// only to that of the tenant cluster.
package bootstrap
