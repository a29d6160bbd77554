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

// issue gives a Machine what it needs to join: the token first, then the Secret with the join, then the reference to it that
// the manager waits for. It keeps the token valid until the Node has registered.
func (c *Controller) issue(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	now := c.clock.Now()
	renewal := now.Truncate(tokenRenewal).Add(tokenRenewal)

	secret, err := c.joinSecret(ctx, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	issued := tokenIn(secret, machine)
	token, err := c.ensureToken(ctx, machine, issued, renewal.Add(tokenValidity))
	if err != nil {
		return reconcile.Result{}, err
	}
	// From the reference on the join stays as it is, because a server may be booting with it, unless its token is lost.
	referenced := machine.Spec.Bootstrap.DataSecretName == joinSecretName(machine)
	if !referenced || issued != token {
		if err := c.writeJoin(ctx, machine, secret, token); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !referenced {
		stored := machine.DeepCopy()
		machine.Spec.Bootstrap.DataSecretName = joinSecretName(machine)
		if err := c.clusters.Management.Client.Patch(ctx, machine,
			client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
			return reconcile.Result{},
				fmt.Errorf("setting spec.bootstrap.dataSecretName of machine %s, %w", client.ObjectKeyFromObject(machine), err)
		}
		log.FromContext(ctx).Info("machine may join", "secret", joinSecretName(machine), "providerID", machine.Status.ProviderID)
	}
	return reconcile.Result{RequeueAfter: renewal.Sub(now)}, nil
}

// ensureToken returns the Machine's token. The one that has been issued is restored if it has expired and the tenant has
// removed it: the server may be booting with it.
func (c *Controller) ensureToken(ctx context.Context, machine *v1alpha1.Machine, issued bootstrap.Token,
	deadline time.Time) (bootstrap.Token, error) {
	live := c.clusters.Tenant.LiveClient()
	if !issued.IsZero() {
		secret := bootstrap.TokenSecret(machineRef(machine), issued, deadline)
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

// writeJoin writes the Secret with the Machine's join.
func (c *Controller) writeJoin(ctx context.Context, machine *v1alpha1.Machine, existing *corev1.Secret, token bootstrap.Token) error {
	tenantCluster := &v1alpha1.TenantCluster{}
	if err := c.clusters.Management.Client.Get(ctx, c.clusters.TenantCluster, tenantCluster); err != nil {
		return fmt.Errorf("reading TenantCluster %s, %w", c.clusters.TenantCluster, err)
	}
	join, err := c.join(ctx, machine, tenantCluster, token)
	if err != nil {
		return err
	}
	userData, err := bootstrap.JoinUserData(join)
	if err != nil {
		return fmt.Errorf("machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}
	return c.ensureSecret(ctx, machine, existing, token, userData)
}
