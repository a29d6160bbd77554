// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// fieldOwner is the owner of what Apply applies.
const fieldOwner = client.FieldOwner("karpenter-metal3-sandbox")

// Apply makes the objects as given, or makes the existing ones so.
func Apply(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, object := range objects {
		if err := apply(ctx, c, object); err != nil {
			return err
		}
	}
	return nil
}

func apply(ctx context.Context, c client.Client, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("encoding %T %s, %w", object, client.ObjectKeyFromObject(object), err)
	}
	wanted := &unstructured.Unstructured{Object: content}
	if wanted.GroupVersionKind().Empty() {
		gvk, err := c.GroupVersionKindFor(object)
		if err != nil {
			return fmt.Errorf("finding the kind of %T, %w", object, err)
		}
		wanted.SetGroupVersionKind(gvk)
	}
	// Other programs write the status.
	unstructured.RemoveNestedField(wanted.Object, "status")
	unstructured.RemoveNestedField(wanted.Object, "metadata", "creationTimestamp")
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s, %w", wanted.GetKind(), client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// InstallCRDs applies the CRDs and returns when all of them are served.
func InstallCRDs(ctx context.Context, c client.Client, crds []*apiextensionsv1.CustomResourceDefinition) error {
	for _, crd := range crds {
		if err := Apply(ctx, c, crd); err != nil {
			return err
		}
	}
	for _, crd := range crds {
		err := Await(ctx, "CRD "+crd.Name+" to be served", func(ctx context.Context) error {
			var current apiextensionsv1.CustomResourceDefinition
			if err := c.Get(ctx, client.ObjectKey{Name: crd.Name}, &current); err != nil {
				return err
			}
			for _, condition := range current.Status.Conditions {
				if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("it is not established yet")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readCRDs reads CRDs from files of one CRD each.
func readCRDs(files []string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(files))
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a CRD, %w", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, crd); err != nil {
			return nil, fmt.Errorf("parsing the CRD in %s, %w", file, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// namespace allows Machines without a TenantCluster, where there is none.
func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{v1alpha1.StandAloneMachinesLabelKey: v1alpha1.StandAloneMachinesLabelValue},
	}}
}

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
