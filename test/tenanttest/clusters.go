// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenanttest has clusters for the tests of a tenant's controllers.
package tenanttest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// TenantName is the name of the TenantCluster that TenantCluster creates.
const TenantName = "blue"

// TenantCluster creates a namespace with a TenantCluster in it.
func TenantCluster(t testing.TB, environment *env.Environment) types.NamespacedName {
	t.Helper()
	cluster := &v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: environment.Namespace(t), Name: TenantName},
		Spec:       v1alpha1.TenantClusterSpec{APIServerEndpoint: "192.0.2.10:6443"},
	}
	if err := environment.Client.Create(t.Context(), cluster); err != nil {
		t.Fatalf("creating a TenantCluster, %v", err)
	}
	return client.ObjectKeyFromObject(cluster)
}

// Clusters returns both clusters on the environment's one API server. All reads are live. The process can die.
func Clusters(environment *env.Environment, cluster types.NamespacedName, process *faults.Connection) tenant.Clusters {
	return ClustersOf(cluster, process.Client(WithWatch(environment)), process.Client(WithWatch(environment)))
}

// ClustersOf returns clusters of clients that read and write live.
func ClustersOf(cluster types.NamespacedName, tenantClient, managementClient client.Client) tenant.Clusters {
	return tenant.Clusters{
		TenantCluster: cluster,
		Tenant:        tenant.Cluster{Client: tenantClient, Live: tenantClient},
		Management:    tenant.Cluster{Client: managementClient, Live: managementClient},
	}
}

// WithWatch returns a client of the environment that lists Nodes by provider ID as a cache with that index does.
func WithWatch(environment *env.Environment) client.WithWatch {
	return interceptor.NewClient(environment.Client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			options := (&client.ListOptions{}).ApplyOptions(opts)
			nodes, ok := list.(*corev1.NodeList)
			if !ok || options.FieldSelector == nil {
				return c.List(ctx, list, opts...)
			}
			providerID, _ := options.FieldSelector.RequiresExactMatch(tenant.NodeProviderIDField)
			all := &corev1.NodeList{}
			if err := c.List(ctx, all); err != nil {
				return err
			}
			for _, node := range all.Items {
				if node.Spec.ProviderID == providerID {
					nodes.Items = append(nodes.Items, node)
				}
			}
			return nil
		},
	})
}
