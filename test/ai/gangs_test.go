// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ai

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// stays is a label of pods of Jobs that run until they are deleted, on nodes that kwok emulates.
const stays = "example.com/stays"

// TestGangScheduling is KAR-0053, with Karpenter and this provider as what schedules gangs. Nothing in the Jobs is ours: each is
// Indexed, and its pods must be in one zone. Each pod needs a whole server, of which there are as many as pods.
//
// Enough is free: the Job completes, and its servers are given back. Then a pod has one of them: an event says that there is not room for
// all pods of the Job, and none is placed; no server is claimed. When that pod is deleted, all pods of the Job run at one time.
func TestGangScheduling(t *testing.T) {
	system.Only(t)
	w := newFixture(t, "ai", env.Resources(gpu, "1"))
	job := w.job("completes", func(template *corev1.PodTemplateSpec) { template.Spec.Containers[0].Args = []string{"--once"} })
	w.create(t, w.Tenant, job)
	w.untilCompletes(t, job)
	t.Logf("Job %s is complete: %d pods have succeeded", job.Name, job.Status.Succeeded)
	if err := w.remove(t.Context(), w.Tenant, job); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the servers of the Job are given back", func(ctx context.Context) error {
		nodes, err := w.nodes(ctx)
		if err == nil && len(nodes) > 0 {
			return fmt.Errorf("the pool has the nodes %v", nodes)
		}
		return err
	})

	other := w.pod("other", env.Resources(gpu, "1"))
	w.create(t, w.Tenant, other)
	w.untilPlaced(t, other.Name)
	job = w.job("waits", func(template *corev1.PodTemplateSpec) { template.Labels[stays] = "true" })
	w.create(t, w.Tenant, job)
	pods := w.untilPods(t, job)
	w.untilEvent(t, pods[0].Name, "InsufficientDomainCapacity: no "+corev1.LabelTopologyZone+" has capacity for all 3 pods of the gang",
		"it gets no server before there is room for all at one time")
	for _, pod := range w.untilPods(t, job) {
		if pod.Spec.NodeName != "" {
			t.Errorf("pod %s is on node %s, and there is not room for all pods of the Job", pod.Name, pod.Spec.NodeName)
		}
	}
	claims := &karpv1.NodeClaimList{}
	err := w.Tenant.List(t.Context(), claims, client.MatchingLabels{karpv1.NodePoolLabelKey: w.name})
	if err != nil || len(claims.Items) != 1 {
		t.Errorf("there are %d NodeClaims, error %v; want that of pod %s alone", len(claims.Items), err, other.Name)
	}

	if err := w.remove(t.Context(), w.Tenant, other); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "all pods of the Job run at one time", func(ctx context.Context) error {
		var names []string
		for _, pod := range w.untilPods(t, job) {
			names = append(names, pod.Name)
		}
		nodes, err := w.placed(ctx, names...)
		if err == nil {
			t.Logf("pods of Job %s and their nodes: %v", job.Name, nodes)
		}
		return err
	})
}

// job has as many pods as there are servers.
func (w *fixture) job(name string, change func(*corev1.PodTemplateSpec)) *batchv1.Job {
	template := corev1.PodTemplateSpec{Spec: w.pod(name, env.Resources("cpu", "1", gpu, "1")).Spec}
	template.Labels = map[string]string{"gang": name}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	template.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gang": name}},
		}},
	}}
	change(&template)
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name}, Spec: batchv1.JobSpec{
		CompletionMode: ptr.To(batchv1.IndexedCompletion), Parallelism: ptr.To[int32](servers), Completions: ptr.To[int32](servers),
		Template: template,
	}}
}

// untilCompletes waits until a Job is complete.
func (w *fixture) untilCompletes(t *testing.T, job *batchv1.Job) {
	t.Helper()
	poll.Eventually(t, "Job "+job.Name+" is complete", func(ctx context.Context) error {
		if err := w.Tenant.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if job.Status.CompletionTime == nil || job.Status.Succeeded != servers {
			return fmt.Errorf("%d of its pods have succeeded:\n%s", job.Status.Succeeded, w.pods(ctx))
		}
		return nil
	})
}

// untilPods waits until a Job has all its pods.
func (w *fixture) untilPods(t *testing.T, job *batchv1.Job) []corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	poll.Eventually(t, fmt.Sprintf("Job %s has %d pods", job.Name, servers), func(ctx context.Context) error {
		err := w.Tenant.List(ctx, pods, client.InNamespace(w.name), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
		if err == nil && len(pods.Items) != servers {
			return fmt.Errorf("it has %d", len(pods.Items))
		}
		return err
	})
	return pods.Items
}
