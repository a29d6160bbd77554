// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bridge stands between a baremetal-operator that asks for a newer Ironic and the Ironic that Debian has. It is
// a reverse proxy, and the only part between the operator and a BMC that is not real:
//
//   - Debian 12 has Ironic 21.4, whose API ends at microversion 1.82; baremetal-operator v0.13 asks for 1.89. The bridge
//     says that the API ends at 1.89, and asks Ironic for 1.82. What came with the versions in between, attaching of
//     virtual media above all, is not there.
//   - New nodes lose two fields that Ironic 21.4 does not know, firmware_interface and disable_power_off, and are inspected
//     by Redfish, out of band, or by the inspector, if they are behind IPMI. The operator asks for inspection by the agent, which came
//     with Ironic 24.
//   - Ironic 21.4 keeps what it found by Redfish as properties and ports of the node. Later versions make an inventory of
//     it, which is what the operator reads. The bridge makes that inventory, of the same properties and ports: processors,
//     memory, the size of the smallest disk, MAC addresses. What Ironic 21.4 does not ask a BMC for is not in it.
//
// Everything else is forwarded unchanged. An Ironic of 2024 or later needs no bridge.
package bridge
