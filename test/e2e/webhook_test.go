// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	sandboxes "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// A wrong pin is found out when it is written; what the example files hold has been admitted by now.
func TestWebhookDenies(t *testing.T) {
	w := enter(t, reference)
	pinned := func(server string) *v1alpha1.Machine {
		machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: "pinned"}}
		machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "h100-8x"}
		machine.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: server}
		return machine
	}
	for server, want := range map[string]string{
		"server-99": "there is no BareMetalHost of this name",
		"server-03": "server metal3-system/server-03 is not of this type",
		"server-01": "",
	} {
		err := w.management.Create(t.Context(), pinned(server), client.DryRunAll)
		if want == "" && err != nil {
			t.Errorf("pinned to %s: %v", server, err)
		}
		if want != "" && (!apierrors.IsInvalid(err) || containsAll(err.Error(), want) != "") {
			t.Errorf("pinned to %s: got %v, want that %s", server, err, want)
		}
	}
	const inUse = "in-use"
	w.newImage(t, inUse)
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: inUse}}
	provider.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: inUse}
	provider.Spec.Metal3.ClusterRef.Namespace = hostNamespace
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{{Name: inUse}}
	provider.Spec.Metal3.NodeTypes[0].Resources = resources("cpu", "1", "memory", "1Gi")
	provider.Spec.Metal3.NodeTypes[0].BareMetalHosts = &v1alpha1.HostSelection{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{inUse: "true"}},
	}
	w.make(t, w.management, provider)
	image := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: inUse}}
	w.eventually(t, "the webhook denies the deletion of OSImage in-use, and names what uses it", func(ctx context.Context) (string, error) {
		err := w.management.Delete(ctx, image, client.DryRunAll)
		if !apierrors.IsForbidden(err) || containsAll(err.Error(), "in use by NodeProvider "+inUse) != "" {
			return fmt.Sprintf("deleting it: %v", err), nil
		}
		return "", nil
	})
}

// The webhook is down while a tenant asks for a server. The NodeClaim waits for it, what is there goes on, and the pod gets
// its server through the same NodeClaim when the webhook is back.
func TestWebhookOutage(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	w.createPod(t, "before", resources("cpu", "4", gpu, "1"))
	w.untilRuns(t, "before")
	resume := w.stop(t, sandboxes.WebhookName)
	w.createPod(t, "meanwhile", resources("cpu", "8", gpu, "8"))
	waiting := ""
	w.eventually(t, "the NodeClaim of pod meanwhile says that the webhook does not answer", func(ctx context.Context) (string, error) {
		claims, err := w.nodeClaims(ctx)
		for _, claim := range claims {
			launched := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched)
			if launched.Reason == "ManagementClusterUnavailable" && containsAll(launched.Message, "failed calling webhook") == "" {
				waiting = claim.Name
				return "", err
			}
		}
		return fmt.Sprintf("none of %d NodeClaims says so", len(claims)), err
	})
	// A server can be given back without the webhook.
	for _, object := range []client.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: "before"}},
		&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: w.claimOf(t, "before", waiting)}},
	} {
		if err := w.tenant.Delete(t.Context(), object, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually(t, "the server of pod before is given back", func(ctx context.Context) (string, error) {
		machines, err := w.machines(ctx)
		if len(machines) > 0 {
			return fmt.Sprintf("%d Machines are left", len(machines)), err
		}
		return "", err
	})
	resume()
	w.untilRuns(t, "meanwhile")
	claims, err := w.nodeClaims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims {
		if claim.Name == waiting {
			return
		}
	}
	t.Errorf("NodeClaim %s, which waited, is gone", waiting)
}

// claimOf is the NodeClaim that is not the one that waits.
func (w *fixture) claimOf(t *testing.T, pod, waiting string) string {
	t.Helper()
	claims, err := w.nodeClaims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims {
		if claim.Name != waiting {
			return claim.Name
		}
	}
	t.Fatalf("there is no NodeClaim of pod %s", pod)
	return ""
}
