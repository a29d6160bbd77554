// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// invite gives a Machine what it needs to join, token first, then user data, then the reference that the manager
// waits for, and keeps the token valid until the Node has registered.
func (c *Controller) invite(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	now := c.clock.Now()
	renewal := now.Truncate(tokenRenewal).Add(tokenRenewal)

	secret, err := c.userDataSecret(ctx, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	held := heldToken(secret, machine)
	token, err := c.ensureToken(ctx, machine, held, renewal.Add(tokenValidity))
	if err != nil {
		return reconcile.Result{}, err
	}
	// Once the manager has been told of it the document stays as it is, unless no server could join with it.
	handedOver := machine.Spec.Bootstrap.DataSecretName == userDataName(machine)
	if !handedOver || held != token {
		if err := c.writeUserData(ctx, machine, secret, token); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !handedOver {
		stored := machine.DeepCopy()
		machine.Spec.Bootstrap.DataSecretName = userDataName(machine)
		if err := c.planes.Management.Client.Patch(ctx, machine,
			client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
			return reconcile.Result{}, fmt.Errorf("setting the user data of machine %s, %w", client.ObjectKeyFromObject(machine), err)
		}
		log.FromContext(ctx).Info("machine may join", "secret", userDataName(machine), "providerID", machine.Status.ProviderID)
	}
	return reconcile.Result{RequeueAfter: renewal.Sub(now)}, nil
}

// ensureToken returns the Machine's token. The one that the user data holds is kept, even if it has expired meanwhile
// and the tenant has removed it: the server may be booting with it.
func (c *Controller) ensureToken(ctx context.Context, machine *v1alpha1.Machine, held bootstrap.Token, deadline time.Time) (bootstrap.Token, error) {
	live := c.planes.Tenant.LiveClient()
	if !held.IsZero() {
		secret := bootstrap.TokenSecret(machineRef(machine), held, deadline)
		err := live.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.Secret{})
		if apierrors.IsNotFound(err) {
			err = live.Create(ctx, secret)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return bootstrap.Token{}, fmt.Errorf("restoring the join token of machine %s, %w", client.ObjectKeyFromObject(machine), err)
		}
	}
	return bootstrap.EnsureToken(ctx, live, machineRef(machine), deadline, c.clock)
}

// writeUserData makes the Machine's user data Secret as it should be.
func (c *Controller) writeUserData(ctx context.Context, machine *v1alpha1.Machine, existing *corev1.Secret, token bootstrap.Token) error {
	tenantCluster := &v1alpha1.TenantCluster{}
	if err := c.planes.Management.Client.Get(ctx, c.planes.TenantCluster, tenantCluster); err != nil {
		return fmt.Errorf("reading TenantCluster %s, %w", c.planes.TenantCluster, err)
	}
	join, err := c.join(ctx, machine, tenantCluster, token)
	if err != nil {
		return err
	}
	document, err := bootstrap.UserData(join)
	if err != nil {
		return fmt.Errorf("machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}
	return c.ensureUserDataSecret(ctx, machine, existing, document)
}
