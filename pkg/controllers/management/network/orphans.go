// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const orphansName = "network.orphans"

// orphans moves servers back whose Machine was deleted by force: only the server has the hook then.
type orphans struct{ *Controller }

func (c *Controller) orphans() orphans { return orphans{c} }

func (o orphans) register(mgr manager.Manager, options controller.Options) error {
	hooked := predicate.NewPredicateFuncs(func(object client.Object) bool {
		host, ok := object.(*bmov1alpha1.BareMetalHost)
		return ok && isHooked(host)
	})
	err := ctrl.NewControllerManagedBy(mgr).Named(orphansName).
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(hooked)).WithOptions(options).Complete(o)
	if err != nil {
		return fmt.Errorf("starting controller %s, %w", orphansName, err)
	}
	return nil
}

// isHooked returns whether a host that is empty and clean has the hook.
func isHooked(host *bmov1alpha1.BareMetalHost) bool {
	_, hooked := host.Annotations[v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook)]
	state := host.Status.Provisioning.State
	clean := host.Spec.Image == nil && (!host.Spec.Online || host.Spec.DisablePowerOff) && host.Status.Provisioning.Image.URL == "" &&
		(state == bmov1alpha1.StateAvailable || state == bmov1alpha1.StateReady)
	return hooked && clean && host.Spec.ConsumerRef != nil
}

// Reconcile moves one host back, if its Machine is gone.
func (o orphans) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := o.live.Get(ctx, request.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isHooked(host) {
		return ctrl.Result{}, nil
	}
	consumer := host.Spec.ConsumerRef
	machine := &v1alpha1.Machine{}
	err := o.live.Get(ctx, types.NamespacedName{Namespace: consumer.Namespace, Name: consumer.Name}, machine)
	switch {
	case err == nil && machine.ClaimUID() == consumer.UID:
		return ctrl.Result{}, nil // it has the hook itself
	case err != nil && !apierrors.IsNotFound(err):
		return ctrl.Result{}, fmt.Errorf("reading Machine %s/%s, which had host %s, %w", consumer.Namespace, consumer.Name, request, err)
	}
	switch err := o.endpoint.Move(ctx, moveOf(host)); {
	case errors.Is(err, ErrMoving):
		return ctrl.Result{RequeueAfter: pollInterval}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, o.annotate(ctx, host, func(annotations map[string]string) {
		delete(annotations, v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook))
	})
}
