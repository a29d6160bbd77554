// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

// kwokNode is the label of the Nodes for which kwok emulates the kubelet.
const kwokNode = "environment.example.com/node"

// startNodes registers the host's Nodes, and starts kwok, which keeps them ready and their pods running.
func (w *Environment) startNodes(ctx context.Context) error {
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
	path, err := w.config.Binaries.Find("kwok")
	if err != nil {
		return err
	}
	stages, err := filepath.Abs(filepath.Join(root(), "test", "sandbox", "manifests", "kwok.yaml"))
	if err != nil {
		return err
	}
	home := filepath.Join(w.config.Dir, "kwok")
	return w.supervisor.Start(process.Spec{
		Name: "kwok", Path: path, Rank: controlplane.RankClients, Restart: true,
		Args: []string{
			"--kubeconfig=" + w.Host.Kubeconfig, "--config=" + stages,
			"--manage-all-nodes=false", "--manage-nodes-with-label-selector=" + kwokNode, "--node-lease-duration-seconds=40",
		},
		Env: []string{"HOME=" + home, "KWOK_WORKDIR=" + home},
	})
}

// installCRDs applies the CRDs of the management cluster, and returns when they are served.
func (w *Environment) installCRDs(ctx context.Context) error {
	crds, err := apis.ManagementCRDs()
	if err != nil {
		return err
	}
	// The webhook watches servers, too.
	content, err := os.ReadFile(filepath.Join(root(), "bin", "crds", "metal3", "metal3.io_baremetalhosts.yaml"))
	if err != nil {
		return fmt.Errorf("reading Metal3's CRD, %w; get it with `make tools`", err)
	}
	hosts := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(content, hosts); err != nil {
		return fmt.Errorf("reading Metal3's CRD, %w", err)
	}
	crds = append(crds, hosts)
	for _, crd := range crds {
		if err := w.Host.Client.Create(ctx, crd); err != nil {
			return fmt.Errorf("creating CRD %s, %w", crd.Name, err)
		}
	}
	for _, crd := range crds {
		err := controlplane.Await(ctx, "CRD "+crd.Name+" to be served", func(ctx context.Context) error {
			var current apiextensionsv1.CustomResourceDefinition
			if err := w.Host.Client.Get(ctx, client.ObjectKey{Name: crd.Name}, &current); err != nil {
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
