// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package emulator knows what a bare-metal server does when it is switched on, and does it without the metal.
//
// An emulated server sees only what a real one would: whether it has power, what is installed on its disk, and its
// config drive. It reads the user data there as cloud-init does, and joins as `kubeadm join` and the kubelet do: it
// verifies the cluster by token and CA hash, asks for a client certificate, and registers its Node with that identity.
// With a wrong token, endpoint or hash it does not join. Heartbeats of the Node and the pods on it are kwok's job.
//
// Where power and config drive come from is behind Source. Metal3Source takes them from BareMetalHosts.
//
// The packages below it are a rack of their own, underneath Metal3: BMCs, deploy agents and disks (README.md).
package emulator
