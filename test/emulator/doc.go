// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package emulator emulates bare-metal servers above Metal3: they boot and join a cluster.
//
// An emulated server depends only on its power, the image on its disk, and its config drive. It reads the user data
// there as cloud-init does, and joins as `kubeadm join` and the kubelet do: it verifies the cluster by token and CA
// hash, asks for a client certificate, and registers its Node with that identity. With a wrong token, endpoint or hash
// it does not join. kwok sends the heartbeats of the Node and runs its pods.
//
// Power and config drive come from a Source. Metal3Source takes them from BareMetalHosts.
//
// The packages below it emulate a rack below Metal3: BMCs, deploy agents and disks (README.md).
package emulator
