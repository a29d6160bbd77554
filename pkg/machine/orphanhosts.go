// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// OrphanHosts gives hosts back whose claim no Machine stands for any more: the Machine was deleted by force, or the
// claim was written by a run that had been overtaken by another.
type OrphanHosts struct{ *Reconciler }

// Reconcile looks at one host.
func (o OrphanHosts) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := o.client.Get(ctx, request.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	consumer, ok := consumerOf(host)
	if !ok {
		return ctrl.Result{}, nil
	}
	// The order of the reads matters. A claim is written on the host after the choice is in the Machine's status, so
	// whoever sees the claim first and then reads the Machine, live, sees the choice as well, if it still stands.
	found, machine, err := o.standsFor(ctx, o.client, consumer, request.NamespacedName)
	if err == nil && !found {
		found, machine, err = o.standsFor(ctx, o.live, consumer, request.NamespacedName)
	}
	if err != nil || found {
		return ctrl.Result{}, err
	}
	if err := o.live.Get(ctx, request.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !ownsHost(consumer, host) {
		return ctrl.Result{}, nil
	}
	// Nothing changes on a paused host. It is also how a management cluster is moved or restored, when Machines are not
	// there yet.
	if _, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		log.FromContext(ctx).Info("Leaving a host alone that is paused and whose Machine does not exist or has another", "Machine", consumer.String(), "UID", consumer.UID)
		return ctrl.Result{}, nil
	}
	if !isEmptied(host) {
		log.FromContext(ctx).Info("Giving back a host whose Machine does not exist or has another", "Machine", consumer.String(), "UID", consumer.UID)
	}
	// A Machine that exists uses its Secret on another host, maybe in the same namespace, and it is that one that its
	// hooks are about. Of one that does not exist, nobody knows how far it got: the hooks on the host hold it.
	hooks := host.Annotations
	if machine {
		hooks = nil
	}
	pending, err := o.giveBack(ctx, consumer, host, hooks, !machine)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("giving back host %s of Machine %s, %w", request, consumer, err)
	case pending != nil:
		log.FromContext(ctx).V(1).Info("The host cannot go back to the pool yet", "why", pending.message)
	}
	return ctrl.Result{RequeueAfter: resync}, nil
}

// standsFor tells whether the Machine exists with that UID and wants that host, and whether it exists at all.
func (o OrphanHosts) standsFor(ctx context.Context, reader client.Reader, consumer owner, host types.NamespacedName) (wants, exists bool, err error) {
	machine := &v1alpha1.Machine{}
	if err := reader.Get(ctx, consumer.NamespacedName, machine); err != nil {
		if isGone(err) {
			return false, false, nil
		}
		return false, false, fmt.Errorf("reading Machine %s, which claims host %s, %w", consumer, host, err)
	}
	if machine.ClaimUID() != consumer.UID {
		return false, false, nil
	}
	// One that was restored without its status is about to find out that the host is its own.
	if machine.Status.HostRef == nil && machine.IsRestored() {
		return true, true, nil
	}
	return machine.Status.HostRef != nil && hostKey(*machine.Status.HostRef) == host, true, nil
}

// isGone tells whether an error says that one object does not exist. A server that does not serve the kind, or not in
// this version, also answers 404, and then nothing is known of the object.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}
