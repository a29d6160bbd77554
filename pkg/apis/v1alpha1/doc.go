// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of karpenter-provider-metal3: hardware profiles (NodeProvider, NodeType), the contract
// between the tenant and the management cluster (Machine), the operating systems (OSImage), the tenants
// (TenantCluster), and Karpenter's node class for bare metal (MetalNodeClass, the only kind that lives in tenants).
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.metal3.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of every kind in this package.
const Group = "karpenter.metal3.io"

var (
	// GroupVersion is the group and version of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

	// SchemeBuilder collects the functions that add this package to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(GroupVersion,
			&NodeProvider{}, &NodeProviderList{},
			&NodeType{}, &NodeTypeList{},
			&Machine{}, &MachineList{},
			&NodeProfile{}, &NodeProfileList{},
			&OSImage{}, &OSImageList{},
			&SSHKey{}, &SSHKeyList{},
			&MachineConfigTemplate{}, &MachineConfigTemplateList{},
			&TenantCluster{}, &TenantClusterList{},
			&MetalNodeClass{}, &MetalNodeClassList{},
			&IPAddress{}, &IPAddressList{},
			&HostUsage{}, &HostUsageList{},
		)
		metav1.AddToGroupVersion(scheme, GroupVersion)
		return nil
	})

	// AddToScheme adds every kind of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)
