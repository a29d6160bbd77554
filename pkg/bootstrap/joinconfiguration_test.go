// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// joinConfiguration is what tests read of kubeadm's v1beta4 JoinConfiguration.
type joinConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Discovery       struct {
		BootstrapToken struct {
			Token             string   `json:"token"`
			APIServerEndpoint string   `json:"apiServerEndpoint"`
			CACertHashes      []string `json:"caCertHashes"`
		} `json:"bootstrapToken"`
	} `json:"discovery"`
	NodeRegistration struct {
		Name             string         `json:"name"`
		Taints           []corev1.Taint `json:"taints"`
		KubeletExtraArgs []kubeletArg   `json:"kubeletExtraArgs"`
	} `json:"nodeRegistration"`
}
