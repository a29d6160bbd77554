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

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/gangstories"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// TestGangsOfOthers: the real controllers of JobSet and LeaderWorkerSet make the pods, and say how many there are in words of their own.
// Domain n1 has four servers, and n2 six. While one server of the domain that is large enough is in use, none is claimed for the gang, and
// an event says what is missing. Once it is free, all pods run in that domain.
func TestGangsOfOthers(t *testing.T) {
	system.Only(t)
	w := newSandbox(t, sandbox.Config{Fleet: gangstories.Servers(map[string]int{"n1": 4, "n2": 6}),
		KwokConfigs: []string{filepath.Join("testdata", "kwok.yaml")}})
	if _, err := examples.Apply(t.Context(), w.tenant, examples.TenantFile); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.placement())
		}
	})
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
	other := gangstories.Pod("other-"+domain, gangstories.In(domain))
	if err := w.tenant.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the other pod runs", func(ctx context.Context) error {
		_, _, err := gangstories.Run(ctx, w.tenant, other.Name)
		return err
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
	key, value, _ := strings.Cut(label, "=")
	names := func(ctx context.Context) ([]string, error) {
		pods := &corev1.PodList{}
		err := w.tenant.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{key: value})
		return lo.Map(pods.Items, func(pod corev1.Pod, _ int) string { return pod.Name }), err
	}
	poll.Eventually(t, "an event says that there is not room for all", func(ctx context.Context) error {
		members, err := names(ctx)
		if err != nil {
			return err
		}
		return gangstories.HasEvent(ctx, w.tenant, members, "InsufficientDomainCapacity", event)
	})
	if now := w.list(t, "karpenter.sh", "NodeClaimList"); len(now) != len(before) {
		t.Errorf("%s: NodeClaims are %v, want none beside %v while there is not room for all", file, now, before)
	}

	if err := w.tenant.Delete(t.Context(), other, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "all pods of the gang run", func(ctx context.Context) error {
		members, err := names(ctx)
		if err != nil {
			return err
		}
		servers, domains, err := gangstories.Run(ctx, w.tenant, members...)
		if err != nil {
			return err
		}
		if !slices.Equal(domains, []string{domain}) {
			t.Fatalf("%s: the pods run in the domains %v, want %s", file, domains, domain)
		}
		if servers != size {
			return fmt.Errorf("%d pods run on %d servers, want %d", len(members), servers, size)
		}
		return nil
	})
	if now := w.list(t, "karpenter.sh", "NodeClaimList"); len(now) != len(before)-1+size {
		t.Errorf("%s: NodeClaims are %v, want %d and the one of the other pod among them beside %v", file, now, size, before)
	}
}

// placement says where every pod is, to read after a failure.
func (w *fixture) placement() string {
	pods, text := &corev1.PodList{}, &strings.Builder{}
	if err := w.tenant.List(context.Background(), pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err.Error()
	}
	for _, pod := range pods.Items {
		fmt.Fprintf(text, "pod %s is %s on node %q since %v, created %v\n", pod.Name, pod.Status.Phase, pod.Spec.NodeName, pod.Status.StartTime,
			pod.CreationTimestamp)
	}
	return text.String()
}
