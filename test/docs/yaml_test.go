// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestYAML validates each object on the pages by a server-side dry run: unknown fields and values that a CRD does not
// allow are errors.
func TestYAML(t *testing.T) {
	environment := env.NewEnvironment(t)
	strict := client.WithFieldValidation(client.NewDryRunClient(environment.Client), metav1.FieldValidationStrict)
	objects := 0
	for _, page := range allPages(t) {
		for _, block := range blocks(t, page) {
			if block.Language != "yaml" {
				continue
			}
			for document := range strings.SplitSeq("\n"+block.Text(), "\n---\n") {
				object := &unstructured.Unstructured{}
				placement := fmt.Sprintf("%s:%d", page, block.Line)
				if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
					t.Errorf("%s: %v", placement, err)
					continue
				}
				if types, found := object.Object["nodeTypes"]; found {
					object = providerOf(types)
					provider := &v1alpha1.NodeProvider{}
					if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, provider); err != nil {
						t.Errorf("%s: %v", placement, err)
					}
					for _, nodeType := range provider.Spec.Metal3.NodeTypes {
						for _, err := range devices.Validate(field.NewPath(nodeType.Name, "devices"), nodeType.Devices) {
							t.Errorf("%s: %v", placement, err)
						}
					}
				}
				if object.GetAPIVersion() == "" {
					continue // a part of an object, or a file of another program
				}
				switch err := validate(t, environment, strict, object); {
				case meta.IsNoMatchError(err):
					t.Logf("%s: not validated: %v", placement, err)
				case err != nil:
					t.Errorf("%s: %v", placement, err)
				default:
					objects++
				}
			}
		}
	}
	if objects < 20 {
		t.Errorf("%d objects: the test does not parse the pages", objects)
	}
}

// providerOf makes a NodeProvider of NodeTypes that a page shows alone.
func providerOf(nodeTypes any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.Group + "/v1alpha1", "kind": "NodeProvider", "metadata": map[string]any{"name": "page"},
		"spec": map[string]any{"metal3": map[string]any{"clusterRef": map[string]any{"namespace": "metal3-system"}, "nodeTypes": nodeTypes}},
	}}
}

// validate creates an object by a server-side dry run, in an existing namespace.
func validate(t *testing.T, environment *env.Environment, strict client.Client, object *unstructured.Unstructured) error {
	t.Helper()
	namespaced, err := environment.Client.IsObjectNamespaced(object)
	if err != nil {
		return err
	}
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	if namespaced {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: object.GetNamespace()}}
		if err := environment.Client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return strict.Create(t.Context(), object)
}
