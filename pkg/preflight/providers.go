// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const providersCheck = "providers of tenants"

func (c *Cluster) providers(ctx context.Context) []Result {
	tenants := &v1alpha1.TenantClusterList{}
	if err := c.Reader.List(ctx, tenants, client.UnsafeDisableDeepCopy); err != nil {
		return []Result{unreadable(providersCheck, err)}
	}
	return checkProviders(tenants.Items)
}

// checkProviders judges the providers by their TenantClusters. Each provider with a fault is a separate failure.
func checkProviders(tenants []v1alpha1.TenantCluster) []Result {
	var results []Result
	renewing := 0
	for i := range tenants {
		tenant := &tenants[i]
		blocked := tenant.Blocked()
		for _, condition := range blocked {
			results = append(results, Result{Check: providersCheck, Level: Fail,
				Message: fmt.Sprintf("TenantCluster %s: %s", client.ObjectKeyFromObject(tenant), condition.Message),
				Remedy:  shell.Command("kubectl describe tenantclusters.karpenter.metal3.io -n %s %s", tenant.Namespace, tenant.Name)})
		}
		if len(blocked) == 0 && tenant.Status.ProviderRenewTime != nil {
			renewing++
		}
	}
	if len(results) == 0 {
		results = []Result{{Check: providersCheck, Level: OK,
			Message: fmt.Sprintf("%d TenantClusters, of which %d have a provider that says that it works", len(tenants), renewing)}}
	}
	return results
}
