// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vm boots a server that is a virtual machine: qemu, which emulates every instruction (TCG), with firmware, one
// disk, one network interface and a serial console. Its disk is the installed image itself, which the server changes;
// Ironic's config drive is another disk. Boot loader and kernel are the image's own. A server that is a container
// (package server) is ready fifteen times as fast, but has the machine's kernel.
//
// A server that runs is one process, started by Run, and ends with it. Its interface belongs to that process, so it
// goes with the process, even if that is killed.
package vm
