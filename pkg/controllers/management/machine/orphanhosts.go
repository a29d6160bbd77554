// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// OrphanHosts releases hosts whose Machine no longer claims them: the Machine was deleted by force, or an outdated
// process wrote the claim.
type OrphanHosts struct {
	servers
	inventory *inventory.Inventory
	recorder  events.EventRecorder
}

// Reconcile checks one host.
func (o OrphanHosts) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := o.client.Get(ctx, request.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	consumer, ok := hosts.ConsumerOf(host)
	if !ok {
		return ctrl.Result{}, nil
	}
	// The order of the reads matters. A claim is written on the host after the choice is on the Machine. So a live read
	// of the Machine after the read of the claim shows the choice as well, unless the choice has been dropped.
	found, exists, err := o.claimedBy(ctx, o.client, consumer, request.NamespacedName)
	if err == nil && !found {
		found, exists, err = o.claimedBy(ctx, o.live, consumer, request.NamespacedName)
	}
	if err != nil || found {
		return ctrl.Result{}, err
	}
	if err := o.live.Get(ctx, request.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !hosts.Owns(consumer, host) {
		return ctrl.Result{}, nil
	}
	// Nothing changes on a paused host. While a management cluster is moved or restored, its hosts are paused and their
	// Machines may not exist yet.
	if _, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		log.FromContext(ctx).Info("Skipping a paused host whose Machine does not exist or has another", "Machine", consumer.String(), "UID",
			consumer.UID)
		return ctrl.Result{}, nil
	}
	// No crash of the manager leaves an image on a host whose Machine has another host: the image comes last. So a
	// person has registered the server anew, and the node of the Machine may run on it.
	if exists && host.Spec.Image != nil {
		o.recorder.Eventf(host, nil, corev1.EventTypeWarning, string(EventNotReleased), string(EventNotReleased),
			"it %s. The remedy, %s", inventory.RegisteredAnew(host), inventory.ReasonRegisteredAnew.Remedy(host))
		return ctrl.Result{RequeueAfter: resync}, nil
	}
	if !hosts.IsEmptied(host) && !inventory.IsReleasing(host) {
		log.FromContext(ctx).Info("Releasing a host whose Machine does not exist or has another", "Machine", consumer.String(), "UID",
			consumer.UID)
	}
	// A Machine that exists uses its Secret and its hooks for another host, maybe in the same namespace. It is not
	// known how far it got with this host, so the hooks on the host apply.
	pending, err := o.cleanAndRelease(ctx, consumer, host, nil, !exists)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("releasing host %s of Machine %s, %w", request, consumer, err)
	case pending != nil:
		log.FromContext(ctx).V(1).Info("The host cannot be released yet", "why", pending.message)
	default:
		o.inventory.Forget(request.NamespacedName, consumer.UID)
	}
	return ctrl.Result{RequeueAfter: resync}, nil
}

// claimedBy returns whether the Machine claims the host under that UID, and whether the Machine exists at all.
func (o OrphanHosts) claimedBy(
	ctx context.Context, reader client.Reader, consumer hosts.Owner, host types.NamespacedName,
) (claims, exists bool, err error) {
	machine, err := kube.FindMachine(ctx, reader, consumer.Reference())
	if err != nil || machine == nil {
		return false, false, err
	}
	// A Machine that was restored without its status looks for the host that names it.
	if machine.Status.HostRef == nil && machine.IsRestored() {
		return true, true, nil
	}
	if _, err := machine.ChosenHost(); machine.Status.HostRef == nil && err != nil {
		return false, true, err // it may be this host that was chosen
	}
	chosen, has := machine.Host()
	return has && hosts.Key(chosen) == host, true, nil
}
