// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const domainLabel = "nvlink-domain"

// TestGangsOfOthers: the real controllers of JobSet and LeaderWorkerSet make the pods, and say how many there are in words of their own.
// Domain n1 has four servers, and n2 six. While one server of the domain that is large enough is in use, none is claimed for the gang, and
// an event says what is missing. Once it is free, all pods run in that domain.
func TestGangsOfOthers(t *testing.T) {
	system.Only(t)
	var servers []fleet.Server
	for domain, count := range map[string]int{"n1": 4, "n2": 6} {
		for i := range count {
			servers = append(servers, fleet.Server{Name: fmt.Sprintf("%s-%d", domain, i),
				Labels:   map[string]string{"gpu-model": "h100", "gpu-count": "8", "datacenter": "us-east-1", domainLabel: domain},
				Capacity: env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")})
		}
	}
	w := newSandbox(t, sandbox.Config{Fleet: servers, KwokConfigs: []string{filepath.Join("testdata", "kwok.yaml")}})
	if _, err := examples.Apply(t.Context(), w.tenant, examples.TenantFile); err != nil {
		t.Fatal(err)
	}
	w.install(t, jobSet)
	w.gang(t, "jobset.yaml", "jobset.sigs.k8s.io/jobset-name=train", "n2", 6,
		"no nvlink-domain has capacity for all 6 pods of the gang: n2 has capacity for 5, n1 for 4; it gets no server before there is room for "+
			"all at one time")
	w.install(t, leaderWorkerSet)
	w.gang(t, "leaderworkerset.yaml", "leaderworkerset.sigs.k8s.io/name=serve", "n1", 4,
		"no nvlink-domain has capacity for all 4 pods of the gang: n1 has capacity for 3; it gets no server before there is room for "+
			"all at one time")
}

// gang has a file make a gang, whose pods have a label, while a server of the domain is in use that it needs as a whole.
func (w *fixture) gang(t *testing.T, file, label, domain string, size int, event string) {
	t.Helper()
	whole := env.Resources("nvidia.com/gpu", "8", "cpu", "8")
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "other-" + domain}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{domainLabel: domain},
		Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/main:1",
			Resources: corev1.ResourceRequirements{Limits: whole, Requests: whole}}},
	}}
	if err := w.tenant.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the other pod runs", func(ctx context.Context) error {
		if err := w.tenant.Get(ctx, client.ObjectKeyFromObject(other), other); err != nil {
			return err
		}
		return isRunning(other)
	})
	before := w.list(t, "karpenter.sh", "NodeClaimList")
	content, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := examples.Parse(file, content)
	if err != nil {
		t.Fatal(err)
	}
	if err := examples.ApplyAll(t.Context(), w.tenant, objects); err != nil {
		t.Fatal(err)
	}
	pods := &corev1.PodList{}
	key, value, _ := strings.Cut(label, "=")
	list := func(ctx context.Context) error {
		return w.tenant.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{key: value})
	}
	poll.Eventually(t, "an event says that there is not room for all", func(ctx context.Context) error {
		if err := list(ctx); err != nil {
			return err
		}
		events := &corev1.EventList{}
		if err := w.tenant.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		var got []string
		for _, found := range events.Items {
			if !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.UID == found.InvolvedObject.UID }) {
				continue
			}
			if found.Reason == "InsufficientDomainCapacity" && found.Message == event {
				return nil
			}
			got = append(got, found.Reason+": "+found.Message)
		}
		return fmt.Errorf("there are %d pods, and events %s", len(pods.Items), strings.Join(got, "; "))
	})
	if now := w.list(t, "karpenter.sh", "NodeClaimList"); len(now) != len(before) {
		t.Errorf("%s: NodeClaims are %v, want none beside %v while there is not room for all", file, now, before)
	}

	if err := w.tenant.Delete(t.Context(), other, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "all pods of the gang run", func(ctx context.Context) error {
		if err := list(ctx); err != nil {
			return err
		}
		nodes := map[string]bool{}
		for i := range pods.Items {
			if err := isRunning(&pods.Items[i]); err != nil {
				return err
			}
			node := &corev1.Node{}
			if err := w.tenant.Get(ctx, client.ObjectKey{Name: pods.Items[i].Spec.NodeName}, node); err != nil {
				return err
			}
			if got := node.Labels[domainLabel]; got != domain {
				t.Fatalf("%s: pod %s runs in domain %q, want %s", file, pods.Items[i].Name, got, domain)
			}
			nodes[node.Name] = true
		}
		if len(nodes) != size {
			return fmt.Errorf("%d pods run on %d servers, want %d", len(pods.Items), len(nodes), size)
		}
		return nil
	})
	if now := w.list(t, "karpenter.sh", "NodeClaimList"); len(now) != len(before)-1+size {
		t.Errorf("%s: NodeClaims are %v, want %d and the one of the other pod among them beside %v", file, now, size, before)
	}
}

func isRunning(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("pod %s is %s, on node %q", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
	}
	return nil
}
