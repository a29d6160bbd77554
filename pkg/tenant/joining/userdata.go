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

// usedUp is the user data of a Machine that has joined: still a cloud-config, so that nobody trips over it, with
// nothing in it.
const usedUp = "#cloud-config\n# The machine has joined, and the join token is gone.\n{}\n"

// userDataName is the name of the Secret with the Machine's user data, in the Machine's namespace.
func userDataName(machine *v1alpha1.Machine) string {
	return machine.Name + "-user-data"
}

// userDataSecret reads the Secret of that name from the API server, or returns nil if there is none.
func (c *Controller) userDataSecret(ctx context.Context, machine *v1alpha1.Machine) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := c.planes.Management.Live.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: userDataName(machine)}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the user data secret of machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}
	return secret, nil
}

// heldToken returns the token in the Machine's user data, or an empty one when there is none that could be used.
func heldToken(secret *corev1.Secret, machine *v1alpha1.Machine) bootstrap.Token {
	if secret == nil || !metav1.IsControlledBy(secret, machine) {
		return bootstrap.Token{}
	}
	join, err := bootstrap.ParseUserData(secret.Data[v1alpha1.UserDataSecretKey])
	if err != nil || join.ProviderID != machine.Status.ProviderID {
		return bootstrap.Token{}
	}
	return join.Token
}

// ensureUserDataSecret makes the Secret hold the document. One that an earlier Machine of that name has left behind
// is replaced; one that is not of a Machine is left alone.
func (c *Controller) ensureUserDataSecret(ctx context.Context, machine *v1alpha1.Machine, existing *corev1.Secret, document []byte) error {
	wanted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: machine.Namespace,
			Name:      userDataName(machine),
			Labels: map[string]string{
				v1alpha1.MachineLabelKey:    machine.Name,
				v1alpha1.MachineUIDLabelKey: string(machine.UID),
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(machine, v1alpha1.GroupVersion.WithKind("Machine")),
			},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{v1alpha1.UserDataSecretKey: document},
	}
	key := client.ObjectKeyFromObject(wanted)
	if existing != nil && !metav1.IsControlledBy(existing, machine) {
		if _, ours := existing.Labels[v1alpha1.MachineLabelKey]; !ours {
			return fmt.Errorf("secret %s is in the way of the user data of Machine %s and is not of a Machine: delete or rename it",
				key, machine.Name)
		}
		if err := c.deleteSecret(ctx, existing); err != nil {
			return err
		}
		existing = nil
	}
	if existing == nil {
		if err := c.planes.Management.Client.Create(ctx, wanted); err != nil {
			return fmt.Errorf("creating secret %s, %w", key, err)
		}
		return nil
	}
	if bytes.Equal(existing.Data[v1alpha1.UserDataSecretKey], document) {
		return nil
	}
	return c.updateUserData(ctx, existing, document)
}

// updateUserData writes the document into an existing Secret, unless somebody has written it since it was read.
func (c *Controller) updateUserData(ctx context.Context, existing *corev1.Secret, document []byte) error {
	existing.Data = maps.Clone(existing.Data)
	if existing.Data == nil {
		existing.Data = map[string][]byte{}
	}
	existing.Data[v1alpha1.UserDataSecretKey] = document
	if err := c.planes.Management.Client.Update(ctx, existing); err != nil {
		return fmt.Errorf("updating secret %s, %w", client.ObjectKeyFromObject(existing), err)
	}
	return nil
}

func (c *Controller) deleteSecret(ctx context.Context, secret *corev1.Secret) error {
	err := c.planes.Management.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting secret %s, %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}
