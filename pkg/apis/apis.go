// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apis holds the CustomResourceDefinitions of karpenter-provider-metal3, as controller-gen makes them from
// the Go types.
package apis

import (
	"embed"
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml
var files embed.FS

const tenantCRD = "crds/karpenter.metal3.io_metalnodeclasses.yaml"

// ManagementCRDs are the definitions for the management cluster.
func ManagementCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return load(func(path string) bool { return path != tenantCRD })
}

// TenantCRDs are the definitions for tenant clusters, beside Karpenter's own.
func TenantCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return load(func(path string) bool { return path == tenantCRD })
}

func load(wanted func(path string) bool) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	paths, err := fs.Glob(files, "crds/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing embedded CRDs, %w", err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, path := range paths {
		if !wanted(path) {
			continue
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading embedded CRD %s, %w", path, err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return nil, fmt.Errorf("parsing embedded CRD %s, %w", path, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}
