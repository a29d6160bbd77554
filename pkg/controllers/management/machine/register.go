// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// Names of the controllers, in logs and metrics.
const (
	controllerName              = "machine"
	orphanHostsControllerName   = "machine.orphanhosts"
	orphanSecretsControllerName = "machine.orphansecrets"
)

// hostField indexes the cache of Machines by their host. Other indexes are typeField, referenceField and gangField.
const hostField = "status.hostRef"

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Register adds the controllers of this package to a manager. The manager must have the client and cache of the
// Reconciler.
func (r *Reconciler) Register(ctx context.Context, mgr manager.Manager) error {
	for field, value := range map[string]client.IndexerFunc{
		hostField: kube.Of(hostOf), typeField: kube.Of(typeOf), referenceField: kube.Of(ownReferencesOf), gangField: kube.Of(gangOf),
	} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Machine{}, field, value); err != nil {
			return fmt.Errorf("indexing Machines by %s, %w", field, err)
		}
	}
	for name, register := range map[string]func(manager.Manager) error{
		controllerName:              r.register,
		orphanHostsControllerName:   OrphanHosts{r.servers, r.inventory, r.recorder}.register,
		orphanSecretsControllerName: OrphanSecrets{r.servers}.register,
	} {
		if err := register(mgr); err != nil {
			return fmt.Errorf("starting controller %s, %w", name, err)
		}
	}
	for _, histogram := range []prometheus.Histogram{r.claimLatency, r.claimSLI} {
		if err := ctrlmetrics.Registry.Register(histogram); err != nil {
			return fmt.Errorf("registering the metrics of Machines, %w", err)
		}
	}
	return nil
}

// register enqueues a Machine only if the changed object is part of what it was installed from. It moves waiting ones.
func (r *Reconciler) register(mgr manager.Manager) error {
	r.scheduler.listen()
	run := func(ctx context.Context) error { return r.scheduler.run(ctx, r.deadlines.beat) }
	if err := mgr.Add(manager.RunnableFunc(run)); err != nil {
		return err
	}
	changed := dependents{r.client}
	b, onSpec := builder.ControllerManagedBy(mgr), builder.WithPredicates(predicate.GenerationChangedPredicate{})
	for _, kind := range []client.Object{&v1alpha1.OSImage{}, &v1alpha1.SSHKey{}, &v1alpha1.MachineConfigTemplate{}} {
		b.Watches(kind, kube.Enqueue(changed.installedWith), onSpec)
	}
	b.Watches(&v1alpha1.NodeType{}, kube.Enqueue(changed.installedOfType), onSpec)
	b.Watches(&v1alpha1.NodeProvider{}, kube.Enqueue(changed.installedOfProvider), onSpec)
	for _, kind := range []client.Object{&v1alpha1.OSImage{}, &v1alpha1.SSHKey{}, &v1alpha1.MachineConfigTemplate{}, &v1alpha1.NodeType{},
		&v1alpha1.NodeProvider{}, &v1alpha1.NodeProfile{}, &v1alpha1.TenantCluster{}} {
		b.Watches(kind, r.scheduler.movePending(), onSpec)
	}
	return b.
		Named(controllerName).
		For(&v1alpha1.Machine{}).
		Watches(&v1alpha1.Machine{}, claimsFirst()).
		Watches(&bmov1alpha1.BareMetalHost{}, kube.Enqueue(changed.machinesOfHost), builder.WithPredicates(hostUpdated)).
		WatchesMetadata(&corev1.Namespace{}, r.scheduler.movePending(), builder.WithPredicates(standAloneChanged)).
		Watches(&v1alpha1.IPAddress{}, r.scheduler.movePendingForAddress()).
		WatchesRawSource(source.Func(r.scheduler.start)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

func (o OrphanHosts) register(mgr manager.Manager) error {
	claimed := predicate.NewPredicateFuncs(kube.Of(func(host *bmov1alpha1.BareMetalHost) bool {
		_, ours := hosts.ConsumerOf(host)
		return ours
	}))
	return builder.ControllerManagedBy(mgr).
		Named(orphanHostsControllerName).
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(claimed, hostUpdated)).
		Watches(&v1alpha1.Machine{}, kube.Enqueue(o.hostOfDeleted), builder.WithPredicates(kube.Only(kube.Deletions))).
		Complete(o)
}

// register adds no watch on Secrets: a watch would need the right to read all of them. The hosts name the namespaces.
func (o OrphanSecrets) register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named(orphanSecretsControllerName).
		Watches(&bmov1alpha1.BareMetalHost{}, kube.Enqueue(namespaceOfHost), builder.WithPredicates(kube.Only(kube.Creations))).
		Watches(&v1alpha1.Machine{}, kube.Enqueue(secretOfDeleted), builder.WithPredicates(kube.Only(kube.Deletions))).
		Complete(o)
}

// hostUpdated drops updates of a host that change only the time of Metal3's last write. Otherwise every Machine would
// be reconciled once for each of these writes. It passes updates without any change: a resync sends them.
var hostUpdated = predicate.Funcs{UpdateFunc: func(updated event.UpdateEvent) bool {
	before, known := updated.ObjectOld.(*bmov1alpha1.BareMetalHost)
	after, same := updated.ObjectNew.(*bmov1alpha1.BareMetalHost)
	if !known || !same || before.ResourceVersion == after.ResourceVersion {
		return true
	}
	other := *before // the cache shares the host: only replace fields of the copy
	other.ResourceVersion, other.Status.LastUpdated = after.ResourceVersion, after.Status.LastUpdated
	// apimachinery's DeepEqual takes several times as long, for each write of each server.
	return !reflect.DeepEqual(&other, after)
}}

// standAloneChanged passes namespaces with a new or changed label for stand-alone Machines. A manager that starts looks
// at all Machines anyway.
var standAloneChanged = predicate.Funcs{
	CreateFunc: func(created event.CreateEvent) bool {
		return !created.IsInInitialList && created.Object.GetLabels()[v1alpha1.StandAloneMachinesLabelKey] != ""
	},
	UpdateFunc: func(updated event.UpdateEvent) bool {
		return updated.ObjectOld.GetLabels()[v1alpha1.StandAloneMachinesLabelKey] !=
			updated.ObjectNew.GetLabels()[v1alpha1.StandAloneMachinesLabelKey]
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// machinesOfHost returns the Machines that depend on a host's state: its consumer, and the Machines that want it.
func (d dependents) machinesOfHost(ctx context.Context, host *bmov1alpha1.BareMetalHost) []reconcile.Request {
	requests := d.machinesBy(ctx, client.MatchingFields{hostField: client.ObjectKeyFromObject(host).String()})
	if consumer, ours := hosts.ConsumerOf(host); ours {
		requests = append(requests, reconcile.Request{NamespacedName: consumer.NamespacedName})
	}
	return requests
}

func (d dependents) machinesBy(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	return kube.Requests(ctx, d.client, &v1alpha1.MachineList{}, options...)
}

// movePending moves the waiting Machines: an object that they refer to may have been created or changed. A deletion
// counts, too: a stand-alone Machine gets no server while two TenantClusters in its namespace allow it.
func (s *scheduler) movePending() handler.EventHandler {
	return kube.Enqueue(func(context.Context, client.Object) []reconcile.Request { s.move(objectChanged); return nil })
}

// movePendingForAddress moves the Machines that could take a released address.
func (s *scheduler) movePendingForAddress() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(_ context.Context, deleted event.DeleteEvent, _ queue) {
		if address, ok := deleted.Object.(*v1alpha1.IPAddress); ok {
			s.move(addressFreed(address.Spec.Network))
		}
	}}
}

func hostOf(machine *v1alpha1.Machine) []string {
	if host, found := machine.Host(); found {
		return []string{hosts.Key(host).String()}
	}
	return nil
}

// hostOfDeleted returns the host that a deleted Machine wanted. The inventory stops assuming the host for that Machine:
// if the Machine was deleted by force, nothing else would end the assumption.
func (o OrphanHosts) hostOfDeleted(_ context.Context, machine *v1alpha1.Machine) []reconcile.Request {
	host, found := machine.Host()
	if !found {
		return nil
	}
	key := hosts.Key(host)
	o.inventory.Forget(key, machine.UID)
	return []reconcile.Request{{NamespacedName: key}}
}

// namespaceOfHost returns a request for all Secrets of the host's namespace.
func namespaceOfHost(_ context.Context, host *bmov1alpha1.BareMetalHost) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: host.Namespace}}}
}

func secretOfDeleted(_ context.Context, machine *v1alpha1.Machine) []reconcile.Request {
	if machine.Status.HostRef == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: machine.Status.HostRef.Namespace, Name: hosts.UserDataName(hosts.OwnerOf(machine)),
	}}}
}

// Priorities in the queue of the controller. A Machine without a server holds up its tenant: Karpenter launches nothing
// else for the pod meanwhile. Installing takes minutes anyway. So in a burst all Machines get their servers before the
// first of them costs the many writes and reconciles of an installation.
const (
	withoutServer = 1
	withServer    = 0
)

// The manager looks at burstOfMachines Machines of a namespace before the installations and releases of others, and
// then at machinesPerSecond. Further Machines have no priority: the queue always serves the higher priority first, so a
// namespace that makes Machines without end would stop all others.
const (
	burstOfMachines   = 500
	machinesPerSecond = 10
)

// urgency returns the priority of a Machine.
func urgency(machine *v1alpha1.Machine) int {
	if machine.Status.HostRef != nil {
		return withServer
	}
	return withoutServer
}

// claimsFirst moves new Machines before Machines that already have a server. At a start, every Machine without a server
// is new: the fleet may have ten thousand others to look at first.
func claimsFirst() handler.EventHandler {
	lock, limits := sync.Mutex{}, map[string]*rate.Limiter{}
	return handler.Funcs{CreateFunc: func(_ context.Context, created event.CreateEvent, waiting queue) {
		machine, ok := created.Object.(*v1alpha1.Machine)
		if !ok || created.IsInInitialList && urgency(machine) == withServer {
			return
		}
		lock.Lock()
		if limits[machine.Namespace] == nil {
			limits[machine.Namespace] = rate.NewLimiter(machinesPerSecond, burstOfMachines)
		}
		precedes := limits[machine.Namespace].Allow()
		lock.Unlock()
		if precedes { // any other Machine waits in the queue as after an update
			enqueue(waiting, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(machine)}, urgency(machine))
		}
	}}
}

// enqueue adds a request with a priority, if the queue supports priorities.
func enqueue(waiting queue, request reconcile.Request, priority int) {
	if ordered, ok := waiting.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	waiting.Add(request)
}
