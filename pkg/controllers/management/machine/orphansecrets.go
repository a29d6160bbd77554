// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

// OrphanSecrets deletes user data in the hosts' namespaces whose Machine does not exist. The garbage collector of
// Kubernetes does not work across namespaces.
type OrphanSecrets struct{ servers }

// Reconcile checks one Secret. It reads its metadata only.
func (o OrphanSecrets) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	secret := secretMetadata()
	if err := o.client.Get(ctx, request.NamespacedName, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	owner, ok := secretOwner(secret)
	if !ok {
		return ctrl.Result{}, nil
	}
	machine := &v1alpha1.Machine{}
	err := o.live.Get(ctx, owner.NamespacedName, machine)
	switch {
	case err == nil && machine.ClaimUID() == owner.UID:
		return ctrl.Result{}, nil
	case err != nil && !controllers.IsGone(err):
		return ctrl.Result{}, fmt.Errorf("reading Machine %s, which Secret %s belongs to, %w", owner, request, err)
	}
	uid := secret.GetUID()
	err = o.client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name}},
		client.Preconditions{UID: &uid})
	switch {
	case err == nil:
		log.FromContext(ctx).Info("Deleted user data whose Machine does not exist", "Machine", owner.String(), "UID", owner.UID)
	case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		return ctrl.Result{}, fmt.Errorf("deleting Secret %s, %w", request, err)
	}
	return ctrl.Result{}, nil
}

// secretMetadata reads the metadata of Secrets only, so that no secret is in memory without need.
func secretMetadata() *metav1.PartialObjectMetadata {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return secret
}

// secretOwner returns the Machine that a Secret in a host's namespace was made for. It reports false for all others.
func secretOwner(secret client.Object) (owner, bool) {
	uid := secret.GetLabels()[v1alpha1.MachineUIDLabelKey]
	namespace, name, found := strings.Cut(secret.GetAnnotations()[v1alpha1.MachineAnnotationKey], "/")
	o := owner{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, UID: types.UID(uid)}
	return o, found && uid != "" && secret.GetName() == userDataName(o)
}
