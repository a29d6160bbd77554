// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inspection asks a BMC by Redfish what hardware its server has, and puts the answer in the form of Ironic's inventory.
//
// Ironic does the same since 2024: an inspection of the kind redfish ends with an inventory, for baremetal-operator to make
// hardware details of. The one that Debian has ends with a handful of properties, from which processors' models, all disks but
// the smallest, and the names and speeds of network interfaces cannot be told any more.
package inspection
