// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// TestResourceQuota: the chart's ResourceQuota is one that the API server enforces on the kinds that a provider writes.
func TestResourceQuota(t *testing.T) {
	if quotas := ofKind[corev1.ResourceQuota](t, render(t, Tenant), "ResourceQuota"); len(quotas) != 0 {
		t.Errorf("by default there is a quota: %v", quotas)
	}
	rendered := ofKind[corev1.ResourceQuota](t, render(t, Tenant,
		`--set-json=resourceQuota={"count/machines.karpenter.metal3.io":2,"count/secrets":"2","count/resourceclaims.resource.k8s.io":100}`),
		"ResourceQuota")
	if len(rendered) != 1 {
		t.Fatalf("there are %d quotas", len(rendered))
	}
	namespace := environment.Namespace(t)
	for _, quota := range rendered {
		quota.Namespace = namespace
		if err := environment.Client.Create(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
		// What kube-controller-manager would do.
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{}
		for name := range quota.Spec.Hard {
			quota.Status.Used[name] = resource.MustParse("0")
		}
		if err := environment.Client.Status().Update(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
	}
	machine := func(n int) error {
		machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("m-%d", n)}}
		machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "type"}
		return environment.Client.Create(t.Context(), machine)
	}
	secret := func(n int) error {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("s-%d", n)}}
		return environment.Client.Create(t.Context(), secret)
	}
	for kind, create := range map[string]func(int) error{"machines.karpenter.metal3.io": machine, "secrets": secret} {
		created := 0
		poll.Eventually(t, kind+" are denied", func(context.Context) error {
			switch err := create(created); {
			case err == nil:
				if created++; created > 2 {
					t.Fatalf("%d %s were created", created, kind)
				}
			case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota") && strings.Contains(err.Error(), "count/"+kind):
				return nil
			default:
				return err
			}
			return fmt.Errorf("%d were created", created)
		})
		if created != 2 {
			t.Errorf("%d %s were created, want 2", created, kind)
		}
	}
}
