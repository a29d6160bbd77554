// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dradriver installs Kubernetes' example of a driver of devices, dra-example-driver, on test servers by its own
// chart. Its devices are emulated; what a pod gets are environment variables, by CDI.
package dradriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/chart"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images/archive"
)

const (
	// Driver is the name of the driver, and of the DeviceClass of all its devices.
	Driver = "gpu.example.com"
	// Program of the driver, in bin.
	Program = "dra-example-kubeletplugin"

	namespace = "dra-example-driver"
	module    = "sigs.k8s.io/dra-example-driver"
)

// WriteImage writes the archive of the driver's image to a directory, for servers to import.
func WriteImage(bin, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of the driver's image, %w", err)
	}
	program, err := os.ReadFile(filepath.Join(bin, Program))
	if err != nil {
		return fmt.Errorf("reading the driver, which hack/build-tools.sh dra builds, %w", err)
	}
	file, err := os.Create(filepath.Join(dir, Program+".tar"))
	if err != nil {
		return fmt.Errorf("making the archive of the driver, %w", err)
	}
	image := archive.Image{Reference: images.Reference(Program), Name: Program, Program: program, Architecture: "amd64"}
	return errors.Join(image.Write(file), file.Close())
}

// Options of the driver.
type Options struct {
	// Name of the driver, and of the DeviceClass of all its devices. Empty means Driver.
	Name string
	// Devices on each node.
	Devices int
	// Partitions of each device, which share its counters. 0 means none.
	Partitions int
	// Shared lets claims share a device by its memory and compute.
	Shared bool
	// Resource is the extended resource that the DeviceClass serves. Empty means none.
	Resource string
}

// Install installs the driver in a cluster. The API server, host:port, is where its pods find it: test servers have no kube-proxy.
// Several drivers run beside each other if they have names of their own.
func Install(ctx context.Context, bin string, c client.Client, apiServer string, options Options) error {
	repository, tag, _ := strings.Cut(images.Reference(Program), ":")
	driver := chart.Chart{Tool: "dradriver", Module: module, Path: "deployments/helm/dra-example-driver"}
	name := cmp.Or(options.Name, Driver)
	release, _, _ := strings.Cut(name, ".")
	objects, err := driver.Render(ctx, filepath.Dir(bin), filepath.Join(bin, "helm"), release, namespace, map[string]any{
		"image":                       map[string]any{"repository": repository, "tag": tag, "pullPolicy": string(corev1.PullNever)},
		"driverName":                  name,
		"deviceClass":                 map[string]any{"extendedResourceName": options.Resource},
		"gpuAllowMultipleAllocations": options.Shared,
		"kubeletPlugin": map[string]any{
			"numDevices": options.Devices, "gpuPartitions": options.Partitions,
			// The drivers share the network of the server, and so its ports.
			"containers": map[string]any{"plugin": map[string]any{"healthcheckPort": -1, "metricsPort": -1}},
		},
	})
	if err != nil {
		return err
	}
	daemons := 0
	for _, object := range objects {
		if object.GetKind() == "DaemonSet" {
			daemons++
			if err := adapt(object, apiServer); err != nil {
				return err
			}
		}
	}
	if daemons != 1 {
		return fmt.Errorf("the driver's chart has %d DaemonSets, want one", daemons)
	}
	return chart.Create(ctx, c, namespace, objects)
}

// adapt has the driver run on a server without a network of pods, find the API server there, and start from an image that
// has no PATH.
func adapt(daemon *unstructured.Unstructured, apiServer string) error {
	host, port, err := net.SplitHostPort(apiServer)
	if err != nil {
		return fmt.Errorf("reading the address of the API server, %w", err)
	}
	containers, _, err := unstructured.NestedSlice(daemon.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return fmt.Errorf("the driver's DaemonSet has %d containers, want one: %w", len(containers), err)
	}
	container := containers[0].(map[string]any)
	container["command"] = []any{"/" + Program}
	environment, _ := container["env"].([]any)
	container["env"] = append(environment, map[string]any{"name": "KUBERNETES_SERVICE_HOST", "value": host},
		map[string]any{"name": "KUBERNETES_SERVICE_PORT", "value": port})
	return errors.Join(
		unstructured.SetNestedSlice(daemon.Object, containers, "spec", "template", "spec", "containers"),
		unstructured.SetNestedField(daemon.Object, true, "spec", "template", "spec", "hostNetwork"),
	)
}
