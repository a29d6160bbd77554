// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestOpens: what counts as free for a tenant in the domains that it holds is what it could have there as the type that
// it asks for.
func TestOpens(t *testing.T) {
	const key = v1alpha1.NVLinkDomainLabelKey
	inventory := NewInventory(Options{})
	selector := labels.SelectorFromSet(labels.Set{"model": "gpu"})
	inventory.SetType(Profile{Name: "gpu", Namespace: "metal3", Selector: selector, Exclusive: []string{key}})
	add := func(n int, domain, model string, change func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
		host := env.AvailableHost("metal3", fmt.Sprint("server-", n), labels.Set{"model": model, key: domain})
		host.Annotations = map[string]string{}
		change(host)
		inventory.SetHost(host)
		return host
	}
	plain := func(*bmov1alpha1.BareMetalHost) {}
	claimed := func(namespace string) func(*bmov1alpha1.BareMetalHost) {
		return func(host *bmov1alpha1.BareMetalHost) {
			host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Machine", APIVersion: v1alpha1.GroupVersion.String(),
				Namespace: namespace, Name: "m"}
		}
	}
	add(1, "n0", "gpu", claimed("acme"))
	add(2, "n0", "gpu", plain)
	add(3, "n0", "cpu", plain)                                                                     // of another type
	add(4, "n0", "gpu", func(host *bmov1alpha1.BareMetalHost) { host.Status.ErrorType = "power" }) // not to be had
	add(5, "n1", "gpu", func(host *bmov1alpha1.BareMetalHost) {                                    // not cleaned: for acme alone
		host.Annotations[v1alpha1.LastTenantAnnotationKey] = "acme"
	})
	add(6, "n2", "gpu", claimed("globex"))
	add(7, "n2", "gpu", plain)
	chosen := add(8, "n3", "gpu", plain)
	for tenant, want := range map[string]quota.Opening{
		"acme":    {Label: key, Value: "n3", Held: []string{"n0", "n1"}, Free: 2},
		"globex":  {Label: key, Value: "n3", Held: []string{"n2"}, Free: 1},
		"initech": {Label: key, Value: "n3"},
	} {
		choice := Choice{Tenant: tenant, NodeType: "gpu",
			Host: v1alpha1.HostReference{Namespace: "metal3", Name: chosen.Name, UID: chosen.UID}}
		if diff := cmp.Diff([]quota.Opening{want}, inventory.Opens(choice)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tenant, diff)
		}
	}
}
