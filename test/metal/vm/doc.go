// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vm boots a server that is a virtual machine: qemu, which emulates every instruction (TCG), with firmware, one
// disk, one network interface and a serial console. Its disk is the very image that was installed on it, which is changed as
// the server writes to it; Ironic's config drive is another disk. Boot loader, kernel and everything after that are the
// image's own, and nothing in it knows of this package. A server that is a container (package server) is ready fifteen
// times as fast, but has the machine's kernel, and what follows from that.
//
// A server that runs is one process, started by Run, and ends with it. Its interface belongs to that process, and so is gone
// when it is, even if it was killed.
package vm
