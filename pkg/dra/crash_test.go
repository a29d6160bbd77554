// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// cycle is a whole life: a class, a claim, a template and a claim that both sides have generated come, are allocated, changed and
// deleted, and the class leaves. A process that dies on the way is replaced by one that does not.
func cycle(t *testing.T, w *fixture, p *process) {
	w.must(w.tenant.Create(t.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}))
	// The caches have the claim that the tenant has generated from their start.
	tenantPod := pod(w.namespace, "train", corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: ptr.To("one-gpu")})
	w.must(w.tenant.Create(t.Context(), tenantPod))
	early := w.generatedClaim(w.namespace, "train-gpu-early", tenantPod)
	w.must(w.tenant.Create(t.Context(), early))
	ctx, cancel := context.WithCancel(t.Context())
	stop, replaced := w.run(p), make(chan struct{})
	go func() {
		defer close(replaced)
		select {
		case <-p.died:
			stop()
			w.run()
		case <-ctx.Done():
		}
	}()
	t.Cleanup(func() { cancel(); <-replaced })

	claim, template := w.createClaim("gpu"), w.createTemplate("one-gpu")
	copied := w.awaitHostClaim("gpu")
	w.awaitClass(w.class, nil)
	copiedTemplate := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace,
		Name: w.hostName("one-gpu")}}
	w.eventually("the template is on the host", func(ctx context.Context) error {
		return w.host.Get(ctx, client.ObjectKeyFromObject(copiedTemplate), copiedTemplate)
	})
	hostPod := w.createHostPod(tenantPod)
	made := w.generatedClaim(w.cluster.Namespace, hostPod.Name+"-gpu-abcde", hostPod)
	w.must(w.host.Create(t.Context(), made))
	w.allocate(copied, "gpu-0", hostPod)
	w.allocate(made, "gpu-1", hostPod)
	w.awaitStatus("gpu", "", tenantPod)
	w.awaitStatus(early.Name, "", tenantPod)
	w.nameClaim(tenantPod, made.Name)
	w.awaitGone(w.tenant, early)
	shown := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: made.Name}}
	w.eventually("the generated claim is shown", func(ctx context.Context) error {
		if err := w.tenant.Get(ctx, client.ObjectKeyFromObject(shown), shown); err != nil || shown.Status.Allocation == nil {
			return fmt.Errorf("status %v, error %v", shown.Status, err)
		}
		return nil
	})
	change(w, w.tenant, claim, func(claim *resourcev1.ResourceClaim) { claim.Labels = map[string]string{"team": "a"} })
	w.eventually("the label is on the host", func(context.Context) error {
		if labels := w.hostClaim("gpu").Labels; labels["team"] != "a" {
			return fmt.Errorf("labels are %v", labels)
		}
		return nil
	})
	change(w, w.host, w.classObject(), func(class *resourcev1.DeviceClass) { class.Spec.Selectors = nil })
	w.awaitClass(w.class, func(class *resourcev1.DeviceClass) error {
		if len(class.Spec.Selectors) > 0 {
			return fmt.Errorf("it has selectors")
		}
		return nil
	})

	// The way back: nothing is left on either side.
	w.must(w.tenant.Delete(t.Context(), claim))
	w.must(w.tenant.Delete(t.Context(), template))
	w.deallocate(copied)
	w.deallocate(made)
	w.must(w.host.Delete(t.Context(), made))
	w.must(w.host.Delete(t.Context(), w.classObject()))
	for _, object := range []client.Object{copied, copiedTemplate, made} {
		w.awaitGone(w.host, object)
	}
	for _, object := range []client.Object{claim, template, shown, w.classObject(),
		&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}} {
		w.awaitGone(w.tenant, object)
	}
	w.awaitCondition(v1alpha1.ReasonSynced)
}

// Invariant 2: the process may die before any of its writes.
func TestCrashAtEveryWrite(t *testing.T) {
	whole := immortal()
	t.Run("Undisturbed", func(t *testing.T) { cycle(t, newMemoryFixture(t), whole) })
	writes := whole.written()
	t.Logf("a cycle has %d writes: %v", len(writes), writes)
	processes := make([]*process, len(writes))
	t.Run("Crash", func(t *testing.T) {
		for point := range writes {
			processes[point] = dyingAfter(point)
			t.Run(fmt.Sprintf("BeforeWrite%d", point), func(t *testing.T) {
				t.Parallel()
				cycle(t, newMemoryFixture(t), processes[point])
			})
		}
	})
	tried := 0
	for _, p := range processes {
		if p.isDead() {
			tried++
		}
	}
	if tried < len(writes)-2 {
		t.Errorf("the process died at %d points only, of %d", tried, len(writes))
	}
}

// TestCrashOnAPIServers is TestCrashAtEveryWrite with watches and API servers, at a few of the writes: a copy, a status, a
// generated claim, the deletion of the one that the tenant has generated, that of a copy, and its finalizer. Their order may
// differ a little from run to run.
func TestCrashOnAPIServers(t *testing.T) {
	for _, point := range []int{4, 7, 9, 12, 16, 19} {
		t.Run(fmt.Sprintf("BeforeWrite%d", point), func(t *testing.T) {
			p := dyingAfter(point)
			cycle(t, newFixture(t), p)
			if !p.isDead() {
				t.Errorf("the process has only %d writes", len(p.written()))
			}
		})
	}
}
