// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// revoke takes back what a Machine was given to join with: the token in the tenant first, then the Secret, so that a revoked
// Secret says that nothing is left to do. The Secret of a joined Machine stays without the join, because the Machine refers to
// it. That of a deleted Machine goes at once and not with its owner: the manager can take long to release the server.
func (c *Controller) revoke(ctx context.Context, machine *v1alpha1.Machine) error {
	secret, err := c.joinSecret(ctx, machine)
	if err != nil {
		return err
	}
	ours, deleting := secret != nil && metav1.IsControlledBy(secret, machine), !machine.DeletionTimestamp.IsZero()
	if ours && !deleting && string(secret.Data[v1alpha1.UserDataSecretKey]) == revokedUserData {
		return nil
	}
	if err := bootstrap.DeleteToken(ctx, c.clusters.Tenant.LiveClient(), machineRef(machine)); err != nil {
		return err
	}
	switch {
	case !ours:
		return nil
	case deleting:
		return c.deleteSecret(ctx, secret)
	}
	return c.updateSecret(ctx, secret, map[string][]byte{v1alpha1.UserDataSecretKey: []byte(revokedUserData)})
}
