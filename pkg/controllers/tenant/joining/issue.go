// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
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

// issue writes what a Machine needs to join: the token first, then the Secret with the join, then the reference that
// the manager waits for. It keeps the token valid until the Node has registered.
func (c *Controller) issue(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	now, err := c.now(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	renewal := now.Truncate(tokenRenewal).Add(tokenRenewal)

	if machine.Spec.Bootstrap.DataSecretName == "" {
		// The cache may be behind, and a server may be booting.
		live := &v1alpha1.Machine{}
		found, err := kube.Find(ctx, c.clusters.Management.Live, client.ObjectKeyFromObject(machine), live)
		if err != nil || !found || live.UID != machine.UID {
			return reconcile.Result{}, err // its deletion follows as a change
		}
		machine.Spec.Bootstrap.DataSecretName = live.Spec.Bootstrap.DataSecretName
	}
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
	// Once the reference exists, the join stays, because a server may be booting with it, unless its token is lost.
	if issued != token {
		if err := c.writeJoin(ctx, machine, tenantCluster, token); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: renewal.Sub(now)}, nil
}

// now returns the time of the tenant's API server, which decides on the expiry of tokens, within timeValidity.
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
	// Drop the monotonic reading, which stands still while the machine is suspended.
	c.serverTime, c.readAt = review.CreationTimestamp.Time, c.clock.Now().Round(0)
	return c.serverTime, nil
}

// ensureToken returns the Machine's token. It restores an issued token that has expired and that the tenant has
// removed: the server may be booting with it.
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

// writeJoin writes the Secret with the Machine's join, and then the reference to it, with the tenant's version.
func (c *Controller) writeJoin(ctx context.Context, machine *v1alpha1.Machine, tenantCluster *v1alpha1.TenantCluster,
	token bootstrap.Token) error {
	profiled, applied, err := c.withProfile(ctx, machine, tenantCluster)
	if err != nil {
		return err
	}
	version, err := c.version(ctx)
	if err != nil {
		return err
	}
	join, err := c.join(ctx, profiled, tenantCluster, token, version)
	if err != nil {
		return err
	}
	userData, err := bootstrap.JoinUserData(join)
	if err != nil {
		return fmt.Errorf("machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}
	secret := newJoinSecret(machine, token, userData)
	// A Secret of that name has the same content: an earlier run has created it.
	if err := c.clusters.Management.Client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating secret %s, %w", client.ObjectKeyFromObject(secret), err)
	}
	if err := kube.PatchOwn(ctx, c.clusters.Management.Client, machine, "setting spec.bootstrap.dataSecretName of", func() {
		machine.Spec.Bootstrap.DataSecretName = secret.Name
		machine.ReportNode(func(reported *v1alpha1.MachineNode) { reported.KubernetesVersion = version })
		if applied != "" {
			metav1.SetMetaDataAnnotation(&machine.ObjectMeta, v1alpha1.NodeProfileAppliedAnnotationKey, applied)
		} else {
			delete(machine.Annotations, v1alpha1.NodeProfileAppliedAnnotationKey)
		}
	}); err != nil {
		return err
	}
	log.FromContext(ctx).Info("machine may join", "secret", secret.Name, "providerID", machine.Status.ProviderID)
	return nil
}

// revoke takes the join back: the token in the tenant first, then the content of the Machine's Secrets. It empties the
// referenced Secret last, as the sign that nothing is left to do. Kubernetes deletes the Secrets with the Machine.
func (c *Controller) revoke(ctx context.Context, machine *v1alpha1.Machine) error {
	referenced, err := c.joinSecret(ctx, machine)
	if err != nil || referenced != nil && metav1.IsControlledBy(referenced, machine) && isRevoked(referenced) {
		return err
	}
	if err := bootstrap.DeleteToken(ctx, c.clusters.Tenant.LiveClient(), machineRef(machine)); err != nil {
		return err
	}
	all := &corev1.SecretList{}
	if err := c.clusters.Management.Live.List(ctx, all, client.InNamespace(machine.Namespace),
		client.MatchingLabels{v1alpha1.MachineUIDLabelKey: string(machine.UID)}); err != nil {
		return fmt.Errorf("listing the join secrets of machine %s, %w", client.ObjectKeyFromObject(machine), err)
	}
	slices.SortFunc(all.Items, func(a, b corev1.Secret) int {
		switch machine.Spec.Bootstrap.DataSecretName {
		case a.Name:
			return 1
		case b.Name:
			return -1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	for i := range all.Items {
		// If the hosts are in this namespace, the manager's Secrets have the same label, but no Machine controls them.
		secret := &all.Items[i]
		if !metav1.IsControlledBy(secret, machine) || isRevoked(secret) {
			continue
		}
		secret.Data = map[string][]byte{v1alpha1.UserDataSecretKey: []byte(revokedUserData)}
		if err := c.clusters.Management.Client.Update(ctx, secret); err != nil {
			return fmt.Errorf("emptying secret %s, %w", client.ObjectKeyFromObject(secret), err)
		}
	}
	return nil
}

func isRevoked(secret *corev1.Secret) bool {
	return string(secret.Data[v1alpha1.UserDataSecretKey]) == revokedUserData
}

// revokedUserData is the user data of a Machine that has joined: cloud-config without content.
const revokedUserData = "#cloud-config\n# The machine has joined, and the join token is gone.\n{}\n"

// Keys of the Secret beside the user data: the token, and the provider ID of the server.
const (
	tokenKey      = "token"
	providerIDKey = "providerID"
)

// joinSecret reads the Secret that a Machine refers to from the API server, or returns nil if there is none.
func (c *Controller) joinSecret(ctx context.Context, machine *v1alpha1.Machine) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.DataSecretName}
	if key.Name == "" {
		return nil, nil
	}
	secret := &corev1.Secret{}
	if found, err := kube.Find(ctx, c.clusters.Management.Live, key, secret); err != nil || !found {
		return nil, err
	}
	return secret, nil
}

// tokenIn returns the token in the Machine's Secret, or the zero Token if there is none for its server.
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

// newJoinSecret builds the Secret with a join, in memory. It is written once: a provider may empty its Secrets but not
// change them, so that they do not fill etcd with their revisions. Another join of the Machine has another name.
func newJoinSecret(machine *v1alpha1.Machine, token bootstrap.Token, userData []byte) *corev1.Secret {
	content := sha256.Sum256(slices.Concat(userData, []byte(token.Reveal()+machine.Status.ProviderID)))
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: machine.Namespace,
			Name:      fmt.Sprintf("%s-%x-join", machine.Name, content[:4]),
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
}
