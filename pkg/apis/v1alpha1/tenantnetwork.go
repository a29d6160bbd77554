// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"
)

// TenantNetwork names the network that the servers of a tenant are moved into before they boot its image, and out of
// before they go back to the pool. Exactly one of its fields is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.vlan), has(self.vni), has(self.id)].filter(set, set).size() == 1",message="say exactly one of vlan, vni and id"
type TenantNetwork struct {
	// VLAN is the IEEE 802.1Q VLAN ID, 1 to 4094.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN *int32 `json:"vlan,omitempty"`
	// VNI is the VXLAN network identifier, 1 to 16777215.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777215
	VNI *int32 `json:"vni,omitempty"`
	// ID is what the network controller calls the network, when that is neither a VLAN nor a VNI.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id,omitempty"`
}

// String is the network as it stands in the value of a hook: vlan:100, vni:5000 or id:blue. ParseTenantNetwork is
// the inverse.
func (n TenantNetwork) String() string {
	switch {
	case n.VLAN != nil:
		return fmt.Sprintf("vlan:%d", *n.VLAN)
	case n.VNI != nil:
		return fmt.Sprintf("vni:%d", *n.VNI)
	}
	return "id:" + n.ID
}

// ParseTenantNetwork reads what String wrote.
func ParseTenantNetwork(text string) (TenantNetwork, error) {
	kind, value, found := strings.Cut(text, ":")
	if !found || value == "" {
		return TenantNetwork{}, fmt.Errorf("%q is not a tenant network: write vlan:N, vni:N or id:NAME", text)
	}
	if kind == "id" {
		return TenantNetwork{ID: value}, nil
	}
	number, err := strconv.ParseInt(value, 10, 32)
	n := int32(number)
	switch {
	case kind == "vlan" && err == nil:
		return TenantNetwork{VLAN: &n}, nil
	case kind == "vni" && err == nil:
		return TenantNetwork{VNI: &n}, nil
	}
	return TenantNetwork{}, fmt.Errorf("%q is not a tenant network: write vlan:N, vni:N or id:NAME", text)
}
