// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Driver is the name of the driver whose devices are published.
const Driver = "gpu.example.com"

// PublishDevices publishes devices by node name, with the kubelet plugin helper of drivers, until the Environment is
// closed.
func (w *Environment) PublishDevices(ctx context.Context, devices map[string][]resourcev1.Device) error {
	clientset, err := kubernetes.NewForConfig(w.Host.REST)
	if err != nil {
		return fmt.Errorf("making a client of the host, %w", err)
	}
	for node, devices := range devices {
		controller, err := resourceslice.StartController(w.ctx, resourceslice.Options{
			DriverName: Driver, KubeClient: clientset,
			Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: node},
			Resources: &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
				node: {Slices: []resourceslice.Slice{{Devices: devices}}},
			}},
		})
		if err != nil {
			return fmt.Errorf("publishing the devices of node %s, %w", node, err)
		}
		w.background.Go(func() error {
			<-w.ctx.Done()
			controller.Stop()
			return nil
		})
	}
	return w.published(ctx, len(devices))
}

// published waits until every node has its ResourceSlice.
func (w *Environment) published(ctx context.Context, nodes int) error {
	return poll.Await(ctx, "every node has ResourceSlices", func(ctx context.Context) error {
		slices := &resourcev1.ResourceSliceList{}
		if err := w.Host.Client.List(ctx, slices); err != nil {
			return err
		}
		if len(slices.Items) != nodes {
			return fmt.Errorf("%d of %d", len(slices.Items), nodes)
		}
		return nil
	})
}
