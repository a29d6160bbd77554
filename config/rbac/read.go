// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Read reads the roles and bindings of a template like Files. namespace is its .Namespace.
func Read(files fs.FS, file, namespace string) ([]*unstructured.Unstructured, error) {
	content, err := fs.ReadFile(files, file)
	if err != nil {
		return nil, fmt.Errorf("reading rights, %w", err)
	}
	parsed, err := template.New(file).Option("missingkey=error").Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("parsing the template of rights, %w", err)
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, map[string]string{"Namespace": namespace}); err != nil {
		return nil, fmt.Errorf("filling in the template of rights, %w", err)
	}
	var rights []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(&filled, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return rights, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parsing the rights in %s, %w", file, err)
		}
		if len(object.Object) > 0 { // not a document of comments only
			rights = append(rights, object)
		}
	}
}
