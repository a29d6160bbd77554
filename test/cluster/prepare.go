// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
)

// PrepareManagement prepares a cluster as management cluster: it installs the CRDs of Metal3, which are in crds/metal3 beside the
// binaries, our CRDs, the namespaces and our admission policies.
func PrepareManagement(ctx context.Context, c client.Client, binaries Binaries, namespaces ...string) error {
	if err := PrepareMetal3(ctx, c, binaries, namespaces...); err != nil {
		return err
	}
	ours, err := apis.ManagementCRDs()
	if err != nil {
		return err
	}
	if err := InstallCRDs(ctx, c, ours); err != nil {
		return err
	}
	policies, err := policy.Management(policy.Options{})
	if err != nil {
		return err
	}
	return Apply(ctx, c, policies...)
}

// PrepareMetal3 prepares a running cluster for Metal3 only: it installs the CRDs of Metal3 and the namespaces. The
// chart installs our CRDs.
func PrepareMetal3(ctx context.Context, c client.Client, binaries Binaries, namespaces ...string) error {
	files, err := binaries.Metal3CRDs()
	if err != nil {
		return err
	}
	metal3, err := readCRDs(files)
	if err != nil {
		return err
	}
	if err := InstallCRDs(ctx, c, metal3); err != nil {
		return err
	}
	for _, name := range namespaces {
		if err := Apply(ctx, c, namespace(name)); err != nil {
			return err
		}
	}
	return nil
}

// PrepareTenant prepares a running cluster as tenant cluster, it installs the CRDs of
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
	if err := InstallCRDs(ctx, c, slices.Concat(karpenters, ours)); err != nil {
		return err
	}
	policies, err := policy.Tenant(ProviderUser, "")
	if err != nil {
		return err
	}
	return Apply(ctx, c, policies...)
}

// Metal3CRDs returns the files of Metal3's CustomResourceDefinitions, which are installed beside the programs.
func (b Binaries) Metal3CRDs() ([]string, error) {
	for _, dir := range b {
		files, err := filepath.Glob(filepath.Join(dir, "crds", "metal3", "*.yaml"))
		if err == nil && len(files) > 0 {
			return files, nil
		}
	}
	return nil, fmt.Errorf("the CRDs of Metal3 are missing in crds/metal3 of %v; get them with `make tools`", []string(b))
}
