// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apis holds the CustomResourceDefinitions of karpenter-provider-metal3, which controller-gen makes from the Go
// types. It adds what controller-gen has no markers for: lengths of some fields, blocks that keep fields of the reference,
// and other forms of fields.
package apis

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	karpenterapis "sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/compat"
)

//go:embed crds/*.yaml
var files embed.FS

// never is the default of expireAfter in the definitions that KarpenterCRDs returns.
const never = "Never"

const tenantCRD = "crds/karpenter.metal3.io_metalnodeclasses.yaml"

// ManagementCRDs returns the definitions for the management cluster.
func ManagementCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return load(func(path string) bool { return path != tenantCRD })
}

// TenantCRDs returns the definitions for tenant clusters, beside Karpenter's own.
func TenantCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return load(func(path string) bool { return path == tenantCRD })
}

// KarpenterCRDs returns Karpenter's definitions for tenant clusters, with one changed default: expireAfter is Never
// instead of 720h. A server takes half an hour to come back, so no server is drained every month by default. An
// expireAfter that a user sets is kept. An error means that Karpenter's CRDs do not have the expected fields.
func KarpenterCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	patched := 0
	for _, original := range karpenterapis.CRDs {
		crd := original.DeepCopy()
		for i := range crd.Spec.Versions {
			schema := crd.Spec.Versions[i].Schema
			if schema == nil || schema.OpenAPIV3Schema == nil {
				continue
			}
			for _, path := range expireAfterPaths {
				if changeAt(schema.OpenAPIV3Schema, path, setNever) {
					patched++
				}
			}
		}
		crds = append(crds, crd)
	}
	if patched != len(expireAfterPaths) {
		return nil, fmt.Errorf("setting the default of expireAfter, it was found %d times in Karpenter's CRDs and not %d times", patched,
			len(expireAfterPaths))
	}
	return crds, nil
}

// expireAfterPaths are the paths of expireAfter in NodeClaims and NodePools.
var expireAfterPaths = [][]string{{"spec", "expireAfter"}, {"spec", "template", "spec", "expireAfter"}}

func setNever(schema *apiextensionsv1.JSONSchemaProps) {
	schema.Default = &apiextensionsv1.JSON{Raw: []byte(strconv.Quote(never))}
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
		if err := errors.Join(setBounds(crd), keepIgnored(crd), admitForms(crd)); err != nil {
			return nil, err
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// keepIgnored has the blocks of a kind keep the fields of the reference that have no effect, and all other unknown fields:
// the webhook denies these. An error means that the kind lacks one of the blocks.
func keepIgnored(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, version := range crd.Spec.Versions {
		for _, ignored := range compat.IgnoredFields {
			keep := func(schema *apiextensionsv1.JSONSchemaProps) {
				if schema.XPreserveUnknownFields == nil {
					schema.XPreserveUnknownFields = ptr.To(true)
					schema.Description += "\nFields of the reference without an effect:"
				}
				schema.Description += " " + ignored.Name
			}
			if ignored.Kind == crd.Spec.Names.Kind && !changeAt(version.Schema.OpenAPIV3Schema, pathOf(ignored.Block), keep) {
				return fmt.Errorf("keeping %s in %s of %s: there is no such block", ignored.Name, ignored.Block, crd.Name)
			}
		}
	}
	return nil
}

// admitForms adds the other forms to the fields of a kind. An error means that the kind lacks one of the fields.
func admitForms(crd *apiextensionsv1.CustomResourceDefinition) error {
	for i := range crd.Spec.Versions {
		for _, form := range compat.Forms {
			if form.Kind == crd.Spec.Names.Kind && !changeAt(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, form.Path, form.Admit) {
				return fmt.Errorf("admitting another form of %v of %s: there is no such field", form.Path, crd.Name)
			}
		}
	}
	return nil
}
