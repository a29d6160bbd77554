// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// nodeTokenGroup is the group that kubeadm binds to what a joining node needs: reading cluster information, asking
// for a client certificate, and having it approved.
const nodeTokenGroup = "system:bootstrappers:kubeadm:default-node-token"

// TokenSecret returns the Secret that makes the token valid in the tenant cluster until the deadline. The Machine's
// UID is a label, so that its tokens can be listed, and its name an annotation, so that a token whose Machine is gone
// can be told.
func TokenSecret(machine v1alpha1.MachineReference, token Token, deadline time.Time) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem,
			Name:      bootstraputil.BootstrapTokenSecretName(token.ID()),
			Labels:    map[string]string{v1alpha1.MachineUIDLabelKey: string(machine.UID)},
			Annotations: map[string]string{
				v1alpha1.MachineLabelKey: machine.Namespace + "/" + machine.Name,
			},
		},
		Type: bootstrapapi.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			bootstrapapi.BootstrapTokenIDKey:               []byte(token.ID()),
			bootstrapapi.BootstrapTokenSecretKey:           []byte(token.SecretHalf()),
			bootstrapapi.BootstrapTokenExpirationKey:       []byte(deadline.UTC().Format(time.RFC3339)),
			bootstrapapi.BootstrapTokenDescriptionKey:      fmt.Appendf(nil, "Join of Machine %s/%s", machine.Namespace, machine.Name),
			bootstrapapi.BootstrapTokenUsageAuthentication: []byte("true"),
			bootstrapapi.BootstrapTokenUsageSigningKey:     []byte("true"),
			bootstrapapi.BootstrapTokenExtraGroupsKey:      []byte(nodeTokenGroup),
		},
	}
}

// tokenOf reads the token back from its Secret.
func tokenOf(secret *corev1.Secret) (Token, error) {
	return ParseToken(bootstraputil.TokenFromIDAndSecret(
		string(secret.Data[bootstrapapi.BootstrapTokenIDKey]), string(secret.Data[bootstrapapi.BootstrapTokenSecretKey])))
}
