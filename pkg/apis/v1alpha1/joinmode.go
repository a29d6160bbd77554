// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// JoinMode is how servers join a tenant.
// +kubebuilder:validation:Enum=Kubeadm;VCluster
type JoinMode string

const (
	// JoinKubeadm runs `kubeadm join` against the tenant's API server. It is the default.
	JoinKubeadm JoinMode = "Kubeadm"
	// JoinVCluster fetches the join script that a vCluster serves at /node/join of its API server's endpoint, and
	// runs it. The endpoint's certificate must be signed by the tenant's CA.
	JoinVCluster JoinMode = "VCluster"
)
