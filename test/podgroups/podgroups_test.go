// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podgroups has a tenant whose API server serves PodGroups, and whose scheduler follows them.
package podgroups

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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const (
	domainLabel = "nvlink-domain"
	// size of the group. Domain n1 has four servers, and n2 six.
	size = 6
)

// The pods of a PodGroup say nothing of a domain, only the group does. While five servers of its domain of six are free, none is claimed
// for it, and an event says what is missing. Once the sixth is free, all its pods run there.
func TestPodGroup(t *testing.T) {
	system.Only(t)
	tenant := newTenant(t)
	first := pod("first", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{domainLabel: "n2"} })
	create(t, tenant, first)
	poll.Eventually(t, "the first pod runs", func(ctx context.Context) error { return runs(ctx, tenant, first.Name) })

	group := podGroup(t, tenant, "train")
	create(t, tenant, group)
	var members []string
	for i := range size {
		member := pod(fmt.Sprint("train-", i), func(pod *corev1.Pod) {
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group.GetName())}
		})
		create(t, tenant, member)
		members = append(members, member.Name)
	}
	want := "no nvlink-domain has capacity for all 6 pods of the gang: n2 has capacity for 5, n1 for 4; it gets no server before there is " +
		"room for all at one time"
	poll.Eventually(t, "an event says that no domain has six free servers", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := tenant.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		var got []string
		for _, event := range events.Items {
			if slices.Contains(members, event.InvolvedObject.Name) {
				if event.Reason == "InsufficientDomainCapacity" && event.Message == want {
					return nil
				}
				got = append(got, event.Reason+": "+event.Message)
			}
		}
		return fmt.Errorf("there are %s", strings.Join(got, "; "))
	})
	claims := &karpv1.NodeClaimList{}
	if err := tenant.List(t.Context(), claims); err != nil || len(claims.Items) != 1 {
		t.Errorf("there are %d NodeClaims, error %v; want that of the first pod alone", len(claims.Items), err)
	}

	if err := tenant.Delete(t.Context(), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "all pods of the group run", func(ctx context.Context) error { return runs(ctx, tenant, members...) })
	used := map[string]bool{}
	for _, name := range members {
		member, node := &corev1.Pod{}, &corev1.Node{}
		if err := tenant.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, member); err != nil {
			t.Fatal(err)
		}
		if err := tenant.Get(t.Context(), client.ObjectKey{Name: member.Spec.NodeName}, node); err != nil {
			t.Fatal(err)
		}
		if domain := node.Labels[domainLabel]; domain != "n2" {
			t.Errorf("pod %s runs in domain %q", name, domain)
		}
		used[node.Name] = true
	}
	if len(used) != size {
		t.Errorf("the pods run on %d servers, want %d", len(used), size)
	}
}

// newTenant starts a sandbox and returns a client of its tenant cluster.
func newTenant(t *testing.T) client.Client {
	t.Helper()
	var servers []fleet.Server
	for domain, count := range map[string]int{"n1": 4, "n2": size} {
		for i := range count {
			servers = append(servers, fleet.Server{Name: fmt.Sprintf("%s-%d", domain, i),
				Labels:   map[string]string{"gpu-model": "h100", "gpu-count": "8", "datacenter": "us-east-1", domainLabel: domain},
				Capacity: env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")})
		}
	}
	box, err := sandbox.Up(t.Context(), sandbox.Config{Dir: filepath.Join(t.TempDir(), "sandbox"), Fleet: servers, PodGroups: true,
		Binaries: cluster.Binaries{filepath.Join("..", "..", "bin")}, AuditLogs: os.Getenv(audit.DirectoryVariable)})
	if err != nil {
		t.Fatalf("starting a sandbox (run `make tools build` first), %v", err)
	}
	t.Cleanup(box.Close)
	management, err := client.New(box.ManagementConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := client.New(box.TenantConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := examples.Apply(t.Context(), management, examples.ManagementFile); err != nil {
		t.Fatal(err)
	}
	if _, err := examples.Apply(t.Context(), tenant, examples.TenantFile); err != nil {
		t.Fatal(err)
	}
	return tenant
}

// podGroup is in the version that the API server prefers. Those of Kubernetes 1.36 and 1.37 have these fields in common.
func podGroup(t *testing.T, tenant client.Client, name string) *unstructured.Unstructured {
	t.Helper()
	mapping, err := tenant.RESTMapper().RESTMapping(schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PodGroup"})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("PodGroups are of", mapping.GroupVersionKind.GroupVersion())
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"schedulingPolicy":      map[string]any{"gang": map[string]any{"minCount": int64(size)}},
		"schedulingConstraints": map[string]any{"topology": []any{map[string]any{"key": domainLabel}}},
	}}}
	group.SetGroupVersionKind(mapping.GroupVersionKind)
	group.SetNamespace(metav1.NamespaceDefault)
	group.SetName(name)
	return group
}

// pod is one that needs a whole server.
func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	whole := env.Resources("nvidia.com/gpu", "8", "cpu", "8")
	result := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/main:1",
			Resources: corev1.ResourceRequirements{Limits: whole, Requests: whole}}}}}
	change(result)
	return result
}

func create(t *testing.T, tenant client.Client, object client.Object) {
	t.Helper()
	if err := tenant.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func runs(ctx context.Context, tenant client.Client, names ...string) error {
	for _, name := range names {
		pod := &corev1.Pod{}
		if err := tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is %s, on node %q", name, pod.Status.Phase, pod.Spec.NodeName)
		}
	}
	return nil
}
