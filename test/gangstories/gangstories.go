// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gangstories has what tests of gangs on sandboxes have in common: the sandbox, servers in NVLink domains, pods that need a whole
// server each, and what such tests wait for.
package gangstories

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

// Start starts a sandbox, until the test ends, with the NodeProvider of the examples. It returns clients of its two clusters.
func Start(t *testing.T, config sandbox.Config) (box *sandbox.Sandbox, management, tenant client.Client) {
	t.Helper()
	config.Dir = cmp.Or(config.Dir, filepath.Join(t.TempDir(), "sandbox"))
	config.Binaries = cluster.Binaries{filepath.Join("..", "..", "bin")}
	box, err := sandbox.Up(t.Context(), config)
	if err != nil {
		t.Fatalf("starting a sandbox (run `make tools build` first), %v", err)
	}
	t.Cleanup(box.Close)
	if management, err = client.New(box.ManagementConfig(), client.Options{Scheme: env.Scheme()}); err != nil {
		t.Fatal(err)
	}
	if tenant, err = client.New(box.TenantConfig(), client.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := examples.Apply(t.Context(), management, examples.ManagementFile); err != nil {
		t.Fatal(err)
	}
	return box, management, tenant
}

// Servers are so many of the type h100-8x in each NVLink domain.
func Servers(domains map[string]int) (servers []fleet.Server) {
	for domain, count := range domains {
		for i := range count {
			servers = append(servers, fleet.Server{Name: fmt.Sprintf("%s-%d", domain, i),
				Labels: map[string]string{"gpu-model": "h100", "gpu-count": "8", "datacenter": "us-east-1",
					v1alpha1.NVLinkDomainLabelKey: domain},
				Capacity: env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")})
		}
	}
	return servers
}

// Pod is one in the namespace default that needs a whole server.
func Pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	whole := env.Resources("nvidia.com/gpu", "8", "cpu", "8")
	result := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/main:1",
			Resources: corev1.ResourceRequirements{Limits: whole, Requests: whole}}}}}
	change(result)
	return result
}

// In puts a pod into an NVLink domain.
func In(domain string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeSelector = map[string]string{v1alpha1.NVLinkDomainLabelKey: domain}
	}
}

// HasEvent returns an error with the events that there are unless one of the objects, of which it is told the names, has this one.
func HasEvent(ctx context.Context, tenant client.Client, objects []string, reason, message string) error {
	events := &corev1.EventList{}
	if err := tenant.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	got := map[string]bool{}
	for _, event := range events.Items {
		if !slices.Contains(objects, event.InvolvedObject.Name) {
			continue
		}
		if event.Reason == reason && event.Message == message {
			return nil
		}
		got[event.Reason+": "+event.Message] = true
	}
	return fmt.Errorf("%v have events %s", objects, strings.Join(slices.Sorted(maps.Keys(got)), "; "))
}

// Run returns an error unless all pods run. It returns on how many servers, and in which NVLink domains.
func Run(ctx context.Context, tenant client.Client, names ...string) (servers int, domains []string, err error) {
	nodes, found := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		pod, node := &corev1.Pod{}, &corev1.Node{}
		if err := tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, pod); err != nil {
			return 0, nil, err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return 0, nil, fmt.Errorf("pod %s is %s, on node %q", name, pod.Status.Phase, pod.Spec.NodeName)
		}
		if err := tenant.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil {
			return 0, nil, err
		}
		nodes[node.Name], found[node.Labels[v1alpha1.NVLinkDomainLabelKey]] = true, true
	}
	return len(nodes), slices.Sorted(maps.Keys(found)), nil
}
