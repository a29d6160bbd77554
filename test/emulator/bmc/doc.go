// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bmc is the management controller of emulated servers: a Redfish service for Ironic and other clients.
//
// It has the state of a BMC (boot override, virtual media, sessions) and reports power and inventory. The server itself
// is behind the interface Power. Resources are the types of gofish. Those are made for clients and lack links and
// actions, which are added here.
package bmc
