// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chain tests a pod end to end: a tenant's pod requests a GPU; a bare-metal server is claimed, installed by
// Metal3 and Ironic, boots, joins the tenant's cluster by cloud-init and kubeadm, and runs the pod; the server is
// released when the pod is deleted. Our programs run as processes; test/kind has them as pods. Only the metal is
// emulated: the servers are virtual machines, or containers where time matters more, behind emulated BMCs. The tests
// run by `make e2e-metal`; without it they are skipped, and say so.
package chain
