// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// kwokNode is the label of the Nodes for which kwok emulates the kubelet.
const kwokNode = "environment.example.com/node"

// startNodes registers the host's Nodes, and starts kwok, which keeps them ready and their pods running. Without Nodes it does nothing.
func (w *Environment) startNodes(ctx context.Context) error {
	if len(w.config.Nodes) == 0 {
		return nil
	}
	for _, name := range w.config.Nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kwokNode: "true", corev1.LabelHostname: name}}}
		if err := w.Host.Client.Create(ctx, node); err != nil {
			return fmt.Errorf("creating node %s, %w", name, err)
		}
		stored := node.DeepCopy()
		node.Status.Capacity = env.Resources("cpu", "64", "memory", "512Gi", "pods", "110")
		node.Status.Allocatable = node.Status.Capacity
		// The controllers write to new Nodes at the same time.
		if err := w.Host.Client.Status().Patch(ctx, node, client.MergeFrom(stored)); err != nil {
			return fmt.Errorf("writing the status of node %s, %w", name, err)
		}
	}
	root, err := env.RepositoryRoot()
	if err != nil {
		return err
	}
	stages := filepath.Join(root, "test", "sandbox", "manifests", "kwok.yaml")
	home := filepath.Join(w.config.Dir, "kwok")
	return w.config.Binaries.Start(w.supervisor, "kwok", process.Spec{
		Rank: cluster.RankClients, Restart: true,
		Args: []string{
			"--kubeconfig=" + w.Host.Kubeconfig, "--config=" + stages,
			"--manage-all-nodes=false", "--manage-nodes-with-label-selector=" + kwokNode, "--node-lease-duration-seconds=40",
		},
		Env: []string{"HOME=" + home, "KWOK_WORKDIR=" + home},
	})
}

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
