// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// tokenIDAttempts bounds how many IDs are tried when others are taken. IDs are one of two thousand million, so a
// second collision means that something is wrong.
const tokenIDAttempts = 5

// EnsureToken returns the Machine's token in the tenant cluster, and makes or renews it as needed, so that it is valid until
// the deadline. It can be called again at any time, also after a crash between any two writes: a Machine keeps one
// token. The client must read from the tenant's API server, not from a cache. A deadline that has passed is an error.
func EnsureToken(ctx context.Context, c client.Client, machine v1alpha1.MachineReference, deadline time.Time,
	clk clock.PassiveClock) (Token, error) {
	if !deadline.After(clk.Now()) {
		return Token{}, fmt.Errorf("ensuring the join token of Machine %s/%s, its deadline %s has passed",
			machine.Namespace, machine.Name, deadline.UTC().Format(time.RFC3339))
	}
	token, err := ensureToken(ctx, c, machine, deadline)
	if err != nil {
		return Token{}, fmt.Errorf("ensuring the join token of Machine %s/%s, %w", machine.Namespace, machine.Name, err)
	}
	return token, nil
}

func ensureToken(ctx context.Context, c client.Client, machine v1alpha1.MachineReference, deadline time.Time) (Token, error) {
	if machine.UID == "" {
		return Token{}, errors.New("it has no UID: read it from the API first")
	}
	// 1. It has one, under whatever ID.
	existing, err := tokenSecrets(ctx, c, machine)
	if err != nil {
		return Token{}, err
	}
	if len(existing) > 0 {
		return renewToken(ctx, c, machine, &existing[0], deadline)
	}
	// 2. It has none: the ID is derived, so two callers at once make the same Secret, and one of them is told.
	for salt := range tokenIDAttempts {
		token, err := NewToken(TokenID(machine.UID, salt), rand.Reader)
		if err != nil {
			return Token{}, err
		}
		secret := TokenSecret(machine, token, deadline)
		err = c.Create(ctx, secret)
		if err == nil {
			return token, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return Token{}, fmt.Errorf("creating secret %s, %w", secret.Name, err)
		}
		// 3. The ID is taken: by the other caller, or by somebody else's token, which stays as it is.
		taken := &corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(secret), taken); err != nil {
			return Token{}, fmt.Errorf("reading secret %s, %w", secret.Name, err)
		}
		if taken.Labels[v1alpha1.MachineUIDLabelKey] == string(machine.UID) {
			return renewToken(ctx, c, machine, taken, deadline)
		}
	}
	return Token{}, fmt.Errorf("the %d token IDs derived from its UID are all taken by others", tokenIDAttempts)
}

// renewToken brings an existing Secret up to date. The secret half stays: user data may hold it already.
func renewToken(
	ctx context.Context, c client.Client, machine v1alpha1.MachineReference, secret *corev1.Secret, deadline time.Time,
) (Token, error) {
	token, err := tokenOf(secret)
	if err != nil {
		return Token{}, fmt.Errorf("secret %s of namespace %s is damaged, delete it and another is made: %w", secret.Name, secret.Namespace, err)
	}
	want := TokenSecret(machine, token, deadline)
	if apiequality.Semantic.DeepEqual(secret.Data, want.Data) {
		return token, nil
	}
	// The update carries the resource version that was read: a token deleted meanwhile is not brought back.
	secret.Data = want.Data
	if err := c.Update(ctx, secret); err != nil {
		return Token{}, fmt.Errorf("renewing secret %s, %w", secret.Name, err)
	}
	return token, nil
}

// DeleteToken deletes the Machine's token from the tenant cluster. No token is no error.
func DeleteToken(ctx context.Context, c client.Client, machine v1alpha1.MachineReference) error {
	secrets, err := tokenSecrets(ctx, c, machine)
	if err != nil {
		return fmt.Errorf("deleting the join token of Machine %s/%s, %w", machine.Namespace, machine.Name, err)
	}
	for _, secret := range secrets {
		err := c.Delete(ctx, &secret, client.Preconditions{UID: &secret.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the join token of Machine %s/%s, secret %s, %w", machine.Namespace, machine.Name, secret.Name, err)
		}
	}
	return nil
}

func tokenSecrets(ctx context.Context, c client.Reader, machine v1alpha1.MachineReference) ([]corev1.Secret, error) {
	list := &corev1.SecretList{}
	if err := c.List(ctx, list, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{v1alpha1.MachineUIDLabelKey: string(machine.UID)}); err != nil {
		return nil, fmt.Errorf("listing token secrets, %w", err)
	}
	tokens := list.Items[:0]
	for _, secret := range list.Items {
		if secret.Type == bootstrapapi.SecretTypeBootstrapToken {
			tokens = append(tokens, secret)
		}
	}
	return tokens, nil
}
