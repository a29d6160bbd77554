// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server boots a server that is a container: systemd and all that it starts, from the root file system that
// `make server-image` makes of Debian's packages, in namespaces of its own, with a network interface on a bridge. The
// config drive that Ironic wrote is unpacked to where cloud-init looks for it. cloud-init sets up the network and runs
// the user data, by which the server joins a cluster, as on any other server.
//
// The kernel is the machine's. adapt.go has everything that needs to differ for that reason: the root file system
// itself is also the disk of a virtual machine (package vm).
//
// A server that runs is a tree of processes below one that was started by Run, in a process namespace of its own. When
// that one ends, for whatever reason, the kernel ends all others, and with them go mounts, network and interface. Control
// groups are removed afterwards.
package server
