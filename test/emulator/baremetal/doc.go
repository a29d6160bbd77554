// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baremetal is one emulated server from its power button on: its firmware, which boots what the BMC says or what is
// on the disk; the deploy agent, when it boots Ironic's medium; and the boot command, when it boots an installed image.
//
// What a booted image does is not known here. The boot command is a program that runs for as long as the server does, be it a
// virtual machine, a container or a script.
package baremetal
