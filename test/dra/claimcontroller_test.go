// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Kubernetes' resourceclaim controller runs in the tenant too and generates a claim for the same pod. The tenant ends with one
// claim, that of the host's name, which is in the pod's status; and that controller does not generate another.
func TestGeneratedClaimWithTenantsController(t *testing.T) {
	system.Only(t)
	s := newTenantObjects(t)
	stop, err := s.tenant.StartClaimController()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	const attempts = 10
	for n := range attempts {
		// The host can be faster: its claim is there before that controller sees the pod.
		switch got := s.generatedByTenant(n); {
		case got > 1:
			t.Fatalf("the tenant's controller has generated %d claims for the pod, want one, which was deleted", got)
		case got == 1:
			return
		}
	}
	t.Errorf("the tenant's controller has generated no claim for any of %d pods, so the test shows nothing", attempts)
}

// generatedByTenant runs a pod and deletes it, and returns how many claims the tenant's controller has generated for it meanwhile.
func (s *tenantObjects) generatedByTenant(attempt int) int32 {
	s.Helper()
	worker := fmt.Sprintf("worker%d", attempt)
	byTenant := s.countGenerated(worker + "-device-")
	s.create(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: a100}
spec:
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: tested-gpu, selectors: [{cel: {expression: '` + model + `"a100"'}}]}}]}}
`)
	s.untilControllerWorks(fmt.Sprintf("a-x-probe%d", attempt))
	s.pod(worker, "resourceClaimTemplateName: a100")
	s.untilRunning(worker)
	s.eventually("the tenant has one claim for the pod, that of the host's name", func(ctx context.Context) error {
		claims := &resourcev1.ResourceClaimList{}
		if err := s.tenant.Client.List(ctx, claims, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		pod := &corev1.Pod{}
		if err := s.tenant.Client.Get(ctx, key(worker), pod); err != nil {
			return err
		}
		if len(pod.Status.ResourceClaimStatuses) != 1 || pod.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
			return errors.New("its status names none")
		}
		var have []string
		for i := range claims.Items {
			if metav1.IsControlledBy(&claims.Items[i], pod) {
				have = append(have, claims.Items[i].Name)
			}
		}
		named := *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
		if len(have) != 1 || have[0] != named || !strings.HasPrefix(named, worker+"-x-default-x-tester-") {
			return fmt.Errorf("claims %v, the pod's status names %s", have, named)
		}
		return nil
	})
	pod := &corev1.Pod{}
	if err := s.tenant.Client.Get(s.Context(), key(worker), pod); err != nil {
		s.Fatal(err)
	}
	s.untilAllocated(*pod.Status.ResourceClaimStatuses[0].ResourceClaimName, []string{worker}, "gpu=gpu-3")
	// The controller has worked on another pod since: if it were to generate one for this pod again, it would have.
	s.untilControllerWorks(fmt.Sprintf("b-x-probe%d", attempt))
	got := byTenant.Load()
	s.deleteAll()
	return got
}

// untilControllerWorks waits until the tenant's controller has generated the claim of a new pod, whose name no syncer copies.
func (s *tenantObjects) untilControllerWorks(probe string) {
	s.Helper()
	s.pod(probe, "resourceClaimTemplateName: a100")
	s.eventually("the tenant's controller has generated a claim for "+probe, func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := s.tenant.Client.Get(ctx, key(probe), pod); err != nil {
			return err
		}
		if len(pod.Status.ResourceClaimStatuses) == 0 {
			return errors.New("the pod's status names none")
		}
		return nil
	})
}

// countGenerated counts the tenant's claims that are created from now on with names that begin so.
func (s *tenantObjects) countGenerated(prefix string) *atomic.Int32 {
	s.Helper()
	c, err := client.NewWithWatch(s.tenant.REST, client.Options{Scheme: s.tenant.Client.Scheme()})
	if err != nil {
		s.Fatal(err)
	}
	watcher, err := c.Watch(s.Context(), &resourcev1.ResourceClaimList{}, client.InNamespace(metav1.NamespaceDefault))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(watcher.Stop)
	count := &atomic.Int32{}
	go func() {
		for event := range watcher.ResultChan() {
			if claim, ok := event.Object.(*resourcev1.ResourceClaim); ok && event.Type == watch.Added && strings.HasPrefix(claim.Name, prefix) {
				count.Add(1)
			}
		}
	}()
	return count
}
