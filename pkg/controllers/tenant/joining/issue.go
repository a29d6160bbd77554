// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// issue gives a Machine what it needs to join: the token first, then the Secret with the join, then the reference to it that
// the manager waits for. It keeps the token valid until the Node has registered.
func (c *Controller) issue(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	now, err := c.now(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	renewal := now.Truncate(tokenRenewal).Add(tokenRenewal)

	secret, err := c.joinSecret(ctx, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	tenantCluster := &v1alpha1.TenantCluster{}
	if err := c.clusters.Management.Client.Get(ctx, c.clusters.TenantCluster, tenantCluster); err != nil {
		return reconcile.Result{}, fmt.Errorf("reading TenantCluster %s, %w", c.clusters.TenantCluster, err)
	}
	issued := tokenIn(secret, machine)
	token, err := c.ensureToken(ctx, machine, tenantCluster.Spec.JoinMode, issued, renewal.Add(tokenValidity))
	if err != nil {
		return reconcile.Result{}, err
	}
	// From the reference on the join stays as it is, because a server may be booting with it, unless its token is lost.
	referenced := machine.Spec.Bootstrap.DataSecretName == joinSecretName(machine)
	applied, version := machine.Annotations[v1alpha1.NodeProfileAppliedAnnotationKey], machine.ReportedNode().KubernetesVersion
	if !referenced || issued != token {
		var profiled *v1alpha1.Machine
		if profiled, applied, err = c.withProfile(ctx, machine, tenantCluster); err != nil {
			return reconcile.Result{}, err
		}
		if version, err = c.writeJoin(ctx, machine, profiled, tenantCluster, secret, token); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !referenced || applied != machine.Annotations[v1alpha1.NodeProfileAppliedAnnotationKey] {
		if err := kube.PatchOwn(ctx, c.clusters.Management.Client, machine, "setting spec.bootstrap.dataSecretName of", func() {
			machine.Spec.Bootstrap.DataSecretName = joinSecretName(machine)
			machine.ReportNode(reportVersion(version))
			if applied != "" {
				metav1.SetMetaDataAnnotation(&machine.ObjectMeta, v1alpha1.NodeProfileAppliedAnnotationKey, applied)
			} else {
				delete(machine.Annotations, v1alpha1.NodeProfileAppliedAnnotationKey)
			}
		}); err != nil {
			return reconcile.Result{}, err
		}
		log.FromContext(ctx).Info("machine may join", "secret", joinSecretName(machine), "providerID", machine.Status.ProviderID)
	}
	return reconcile.Result{RequeueAfter: renewal.Sub(now)}, nil
}

// now returns the time of the tenant's API server, because that is what decides whether a token has expired. It is at most
// timeValidity wrong.
func (c *Controller) now(ctx context.Context) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := c.clock.Since(c.readAt); !c.readAt.IsZero() && age >= 0 && age < timeValidity {
		return c.serverTime.Add(age), nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	err := c.clusters.Tenant.Client.Create(ctx, review)
	if err == nil && review.CreationTimestamp.IsZero() {
		err = errors.New("its answer to a SelfSubjectReview has no creationTimestamp")
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the time of the tenant's API server, %w", err)
	}
	// Without its monotonic reading, which stands still while the machine is suspended.
	c.serverTime, c.readAt = review.CreationTimestamp.Time, c.clock.Now().Round(0)
	return c.serverTime, nil
}

// ensureToken returns the Machine's token. The one that has been issued is restored if it has expired and the tenant has
// removed it: the server may be booting with it.
func (c *Controller) ensureToken(ctx context.Context, machine *v1alpha1.Machine, mode v1alpha1.JoinMode, issued bootstrap.Token,
	deadline time.Time) (bootstrap.Token, error) {
	live := c.clusters.Tenant.LiveClient()
	if !issued.IsZero() {
		secret := bootstrap.TokenSecret(machineRef(machine), mode, issued, deadline)
		err := live.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.Secret{})
		if apierrors.IsNotFound(err) {
			err = live.Create(ctx, secret)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return bootstrap.Token{}, fmt.Errorf("restoring the join token of machine %s, %w", client.ObjectKeyFromObject(machine), err)
		}
	}
	return bootstrap.EnsureToken(ctx, live, machineRef(machine), mode, deadline)
}

// writeJoin writes the Secret with the Machine's join, and returns the tenant's version, which the server installs. A Machine that
// refers to the Secret gets the version before: its server may be booting. Another gets it with the reference. Profiled is the Machine
// with what its NodeProfile adds.
func (c *Controller) writeJoin(ctx context.Context, machine, profiled *v1alpha1.Machine, tenantCluster *v1alpha1.TenantCluster,
	existing *corev1.Secret, token bootstrap.Token) (version string, err error) {
	if version, err = c.version(ctx); err != nil {
		return "", err
	}
	join, err := c.join(ctx, profiled, tenantCluster, token, version)
	if err != nil {
		return "", err
	}
	userData, err := bootstrap.JoinUserData(join)
	if err != nil {
		return "", fmt.Errorf("machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}
	if machine.Spec.Bootstrap.DataSecretName == joinSecretName(machine) && machine.ReportedNode().KubernetesVersion != version {
		if err := kube.PatchOwn(ctx, c.clusters.Management.Client, machine, "writing the version of Kubernetes into", func() {
			machine.ReportNode(reportVersion(version))
		}); err != nil {
			return "", err
		}
	}
	return version, c.ensureSecret(ctx, machine, existing, token, userData)
}

func reportVersion(version string) func(*v1alpha1.MachineNode) {
	return func(reported *v1alpha1.MachineNode) { reported.KubernetesVersion = version }
}

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
	key := client.ObjectKey{Namespace: machine.Namespace, Name: joinSecretName(machine)}
	if found, err := kube.Find(ctx, c.clusters.Management.Live, key, secret); err != nil || !found {
		return nil, err
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
	return kube.Delete(ctx, c.clusters.Management.Client, secret, "deleting")
}
