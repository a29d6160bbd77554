// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

// PrepareManagement prepares a running cluster as management cluster, also outside of a sandbox: it installs the CRDs
// of Metal3, which are in crds/metal3 beside the binaries, our CRDs, the namespaces and our admission policies.
func PrepareManagement(ctx context.Context, c client.Client, binaries controlplane.Binaries, namespaces ...string) error {
	if err := PrepareMetal3(ctx, c, binaries, namespaces...); err != nil {
		return err
	}
	ours, err := apis.ManagementCRDs()
	if err != nil {
		return err
	}
	if err := installCRDs(ctx, c, ours); err != nil {
		return err
	}
	policies, err := policy.Management(policy.Options{})
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

// PrepareMetal3 prepares a running cluster for Metal3 only: it installs the CRDs of Metal3 and the namespaces. The
// chart installs our CRDs.
func PrepareMetal3(ctx context.Context, c client.Client, binaries controlplane.Binaries, namespaces ...string) error {
	config := Config{Binaries: binaries}
	files, err := config.metal3CRDs()
	if err != nil {
		return err
	}
	metal3, err := readCRDs(files)
	if err != nil {
		return err
	}
	if err := installCRDs(ctx, c, metal3); err != nil {
		return err
	}
	for _, name := range namespaces {
		if err := apply(ctx, c, namespace(name)); err != nil {
			return err
		}
	}
	return nil
}

// GrantManager applies the manager's rights in a management cluster with the tenant's namespace, and returns the path of its
// kubeconfig file, in dir.
func GrantManager(ctx context.Context, cluster *controlplane.Cluster, c client.Client, tenant, dir string) (string, error) {
	path := filepath.Join(dir, "manager.kubeconfig")
	return path, grant(ctx, cluster, c, managerUser, "manager.yaml", tenant, path)
}
