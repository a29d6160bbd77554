// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baremetal emulates one server: its firmware, which boots what the BMC selects or the disk; the deploy agent,
// when it boots Ironic's medium; and the boot command, when it boots an installed image.
//
// The boot command is a program that runs for as long as the server, such as a virtual machine, a container or a
// script.
package baremetal
