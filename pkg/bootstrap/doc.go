// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap knows what a server reads at its first boot: cloud-init user data, composed of the user's or a
// template's document, SSH keys and the join, and the network data of the config drive. And it knows what it takes to
// join a tenant cluster: the bootstrap token that the join presents, the hashes by which it recognises the cluster,
// and the two ways to do it, kubeadm's and that of a vCluster.
//
// Building and reading documents are pure functions of values. Only the functions of tokens.go talk to an API, and
// only to that of the tenant cluster.
package bootstrap
