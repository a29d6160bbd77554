// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bmc is the management controller of emulated servers: the Redfish wire that Ironic and other clients speak.
//
// It knows what a BMC keeps (boot override, virtual media, sessions) and shows (power, inventory), and nothing of what the
// server does when it is switched on: that is behind the interface Power. Resources are the types of gofish; what those
// leave out because they are made for reading, links and actions, is added beside them.
package bmc
