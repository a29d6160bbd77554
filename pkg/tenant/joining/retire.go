// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// retireToken ends the use of a joined Machine's token: out of the tenant first, then out of the user data. User
// data that is used up therefore says that there is nothing left to do, at the price of one read.
func (c *Controller) retireToken(ctx context.Context, machine *v1alpha1.Machine) error {
	secret, err := c.userDataSecret(ctx, machine)
	if err != nil {
		return err
	}
	ours := secret != nil && metav1.IsControlledBy(secret, machine)
	if ours && string(secret.Data[v1alpha1.UserDataSecretKey]) == usedUp {
		return nil
	}
	if err := bootstrap.DeleteToken(ctx, c.planes.Tenant.LiveClient(), machineRef(machine)); err != nil {
		return err
	}
	if !ours {
		return nil
	}
	return c.updateUserData(ctx, secret, []byte(usedUp))
}

// withdraw takes back everything that a Machine was given to join with. The Secret would go with its owner, but the
// manager may take long to release the server, and the Secret must not outlive its use.
func (c *Controller) withdraw(ctx context.Context, machine *v1alpha1.Machine) error {
	if err := bootstrap.DeleteToken(ctx, c.planes.Tenant.LiveClient(), machineRef(machine)); err != nil {
		return err
	}
	secret, err := c.userDataSecret(ctx, machine)
	if err != nil || secret == nil || !metav1.IsControlledBy(secret, machine) {
		return err
	}
	return c.deleteSecret(ctx, secret)
}
