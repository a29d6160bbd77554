// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodeprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// TestFabricsOnAPIServer: the NodeType says which domains tenants hold, and the NodeProvider that several do, without their names.
func TestFabricsOnAPIServer(t *testing.T) {
	f := newFleet(t, nil)
	run(t, &environment, f.inventory, f.events, func(mgr manager.Manager) registrar {
		return nodeprovider.NewController(mgr.GetClient(), mgr.GetAPIReader(), f.inventory, f.events, clock.RealClock{})
	})
	domains := []string{"n1", "n1", "n2"}
	for n, domain := range domains {
		environment.CreateHost(f, env.AvailableHost(f.namespace, fmt.Sprintf("server-%02d", n),
			map[string]string{"gpu": "h100", "nvlink-domain": domain}))
	}
	consume := func(n int, namespace string) {
		t.Helper()
		host := env.AvailableHost(f.namespace, fmt.Sprintf("server-%02d", n), nil)
		if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
			t.Fatal(err)
		}
		if host.Spec.ConsumerRef = nil; namespace != "" {
			host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine",
				Namespace: namespace, Name: "m"}
		}
		if err := environment.Client.Update(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	// eventually waits for the domains that are held, and the status and the message of the condition.
	eventually := func(what string, held []string, status, message string) {
		t.Helper()
		poll.Eventually(t, what, func(ctx context.Context) error {
			if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.nodeType), f.nodeType); err != nil {
				return err
			}
			if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.provider), f.provider); err != nil {
				return err
			}
			var got []string
			for _, domain := range f.nodeType.Status.Domains {
				for _, key := range domain.Held {
					got = append(got, fmt.Sprintf("%s %s: %d of %d", key, domain.Labels[key], domain.Available, domain.Total))
				}
			}
			separate := conditions.Find(f.provider.Status.Conditions, v1alpha1.ConditionFabricsSeparate)
			if diff := cmp.Diff([]any{held, status, message}, []any{got, string(separate.Status), separate.Message}); diff != "" {
				return fmt.Errorf("(-want +got):\n%s", diff)
			}
			return nil
		})
	}
	consume(0, "blue")
	eventually("a domain is held", []string{"nvlink-domain n1: 1 of 2"}, "", "")
	consume(1, "red") // by hand
	eventually("it is shared", []string{"nvlink-domain n1: 0 of 2"}, "False",
		"nvlink-domain n1 has servers of 2 namespaces: nobody gets another server there before all but one have given theirs back")
	consume(0, "")
	eventually("it is not any more", []string{"nvlink-domain n1: 1 of 2"}, "True",
		"no domain whose fabric must not be shared has servers of several namespaces")
	for {
		select {
		case event := <-f.events.Events:
			if strings.Contains(event, v1alpha1.ReasonFabricShared) {
				if !strings.HasSuffix(event, "They are nvlink-domain n1: blue, red") {
					t.Errorf("the event does not name the namespaces: %s", event)
				}
				return
			}
		default:
			t.Fatal("there is no event that says who shares the domain")
		}
	}
}
