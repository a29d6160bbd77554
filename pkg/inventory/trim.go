// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

// TrimHost drops from a host what no decision reads, before it goes into a cache. With thousands of hosts, what inspection
// has found is most of a program's memory. What remains is how big the host is and how its network interfaces are named.
// Templates may read all of a host: they are rendered with one that is read from the API server.
//
// A trimmed host must be written as a patch of what has changed, never as a whole.
func TrimHost(host *bmov1alpha1.BareMetalHost) {
	delete(host.Annotations, bmov1alpha1.HardwareDetailsAnnotation)
	host.Status.OperationHistory = bmov1alpha1.OperationHistory{}
	host.Status.GoodCredentials = bmov1alpha1.CredentialsStatus{}
	host.Status.TriedCredentials = bmov1alpha1.CredentialsStatus{}
	host.Status.Provisioning.Firmware = nil
	details := host.Status.HardwareDetails
	if details == nil {
		return
	}
	kept := &bmov1alpha1.HardwareDetails{
		RAMMebibytes: details.RAMMebibytes,
		CPU:          bmov1alpha1.CPU{Arch: details.CPU.Arch, Count: details.CPU.Count},
	}
	for i := range details.NIC {
		kept.NIC = append(kept.NIC, bmov1alpha1.NIC{Name: details.NIC[i].Name, MAC: details.NIC[i].MAC})
	}
	for i := range details.Storage {
		kept.Storage = append(kept.Storage, bmov1alpha1.Storage{SizeBytes: details.Storage[i].SizeBytes})
	}
	host.Status.HardwareDetails = kept
}
