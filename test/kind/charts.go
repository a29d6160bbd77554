// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"path/filepath"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
)

// installCharts runs the commands of docs/install.md.
func (w *Environment) installCharts(ctx context.Context) error {
	p, err := page.Open(page.Config{
		File: filepath.Join(w.config.Repository, "docs", "install.md"), Dir: w.path("page"),
		Bin: w.bin(), Kubeconfig: w.ManagementKubeconfig(),
		Links: map[string]string{
			"charts": filepath.Join(w.config.Repository, "charts"), tenantName + "-admin.kubeconfig": w.TenantKubeconfig(),
		},
		Names: []string{
			"acme.example.com:6443", w.endpoint, "acme", tenantName,
			// The page waits for the Deployments after each installation, and a tenant's for its TenantCluster before.
			"helm install", "helm install --wait --timeout=3m",
		},
	})
	if err != nil {
		return err
	}
	for _, section := range []struct {
		title        string
		blocks       int
		replacements []string
		done         string
	}{
		// An administrator's kubeconfig of kind is of kubeadm's group.
		{"1. The management cluster", 3, []string{"charts/karpenter-metal3 ",
			"charts/karpenter-metal3 --set 'policies.groups={system:masters,kubeadm:cluster-admins}' "}, "manager and webhook run"},
		{"2. The tenant cluster", 2, nil, "the tenant cluster has the tenant's chart"},
		// The sandbox's provider has this gate, too.
		{"3. The tenant's provider", 4, []string{"charts/karpenter-metal3-tenant ",
			"charts/karpenter-metal3-tenant --set provider.featureGates.CapacityBuffer=true "}, "the provider runs"},
	} {
		if _, err := p.Follow(ctx, section.title, section.blocks, section.replacements...); err != nil {
			return err
		}
		w.say("%s", section.done)
	}
	// The page's tenant may have a part of the types and servers only.
	_, err = w.kubectl(ctx, w.ManagementKubeconfig(), "patch", "tenantcluster", tenantName, "--namespace="+tenantName, "--type=merge",
		`--patch={"spec": {"allowedNodeTypes": null, "quota": null}}`)
	return err
}
