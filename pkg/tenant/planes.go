// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenant knows the place of a tenant's controllers: between its cluster, where the pods and Karpenter's
// objects are, and its namespace of the management cluster, where its Machines are. The controllers themselves are
// in the packages below, one for each concern.
package tenant

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Planes are the two clusters that a tenant's controllers see. They may be one and the same.
type Planes struct {
	// TenantCluster is the namespace and name of the tenant's TenantCluster in the management cluster.
	TenantCluster types.NamespacedName
	// Tenant is the cluster of the pods, NodeClaims and Nodes. Its cache must index Nodes by NodeProviderIDField.
	Tenant Plane
	// Management is the cluster of the Machines. Its cache holds namespaced objects of the tenant's namespace only.
	Management Plane
}

// NodeProviderIDField is the field by which the tenant's cache indexes Nodes. Karpenter's operator makes that index.
const NodeProviderIDField = "spec.providerID"

// Plane is one cluster, seen in three ways.
type Plane struct {
	// Client writes, and reads from the cache.
	Client client.Client
	// Live reads from the API server. What deletes something is decided by it: a cache may be behind.
	Live client.Reader
	// Cache is what watches are made on.
	Cache cache.Cache
}

// PlaneOf returns the Plane of a cluster. A controller-runtime Manager is a cluster too.
func PlaneOf(c cluster.Cluster) Plane {
	return Plane{Client: c.GetClient(), Live: c.GetAPIReader(), Cache: c.GetCache()}
}

// LiveClient returns a client that also reads from the API server. Secrets are read with it, so that no process keeps
// all the secrets of a cluster in memory.
func (p Plane) LiveClient() client.Client {
	return liveClient{Client: p.Client, live: p.Live}
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

// Owns tells whether a Machine is one of the tenant's. Others may be in the same namespace: those of another tenant,
// and stand-alone ones.
func (p Planes) Owns(machine *v1alpha1.Machine) bool {
	return machine.Namespace == p.TenantCluster.Namespace &&
		machine.Spec.TenantClusterRef != nil && machine.Spec.TenantClusterRef.Name == p.TenantCluster.Name
}

// IsGone tells whether an error says that one object does not exist. A server that does not know the kind, for the
// time being or because its definition was taken away, also answers 404, and then nothing is known of the object.
func IsGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}
