// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

// The policies are in no release of a chart. By this label they are found when the provider is uninstalled.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "karpenter-metal3-provider"
)

// self returns the name of the client's user in its cluster.
func self(ctx context.Context, c client.Client) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "", fmt.Errorf("reading the user of the provider in the tenant, %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// put creates or updates a policy and its binding: the policy first, because a binding without one is an error.
func put(ctx context.Context, c client.Client, wanted policy) error {
	spec := defaulted(wanted.spec)
	existing := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	if err := ensure(ctx, c, wanted.name, existing, func() bool {
		same := equality.Semantic.DeepEqual(existing.Spec, spec)
		existing.Spec = spec
		return same
	}); err != nil {
		return err
	}
	bindingSpec := admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: wanted.name, ValidationActions: wanted.actions}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	return ensure(ctx, c, wanted.name, binding, func() bool {
		same := equality.Semantic.DeepEqual(binding.Spec, bindingSpec)
		binding.Spec = bindingSpec
		return same
	})
}

// defaulted is a spec as the API server returns it, so that it can be compared.
func defaulted(spec admissionregistrationv1.ValidatingAdmissionPolicySpec) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	spec.MatchConstraints = spec.MatchConstraints.DeepCopy()
	spec.MatchConstraints.MatchPolicy = ptr.To(admissionregistrationv1.Equivalent)
	spec.MatchConstraints.NamespaceSelector, spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	return spec
}

// ensure creates an object, or lets change correct the existing one and writes it if that changed anything.
func ensure(ctx context.Context, c client.Client, name string, object client.Object, change func() (same bool)) error {
	found, err := controllers.Find(ctx, c, client.ObjectKey{Name: name}, object)
	if err != nil {
		return err
	}
	if !found {
		object.SetName(name)
		controllers.SetLabel(object, managedByLabel, managedBy)
		change()
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s, %w", object, name, err)
		}
		return nil
	}
	labelled := controllers.SetLabel(object, managedByLabel, managedBy)
	if change() && labelled {
		return nil
	}
	log.FromContext(ctx).Info("Restoring a policy of the tenant", "name", name)
	if err := c.Update(ctx, object); err != nil { // of the version that was read
		return fmt.Errorf("updating %T %s, %w", object, name, err)
	}
	return nil
}

// remove deletes a policy and its binding, the binding first.
func remove(ctx context.Context, c client.Client, name string) error {
	for _, object := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		&admissionregistrationv1.ValidatingAdmissionPolicy{}} {
		found, err := controllers.Find(ctx, c, client.ObjectKey{Name: name}, object)
		if err == nil && found {
			err = controllers.Delete(ctx, c, object, "deleting")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// written is the result of a Reconcile after these writes.
func written(errs ...error) (reconcile.Result, error) {
	if err := errors.Join(errs...); err != nil {
		return controllers.RetryConflict(err)
	}
	return reconcile.Result{RequeueAfter: resync}, nil
}
