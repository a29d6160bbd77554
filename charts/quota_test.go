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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// TestResourceQuota: by default there is a bound on each kind that a provider makes, and the API server enforces it. The release itself has
// no object of these kinds: Helm would create it right after the quota, and the API server refuses that until kube-controller-manager
// has counted.
func TestResourceQuota(t *testing.T) {
	objects, bounded := render(t, Tenant), map[string]bool{}
	for _, quota := range ofKind[corev1.ResourceQuota](t, objects, "ResourceQuota") {
		for name := range quota.Spec.Hard {
			bounded[strings.TrimPrefix(string(name), "count/")] = true
		}
	}
	for kind, counted := range map[string]string{"Secret": "secrets", "Machine": "machines.karpenter.metal3.io",
		"ResourceClaim": "resourceclaims.resource.k8s.io", "ResourceClaimTemplate": "resourceclaimtemplates.resource.k8s.io"} {
		if !bounded[counted] {
			t.Errorf("the number of %s has no bound by default", counted)
		}
		delete(bounded, counted)
		for _, object := range objects {
			if object.GetKind() == kind {
				t.Errorf("the release has %s %s, which its quota could refuse", kind, object.GetName())
			}
		}
	}
	if len(bounded) > 0 {
		t.Errorf("there is a bound on %v, and no check that the release has none of them", bounded)
	}
	if quotas := ofKind[corev1.ResourceQuota](t, render(t, Tenant, "--set=resourceQuota.enabled=false"), "ResourceQuota"); len(quotas) != 0 {
		t.Errorf("it is switched off and there: %v", quotas)
	}
	for _, quota := range ofKind[corev1.ResourceQuota](t, render(t, Tenant, "--set=resourceQuota.hard.count/secrets=null"), "ResourceQuota") {
		if _, there := quota.Spec.Hard["count/secrets"]; there || len(quota.Spec.Hard) == 0 {
			t.Errorf("one bound was taken away: %v", quota.Spec.Hard)
		}
	}
	rendered := ofKind[corev1.ResourceQuota](t, render(t, Tenant, `--set-json=resourceQuota.hard={"count/machines.karpenter.metal3.io":2,`+
		`"count/secrets":"2","count/resourceclaims.resource.k8s.io":100}`), "ResourceQuota")
	if len(rendered) != 1 {
		t.Fatalf("there are %d quotas", len(rendered))
	}
	namespace := environment.Namespace(t)
	for _, quota := range rendered {
		quota.Namespace = namespace
		env.CreateQuota(t, environment.Client, quota)
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
				created++ // what is created before the API server knows the quota is not counted
			case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota") && strings.Contains(err.Error(), "count/"+kind):
				return nil
			default:
				return err
			}
			return fmt.Errorf("%d were created", created)
		})
		for _, quota := range rendered {
			if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
				t.Fatal(err)
			}
			if used := quota.Status.Used[corev1.ResourceName("count/"+kind)]; used.Value() != 2 {
				t.Errorf("%s %s are counted, want 2", used.String(), kind)
			}
		}
	}
}
