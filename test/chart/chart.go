// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart renders and installs charts of other projects, from their modules.
package chart

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Chart is a chart at a path of a module that a module in tools requires. Tool is the folder of that.
type Chart struct{ Tool, Module, Path string }

// Render renders the chart with the program helm. Root is the root of the repository. The values of files go before the others.
func (c Chart) Render(ctx context.Context, root, helm, release, namespace string, values map[string]any, files ...string) (
	[]*unstructured.Unstructured, error,
) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", c.Module)
	list.Dir = filepath.Join(root, "tools", c.Tool)
	dir, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("finding module %s, %w", c.Module, err)
	}
	content, err := yaml.Marshal(values)
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, helm, "template", release, filepath.Join(string(bytes.TrimSpace(dir)), c.Path),
		"--namespace", namespace, "--include-crds", "--values", "-")
	for _, file := range files {
		command.Args = append(command.Args, "--values", file)
	}
	command.Stdin = bytes.NewReader(content)
	output := &bytes.Buffer{}
	command.Stderr = output
	rendered, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("rendering the chart of %s, %w: %s", c.Module, err, output)
	}
	return examples.Parse("what the chart of "+c.Module+" renders", rendered)
}

// Create creates objects of a chart, and before them the namespace that they are in. It waits until the kinds that the chart defines are
// served, so that the caller can create some.
func Create(ctx context.Context, c client.Client, namespace string, objects []*unstructured.Unstructured) error {
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := c.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s, %w", namespace, err)
	}
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s %s, %w", object.GetKind(), object.GetName(), err)
		}
	}
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
		if err := poll.Await(ctx, kind+" of "+group+" is served", func(context.Context) error {
			_, err := c.RESTMapper().RESTMappings(schema.GroupKind{Group: group, Kind: kind})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
