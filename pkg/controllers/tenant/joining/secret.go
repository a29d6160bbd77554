// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// revokedUserData is the user data of a Machine that has joined: cloud-config without content.
const revokedUserData = "#cloud-config\n# The machine has joined, and the join token is gone.\n{}\n"

// Keys of the Secret beside the user data: which token it holds, and for which server.
const (
	tokenKey      = "token"
	providerIDKey = "providerID"
)

// joinSecretName is the name of the Secret with the join of a Machine, in the Machine's namespace.
func joinSecretName(machine *v1alpha1.Machine) string {
	return machine.Name + "-join"
}

// joinSecret reads the Secret of that name from the API server, or returns nil if there is none.
func (c *Controller) joinSecret(ctx context.Context, machine *v1alpha1.Machine) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := c.clusters.Management.Live.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: joinSecretName(machine)}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the join secret of machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}
	return secret, nil
}

// tokenIn returns the token in the Machine's Secret, or an empty one if there is none for its server.
func tokenIn(secret *corev1.Secret, machine *v1alpha1.Machine) bootstrap.Token {
	if secret == nil || !metav1.IsControlledBy(secret, machine) || string(secret.Data[providerIDKey]) != machine.Status.ProviderID {
		return bootstrap.Token{}
	}
	token, err := bootstrap.ParseToken(string(secret.Data[tokenKey]))
	if err != nil {
		return bootstrap.Token{}
	}
	return token
}

// ensureSecret makes the Secret hold the join. One that an earlier Machine of that name has left behind is replaced; one
// that is not of a Machine is left alone.
func (c *Controller) ensureSecret(ctx context.Context, machine *v1alpha1.Machine, existing *corev1.Secret, token bootstrap.Token,
	userData []byte) error {
	wanted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: machine.Namespace,
			Name:      joinSecretName(machine),
			Labels: map[string]string{
				v1alpha1.MachineLabelKey:    machine.Name,
				v1alpha1.MachineUIDLabelKey: string(machine.UID),
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(machine, v1alpha1.GroupVersion.WithKind("Machine")),
			},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			v1alpha1.UserDataSecretKey: userData,
			tokenKey:                   []byte(token.Reveal()),
			providerIDKey:              []byte(machine.Status.ProviderID),
		},
	}
	key := client.ObjectKeyFromObject(wanted)
	if existing != nil && !metav1.IsControlledBy(existing, machine) {
		if _, ours := existing.Labels[v1alpha1.MachineLabelKey]; !ours {
			return fmt.Errorf("secret %s has the name of the join secret of Machine %s and is not of a Machine: delete or rename it",
				key, machine.Name)
		}
		if err := c.deleteSecret(ctx, existing); err != nil {
			return err
		}
		existing = nil
	}
	if existing != nil {
		return c.updateSecret(ctx, existing, wanted.Data)
	}
	if err := c.clusters.Management.Client.Create(ctx, wanted); err != nil {
		return fmt.Errorf("creating secret %s, %w", key, err)
	}
	return nil
}

// updateSecret replaces the content of a Secret, unless it has been written since it was read.
func (c *Controller) updateSecret(ctx context.Context, existing *corev1.Secret, data map[string][]byte) error {
	if maps.EqualFunc(existing.Data, data, bytes.Equal) {
		return nil
	}
	existing.Data = data
	if err := c.clusters.Management.Client.Update(ctx, existing); err != nil {
		return fmt.Errorf("updating secret %s, %w", client.ObjectKeyFromObject(existing), err)
	}
	return nil
}

func (c *Controller) deleteSecret(ctx context.Context, secret *corev1.Secret) error {
	err := c.clusters.Management.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting secret %s, %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}
