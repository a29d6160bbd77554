// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chain shows the whole way of a pod: a tenant's pod asks for a GPU, and a bare-metal server is claimed for it,
// installed by Metal3 and Ironic, boots, joins the tenant's cluster by cloud-init and kubeadm, and runs it; and the server
// comes back when the pod is gone. It does so twice: with our programs as processes, and with our charts on a management
// cluster that has a node; and the black-box suite, test/e2e, runs on such servers. Everything is real but the metal: the
// servers are virtual machines, or containers where time matters more, behind emulated BMCs. The tests run by
// `make e2e-metal`; without it they are skipped, and say so.
package chain
