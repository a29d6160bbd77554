// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra tests Dynamic Resource Allocation with real parts: a host cluster with a server that boots and joins by
// cloud-init and kubeadm, containerd with CDI, a driver of devices, two vClusters, and our manager, webhook and providers
// with their rights of config/rbac. What a container gets is asserted by its environment: a pod without its devices is
// Ready too. A vCluster is here for another test as well: a server joins one by kubeadm. The tests run by `make e2e-metal`;
// without it they are skipped, and say so.
package dra
