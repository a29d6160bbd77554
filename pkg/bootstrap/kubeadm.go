// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	kubeadmAPIVersion     = "kubeadm.k8s.io/v1beta4"
	joinConfigurationKind = "JoinConfiguration"
)

// joinConfiguration is the part of kubeadm's v1beta4 JoinConfiguration that user data needs. kubeadm publishes its
// types only inside the module of all of Kubernetes.
type joinConfiguration struct {
	metav1.TypeMeta  `json:",inline"`
	Discovery        discovery        `json:"discovery"`
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
}

type discovery struct {
	BootstrapToken bootstrapTokenDiscovery `json:"bootstrapToken"`
}

type bootstrapTokenDiscovery struct {
	// Token is in the clear here, so a joinConfiguration must not be logged, and is not exported.
	Token             string   `json:"token"`
	APIServerEndpoint string   `json:"apiServerEndpoint"`
	CACertHashes      []string `json:"caCertHashes"`
}

type nodeRegistration struct {
	Name string `json:"name"`
	// Taints are written even when there are none: kubeadm adds its own defaults where they are absent.
	Taints           []corev1.Taint `json:"taints"`
	KubeletExtraArgs []kubeletArg   `json:"kubeletExtraArgs,omitempty"`
}

type kubeletArg struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// joinConfigurationFor returns the kubeadm document for a valid Join.
func joinConfigurationFor(j Join) joinConfiguration {
	args := []kubeletArg{{Name: argProviderID, Value: j.ProviderID}}
	if labels := SelfSettableLabels(j.Labels); len(labels) > 0 {
		args = append(args, kubeletArg{Name: argNodeLabels, Value: nodeLabelsArg(labels)})
	}
	for _, name := range slices.Sorted(maps.Keys(j.KubeletArgs)) {
		args = append(args, kubeletArg{Name: name, Value: j.KubeletArgs[name]})
	}
	return joinConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeadmAPIVersion, Kind: joinConfigurationKind},
		Discovery: discovery{BootstrapToken: bootstrapTokenDiscovery{
			Token:             j.Token.Reveal(),
			APIServerEndpoint: j.APIServerEndpoint,
			CACertHashes:      j.CACertHashes,
		}},
		NodeRegistration: nodeRegistration{
			Name:             j.NodeName,
			Taints:           append([]corev1.Taint{}, j.Taints...),
			KubeletExtraArgs: args,
		},
	}
}
