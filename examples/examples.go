// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package examples holds the manifests that the documentation shows and that the demo and the tests apply, so that the
// documented manifests are the tested ones.
package examples

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed reference-fleet/*.yaml dual-stack/*.yaml
var files embed.FS

// The reference fleet: the fleet of the reference documentation, two servers each of H100, A100 and CPU only, of which
// one belongs to another tenant.
const (
	// FleetFile lists the emulated servers of the sandbox.
	FleetFile = "reference-fleet/fleet.yaml"
	// ManagementFile is for the management cluster: an OSImage and a NodeProvider with three NodeTypes.
	ManagementFile = "reference-fleet/management.yaml"
	// TenantFile is for the tenant cluster: a MetalNodeClass and a dynamic NodePool.
	TenantFile = "reference-fleet/tenant.yaml"
	// WorkloadFile is for the tenant cluster: pods that request GPUs, and one without.
	WorkloadFile = "reference-fleet/workload.yaml"
)

// DualStackFile is for the management cluster: a MachineConfigTemplate for servers with an address of each family.
const DualStackFile = "dual-stack/management.yaml"

// Read returns the content of one of the files.
func Read(file string) ([]byte, error) {
	content, err := files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading example %s, %w", file, err)
	}
	return content, nil
}

// Objects returns the objects in one of the files, in its order.
func Objects(file string) ([]*unstructured.Unstructured, error) {
	content, err := Read(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, content)
}

// Parse returns the objects in the content of a file, in its order. Documents of comments only are left out. The name of
// the file is for the error.
func Parse(file string, content []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing %s, %w", file, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// Apply creates or updates the objects in one of the files, as kubectl apply --server-side would, and returns them.
func Apply(ctx context.Context, target client.Client, file string) ([]*unstructured.Unstructured, error) {
	objects, err := Objects(file)
	if err != nil {
		return nil, err
	}
	if err := ApplyAll(ctx, target, objects); err != nil {
		return nil, fmt.Errorf("applying %s, %w", file, err)
	}
	return objects, nil
}

// ApplyAll creates or updates objects, as kubectl apply --server-side would.
func ApplyAll(ctx context.Context, target client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := target.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("examples"),
			client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s, %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}
