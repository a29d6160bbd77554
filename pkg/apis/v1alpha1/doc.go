// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API of karpenter-provider-metal3: hardware profiles (NodeProvider, NodeType), the contract
// between the tenant and the management cluster (Machine), the operating systems (OSImage), the tenants
// (TenantCluster), and Karpenter's node class for bare metal (MetalNodeClass, the only kind that lives in tenants).
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.metal3.io
package v1alpha1
