// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network moves servers between the parking lot, which is the network of unclaimed servers, and the networks of
// tenants. It owns the hook v1alpha1.NetworkHook and drives an HTTP endpoint in front of the switches. docs/network.md
// is the contract of both, and docs/network-endpoint.openapi.yaml is the contract of the requests.
package network

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

const (
	controllerName = "network"
	// pollInterval is the time between two requests while the endpoint is moving a server.
	pollInterval = 2 * time.Second
	// firstRetry and lastRetry are the limits of the backoff after the endpoint has failed.
	firstRetry = time.Second
	lastRetry  = 2 * time.Minute
	// workers is how many servers are moved at a time.
	workers = 10
)

// Controller moves the servers of Machines that wait for the network hook, and removes the hook. Only the BareMetalHost
// decides on the hook and its network, because only the manager writes there. The copy on the Machine decides nothing.
type Controller struct {
	client   client.Client
	live     client.Reader
	endpoint Endpoint
	topology topology.Mapping
}

// NewController returns a Controller. live reads from the API server. mapping selects the labels of a move.
func NewController(writer client.Client, live client.Reader, endpoint Endpoint, mapping topology.Mapping) *Controller {
	return &Controller{client: writer, live: live, endpoint: endpoint, topology: mapping}
}

// Register adds the controllers of this package to a manager.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	options := func() controller.Options {
		return controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named(controllerName).For(&v1alpha1.Machine{}).WithOptions(options()).Complete(c); err != nil {
		return fmt.Errorf("starting controller %s, %w", controllerName, err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named(orphansName).WithOptions(options()).
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(predicate.NewPredicateFuncs(kube.Of(isHooked)))).
		Complete(orphans{c}); err != nil {
		return fmt.Errorf("starting controller %s, %w", orphansName, err)
	}
	return nil
}

// Reconcile moves the server of one Machine, if its hook is pending.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	machine := &v1alpha1.Machine{}
	if err := c.client.Get(ctx, request.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isHeld(machine) {
		return ctrl.Result{}, nil
	}
	// Read live: a released server must not be moved for the Machine that had it.
	if err := c.live.Get(ctx, request.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isHeld(machine) {
		return ctrl.Result{}, nil
	}
	host, err := c.hostOf(ctx, machine)
	if err != nil || host == nil {
		return ctrl.Result{}, err
	}
	hook := v1alpha1.PreProvisionHookPrefix
	if machine.Status.Phase == v1alpha1.MachineReleasing {
		hook = v1alpha1.PreReturnHookPrefix
	}
	key := v1alpha1.HookKey(hook, v1alpha1.NetworkHook)
	value, held := host.Annotations[key]
	if !held {
		return ctrl.Result{}, c.removeCopy(ctx, machine, key)
	}
	if hook == v1alpha1.PreReturnHookPrefix && !isHooked(host) {
		return ctrl.Result{RequeueAfter: lastRetry}, nil // the status is older than the host
	}
	move := c.moveOf(host)
	if hook == v1alpha1.PreProvisionHookPrefix {
		network, err := v1alpha1.ParseTenantNetwork(value)
		if err != nil {
			return ctrl.Result{}, c.writeMessage(ctx, machine, fmt.Sprintf("annotation %s of BareMetalHost %s: %v", key,
				client.ObjectKeyFromObject(host), err))
		}
		move.Network, move.Tenant = network.String(), machine.Namespace
	}
	switch err := c.endpoint.Move(ctx, move); {
	case errors.Is(err, ErrMoving):
		return ctrl.Result{RequeueAfter: pollInterval}, c.writeMessage(ctx, machine, err.Error())
	case err != nil:
		return ctrl.Result{}, errors.Join(err, c.writeMessage(ctx, machine, err.Error()))
	}
	if err := c.annotate(ctx, host, func(annotations map[string]string) { delete(annotations, key) }); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, c.removeCopy(ctx, machine, key)
}

// isHeld reports whether a hook holds the server of the Machine, as the manager reports.
func isHeld(machine *v1alpha1.Machine) bool {
	network := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionNetworkReady)
	return network != nil && network.Reason == v1alpha1.ReasonWaitingForHook && machine.Status.HostRef != nil &&
		// The manager releases a deleted Machine next.
		(machine.DeletionTimestamp.IsZero() || machine.Status.Phase == v1alpha1.MachineReleasing)
}

// hostOf returns the server of the Machine, or nil if the Machine has not claimed it.
func (c *Controller) hostOf(ctx context.Context, machine *v1alpha1.Machine) (*bmov1alpha1.BareMetalHost, error) {
	key := types.NamespacedName{Namespace: machine.Status.HostRef.Namespace, Name: machine.Status.HostRef.Name}
	host := &bmov1alpha1.BareMetalHost{}
	if found, err := kube.Find(ctx, c.live, key, host); err != nil || !found {
		return nil, err
	}
	if consumer := host.Spec.ConsumerRef; consumer == nil || consumer.UID != machine.ClaimUID() || consumer.Name != machine.Name ||
		consumer.Namespace != machine.Namespace {
		return nil, nil
	}
	return host, nil
}

// moveOf returns the move of a host to the parking lot.
func (c *Controller) moveOf(host *bmov1alpha1.BareMetalHost) Move {
	move := Move{Host: client.ObjectKeyFromObject(host), Network: ParkingLot, Topology: c.topology.Labels(host.Labels)}
	if host.Spec.BootMACAddress != "" {
		move.MACs = append(move.MACs, host.Spec.BootMACAddress)
	}
	if details := host.Status.HardwareDetails; details != nil {
		for _, nic := range details.NIC {
			if nic.MAC != "" && nic.MAC != host.Spec.BootMACAddress {
				move.MACs = append(move.MACs, nic.MAC)
			}
		}
	}
	return move
}

// writeMessage sets the message that the manager copies into the condition NetworkReady.
func (c *Controller) writeMessage(ctx context.Context, machine *v1alpha1.Machine, message string) error {
	key := v1alpha1.HookKey(v1alpha1.HookMessagePrefix, v1alpha1.NetworkHook)
	if machine.Annotations[key] == message {
		return nil
	}
	return c.annotate(ctx, machine, func(annotations map[string]string) { annotations[key] = message })
}

// removeCopy removes the copy of the hook on the Machine, once the server is in the right network.
func (c *Controller) removeCopy(ctx context.Context, machine *v1alpha1.Machine, key string) error {
	message := v1alpha1.HookKey(v1alpha1.HookMessagePrefix, v1alpha1.NetworkHook)
	if machine.Annotations[key] == "" && machine.Annotations[message] == "" {
		return nil
	}
	return c.annotate(ctx, machine, func(annotations map[string]string) {
		delete(annotations, key)
		delete(annotations, message)
	})
}

// annotate is a compare-and-swap on the version that was read: a Machine deleted since needs the server moved back.
func (c *Controller) annotate(ctx context.Context, object client.Object, change func(map[string]string)) error {
	return client.IgnoreNotFound(kube.Patch(ctx, c.client, object, "writing the network hook of", func() {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		change(annotations)
		object.SetAnnotations(annotations)
	}))
}

const orphansName = "network.orphans"

// orphans moves servers back whose Machine was deleted by force, or has another server.
type orphans struct{ *Controller }

// isHooked reports whether the hook holds a claimed host that is off before its cleaning, or empty and clean.
func isHooked(host *bmov1alpha1.BareMetalHost) bool {
	_, hooked := host.Annotations[v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook)]
	state, off := host.Status.Provisioning.State, !host.Spec.Online && !host.Status.PoweredOn || host.Spec.DisablePowerOff
	clean := host.Spec.Image == nil && off && host.Status.Provisioning.Image.URL == "" &&
		(state == bmov1alpha1.StateAvailable || state == bmov1alpha1.StateReady)
	return hooked && (clean || inventory.IsOff(host)) && host.Spec.ConsumerRef != nil
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
	machine, err := kube.FindMachine(ctx, o.live,
		v1alpha1.MachineReference{Namespace: consumer.Namespace, Name: consumer.Name, UID: consumer.UID})
	// A Machine that has this server, or may still find it, waits for the hook itself. One with another does not.
	if err != nil || machine != nil && (machine.Status.HostRef == nil ||
		types.NamespacedName{Namespace: machine.Status.HostRef.Namespace, Name: machine.Status.HostRef.Name} == request.NamespacedName) {
		return ctrl.Result{RequeueAfter: lastRetry}, err // no event tells when that changes
	}
	switch err := o.endpoint.Move(ctx, o.moveOf(host)); {
	case errors.Is(err, ErrMoving):
		return ctrl.Result{RequeueAfter: pollInterval}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, o.annotate(ctx, host, func(annotations map[string]string) {
		delete(annotations, v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook))
	})
}
