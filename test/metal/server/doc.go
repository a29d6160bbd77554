// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server boots a server that is a container: systemd and all that it starts, from the root file system that
// `make server-image` makes of Debian's packages, in namespaces of its own, with a network interface on a bridge. It is
// given the config drive that Ironic wrote, as files where cloud-init looks for them, and cloud-init does the rest, as on
// any other server: it sets up the network, and executes the user data that make the server join a cluster.
//
// The kernel is the machine's. What follows from that is put right from outside, and only here (see adapt.go); the root
// file system itself is also the disk of a virtual machine (package vm).
//
// A server that runs is a tree of processes below one that was started by Run, in a process namespace of its own. When
// that one ends, for whatever reason, the kernel ends all others, and with them go mounts, network and interface. Control
// groups are removed afterwards.
package server
