// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
)

// Users of our programs in the bindings in config/rbac. None is a member of a group: they have only the rights of those files.
const (
	ManagerUser  = policy.ManagerUser
	ProviderUser = "karpenter-metal3-provider"
	WebhookUser  = "karpenter-metal3-webhook"
)

// Files of config/rbac with the rights of a tenant's provider, in either cluster.
var (
	ProviderManagementRights = []string{"provider-management.yaml", "provider-dra-management.yaml"}
	ProviderTenantRights     = []string{"provider-tenant.yaml", "provider-dra-tenant.yaml"}
)

// Grant gives a user the rights in files of config/rbac, and writes the user's kubeconfig file. namespace is the files' .Namespace.
func (c *Cluster) Grant(ctx context.Context, user, namespace, kubeconfig string, files ...string) error {
	for _, file := range files {
		rights, err := rbac.Read(rbac.Files, file, namespace)
		if err != nil {
			return err
		}
		for _, object := range rights {
			if subjects, ok, _ := unstructured.NestedSlice(object.Object, "subjects"); ok {
				for _, subject := range subjects {
					subject.(map[string]any)["name"] = user
				}
				object.Object["subjects"] = subjects
			}
			if err := Apply(ctx, c.Client, object); err != nil {
				return fmt.Errorf("granting %s the rights in %s, %w", user, file, err)
			}
		}
	}
	return c.WriteKubeconfig(kubeconfig, user)
}
