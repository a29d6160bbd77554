// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
)

const fieldOwner = client.FieldOwner("sandbox-demo")

// parse reads the objects of one file of the reference fleet.
func parse(file string) ([]*unstructured.Unstructured, error) {
	content, err := examples.ReferenceFleet.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading example %s, %w", file, err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing example %s, %w", file, err)
		}
		objects = append(objects, object)
	}
}

// apply creates or updates the objects of one file, as kubectl apply --server-side would.
func apply(ctx context.Context, target client.Client, file string) error {
	objects, err := parse(file)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetNamespace() == "" && object.GetKind() == "Pod" {
			object.SetNamespace("default")
		}
		if err := target.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s of %s, %w", object.GetKind(), object.GetName(), file, err)
		}
	}
	return nil
}

// workload returns the names of the pods of the reference fleet, in the order of the file.
func workload() ([]string, error) {
	objects, err := parse(examples.WorkloadFile)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	return names, nil
}
