// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenant has the common parts of the provider. The provider runs between two clusters: the tenant cluster, with
// the pods and Karpenter's objects, and the management cluster, whose namespace for the tenant has its Machines. The
// package also says which Machine belongs to whom.
package tenant

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Clusters are the two clusters of a tenant's controllers. They may be the same cluster.
type Clusters struct {
	// TenantCluster is the namespace and name of the tenant's TenantCluster in the management cluster.
	TenantCluster types.NamespacedName
	// Tenant is the cluster of the pods, NodeClaims and Nodes. Its cache must index Nodes by NodeProviderIDField.
	Tenant Cluster
	// Management is the cluster of the Machines. Its cache holds namespaced objects of the tenant's namespace only.
	Management Cluster
}

// Index fields of the tenant's cache. Karpenter's operator creates these indexes.
const (
	// NodeProviderIDField is for Nodes.
	NodeProviderIDField = "spec.providerID"
	// NodeClassNameField is for NodeClaims.
	NodeClassNameField = "spec.nodeClassRef.name"
)

// Cluster gives access to one cluster.
type Cluster struct {
	// Client writes, and reads from the cache.
	Client client.Client
	// Live reads from the API server. Deletions need a live read, because a cache may be stale.
	Live client.Reader
	// Cache is the source of watches.
	Cache cache.Cache
}

// ClusterOf returns the Cluster for a controller-runtime cluster. A Manager is one, too.
func ClusterOf(c cluster.Cluster) Cluster {
	return Cluster{Client: c.GetClient(), Live: c.GetAPIReader(), Cache: c.GetCache()}
}

// LiveClient returns a client that also reads from the API server. It is for Secrets, so that no process keeps all
// Secrets of a cluster in memory.
func (c Cluster) LiveClient() client.Client {
	return liveClient{Client: c.Client, live: c.Live}
}

type liveClient struct {
	client.Client
	live client.Reader
}

func (c liveClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.live.Get(ctx, key, object, opts...)
}

func (c liveClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.live.List(ctx, list, opts...)
}

// Watch returns a source of events of a kind in the management cluster, for a controller of the tenant cluster.
func (c Clusters) Watch(kind client.Object, handle handler.EventHandler, predicates ...predicate.Predicate) source.Source {
	return source.Kind(c.Management.Cache, kind, handle, predicates...)
}

// WatchMachines returns a source of requests for Machines.
func (c Clusters) WatchMachines(requests func(context.Context, *v1alpha1.Machine) []reconcile.Request,
	predicates ...predicate.Predicate) source.Source {
	return c.Watch(&v1alpha1.Machine{}, kube.Enqueue(requests), predicates...)
}

// WatchTenantCluster returns a source of events of the tenant's TenantCluster.
func (c Clusters) WatchTenantCluster(handle handler.EventHandler, predicates ...predicate.Predicate) source.Source {
	ours := predicate.NewPredicateFuncs(func(object client.Object) bool { return client.ObjectKeyFromObject(object) == c.TenantCluster })
	return c.Watch(&v1alpha1.TenantCluster{}, handle, append(predicates, ours)...)
}

// Enqueue enqueues the single request of a controller that compares everything.
func (c Clusters) Enqueue() handler.EventHandler {
	return kube.Enqueue(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: c.TenantCluster}}
	})
}

// MachineKey returns the key of a Machine in the tenant's namespace.
func (c Clusters) MachineKey(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.TenantCluster.Namespace, Name: name}
}

// MachineOf maps a NodeClaim to its Machine, which has its name.
func (c Clusters) MachineOf(_ context.Context, nodeClaim client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: c.MachineKey(nodeClaim.GetName())}}
}

// NodeOf returns the Node with a provider ID, or nil. A Node's name proves nothing. Its provider ID does, because the
// manager gave it to one claim only.
func (c Clusters) NodeOf(ctx context.Context, providerID string) (*corev1.Node, error) {
	nodes := &corev1.NodeList{}
	if err := c.Tenant.Client.List(ctx, nodes, client.MatchingFields{NodeProviderIDField: providerID}); err != nil {
		return nil, fmt.Errorf("listing the nodes with provider ID %s, %w", providerID, err)
	}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; node.Spec.ProviderID == providerID && node.DeletionTimestamp.IsZero() {
			return node, nil
		}
	}
	return nil, nil
}

// Owns reports whether a Machine belongs to the tenant. The namespace may also have Machines of another tenant, and
// stand-alone ones.
func (c Clusters) Owns(machine *v1alpha1.Machine) bool {
	return machine.Namespace == c.TenantCluster.Namespace &&
		machine.Spec.TenantClusterRef != nil && machine.Spec.TenantClusterRef.Name == c.TenantCluster.Name
}

// MadeFor reports whether the Machine was made for the NodeClaim, rather than for an earlier one with the same name. A
// NodeClaim that was restored from a backup has a new UID, but still its provider ID.
func MadeFor(machine *v1alpha1.Machine, nodeClaim *karpv1.NodeClaim) bool {
	return machine.Annotations[v1alpha1.NodeClaimUIDAnnotationKey] == string(nodeClaim.UID) ||
		(nodeClaim.Status.ProviderID != "" && nodeClaim.Status.ProviderID == machine.Status.ProviderID)
}

// HasRegistered reports whether Karpenter has seen the NodeClaim's node: pods may run there.
func HasRegistered(nodeClaim *karpv1.NodeClaim) bool {
	return conditions.Find(nodeClaim.Status.Conditions, karpv1.ConditionTypeRegistered).Status == metav1.ConditionTrue
}

// Warning returns an event for the tenant's users, cut to the size limit of events.
func Warning(object client.Object, reason, message string) events.Event {
	return events.Event{
		InvolvedObject: object, Type: corev1.EventTypeWarning, Reason: reason, Message: conditions.Truncate(message, conditions.MaxEventNote),
		DedupeValues: []string{string(object.GetUID()), message},
	}
}
