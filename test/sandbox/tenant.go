// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"path/filepath"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

// Files of the rights of a tenant's provider, in either cluster.
var (
	managementRights = []string{"provider-management.yaml", "provider-dra-management.yaml"}
	tenantRights     = []string{"provider-tenant.yaml", "provider-dra-tenant.yaml"}
)

// PrepareTenant prepares a running cluster as tenant cluster, also outside of a sandbox: it installs the CRDs of
// Karpenter and ours, and our admission policies.
func PrepareTenant(ctx context.Context, c client.Client) error {
	ours, err := apis.TenantCRDs()
	if err != nil {
		return err
	}
	karpenters, err := apis.KarpenterCRDs()
	if err != nil {
		return err
	}
	if err := installCRDs(ctx, c, slices.Concat(karpenters, ours)); err != nil {
		return err
	}
	policies, err := policy.Tenant(providerUser)
	if err != nil {
		return err
	}
	for _, object := range policies {
		if err := apply(ctx, c, object); err != nil {
			return err
		}
	}
	return nil
}

// GrantProviderManagement applies the rights of a tenant's provider in the management cluster, for the namespace of the
// tenant's Machines, and returns the path of its kubeconfig file, in dir.
func GrantProviderManagement(ctx context.Context, cluster *controlplane.Cluster, c client.Client, namespace, dir string) (string, error) {
	path := filepath.Join(dir, "provider-management.kubeconfig")
	return path, grantProvider(ctx, cluster, c, namespace, path, managementRights...)
}

// GrantProviderTenant applies the rights of a tenant's provider in the tenant's cluster, and returns the path of its
// kubeconfig file, in dir.
func GrantProviderTenant(ctx context.Context, cluster *controlplane.Cluster, c client.Client, namespace, dir string) (string, error) {
	path := filepath.Join(dir, "provider-tenant.kubeconfig")
	return path, grantProvider(ctx, cluster, c, namespace, path, tenantRights...)
}

func grantProvider(ctx context.Context, cluster *controlplane.Cluster, c client.Client, namespace, kubeconfig string,
	files ...string) error {
	for _, file := range files {
		if err := grant(ctx, cluster, c, providerUser, file, namespace, kubeconfig); err != nil {
			return err
		}
	}
	return nil
}

// GrantWebhook applies our webhook's rights in a management cluster, and its configuration with the address, host:port.
// It returns the path of the webhook's kubeconfig file, in dir. The namespace is that of the webhook's certificates.
// Until the webhook answers, the API server denies writes of our kinds.
func GrantWebhook(ctx context.Context, cluster *controlplane.Cluster, c client.Client, address, namespace, dir string) (string, error) {
	path := filepath.Join(dir, "webhook.kubeconfig")
	if err := grant(ctx, cluster, c, webhookUser, "webhook.yaml", namespace, path); err != nil {
		return "", err
	}
	// The API server is not in the cluster's network here, so it uses the address and not a Service.
	configurations, err := webhook.Both(webhook.Options{URL: "https://" + address})
	if err != nil {
		return "", err
	}
	for _, configuration := range configurations {
		if err := apply(ctx, c, configuration); err != nil {
			return "", err
		}
	}
	return path, nil
}
