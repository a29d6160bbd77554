// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the whole system on a sandbox. It prints results, and asserts nothing about time or memory.
package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

const (
	servers     = 20
	waitTimeout = 3 * time.Minute
)

// BenchmarkSandbox starts a sandbox of 20 servers and sends pods for all of them, once per iteration.
// It reports how long the start took (up-s), what all processes have resident then (up-MiB, shared pages counted for
// each), and how long it took from a pod's creation to its server's claim, for the first and the last of the pods, the
// batching window of Karpenter (1 s without a new pod) included (first-claim-s, last-claim-s).
func BenchmarkSandbox(b *testing.B) {
	var up, memory, first, last float64
	for b.Loop() {
		begin := time.Now()
		dir := filepath.Join(b.TempDir(), "sandbox")
		box, err := sandbox.Up(b.Context(), sandbox.Config{
			Dir:      dir,
			Binaries: cluster.Binaries{filepath.Join("..", "..", "bin")},
			Fleet:    twenty(),
		})
		if err != nil {
			b.Fatal(err)
		}
		up += time.Since(begin).Seconds()
		firstClaim, lastClaim, err := claimAll(b.Context(), box)
		report, statusErr := sandbox.Status(dir)
		box.Close()
		if err := errors.Join(err, statusErr); err != nil {
			b.Fatal(err)
		}
		memory += float64(report.Memory()) / (1 << 20)
		first += firstClaim.Seconds()
		last += lastClaim.Seconds()
	}
	n := float64(b.N)
	b.ReportMetric(up/n, "up-s")
	b.ReportMetric(memory/n, "MiB")
	b.ReportMetric(first/n, "first-claim-s")
	b.ReportMetric(last/n, "last-claim-s")
}

func twenty() []fleet.Server {
	var all []fleet.Server
	for i := range servers {
		all = append(all, fleet.Server{
			Name:   fmt.Sprintf("server-%02d", i+1),
			Labels: map[string]string{"gpu-model": "h100", "gpu-count": "8"},
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourceMemory: resource.MustParse("768Gi"),
				"nvidia.com/gpu": resource.MustParse("8"),
			},
		})
	}
	return all
}

// claimAll creates one pod per server and returns how long after the last of them was created the first and the last
// server was claimed.
func claimAll(ctx context.Context, box *sandbox.Sandbox) (first, last time.Duration, err error) {
	management, err := newClient(box.ManagementConfig())
	if err != nil {
		return 0, 0, err
	}
	tenant, err := newClient(box.TenantConfig())
	if err != nil {
		return 0, 0, err
	}
	if _, err := examples.Apply(ctx, management, examples.ManagementFile); err != nil {
		return 0, 0, err
	}
	if _, err := examples.Apply(ctx, tenant, examples.TenantFile); err != nil {
		return 0, 0, err
	}
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, waitTimeout, true, func(ctx context.Context) (bool, error) {
		nodeType := &v1alpha1.NodeType{}
		err := management.Get(ctx, client.ObjectKey{Name: "h100-8x"}, nodeType)
		return nodeType.Status.Capacity.Available == servers, client.IgnoreNotFound(err)
	}); err != nil {
		return 0, 0, fmt.Errorf("waiting for %d available servers, %w", servers, err)
	}
	for i := range servers {
		limits := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("8")}
		if err := tenant.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("pod-%02d", i+1)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/main:1", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits},
			}}},
		}); err != nil {
			return 0, 0, err
		}
	}
	created := time.Now()
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, waitTimeout, true, func(ctx context.Context) (bool, error) {
		machines := &v1alpha1.MachineList{}
		if err := management.List(ctx, machines); err != nil {
			return false, err
		}
		claimed := 0
		for _, machine := range machines.Items {
			if meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionClaimed) {
				claimed++
			}
		}
		if claimed > 0 && first == 0 {
			first = time.Since(created)
		}
		last = time.Since(created)
		return claimed == servers, nil
	}); err != nil {
		return 0, 0, fmt.Errorf("waiting for %d claims, %w", servers, err)
	}
	return first, last, nil
}

func newClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return client.New(config, client.Options{Scheme: scheme})
}
