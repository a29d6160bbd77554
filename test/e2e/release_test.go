// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// A NodeClaim is deleted: the Node and the Machine go, the server is deprovisioned and free, its secrets are gone.
func TestReleaseDeletedNodeClaim(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	w.createPod(t, "one-gpu", resources("cpu", "4", gpu, "1"))
	w.untilRuns(t, "one-gpu")
	host := w.machineOf(t, "one-gpu").Status.HostRef.Name

	secrets := &corev1.SecretList{}
	if err := w.management.List(t.Context(), secrets, client.InNamespace(hostNamespace),
		client.HasLabels{v1alpha1.MachineLabelKey}); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(secrets.Items, func(s corev1.Secret) bool { return w.ownsObject(&s) }) {
		t.Error("the server has no user data secret; the check that it is gone later would prove nothing")
	}
	if err := w.deleteNodeClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: "one-gpu"}}
	// The drain of the node may have evicted it before.
	if err := client.IgnoreNotFound(w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0))); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "nothing of pod one-gpu's server is left", w.leftOver)
	if claimed := w.claimedHosts(t.Context(), t); claimed[host] != "" {
		t.Errorf("server %s is still claimed by %s", host, claimed[host])
	}
}

// Once a Node has joined, no secret holds a token to join with.
func TestReleaseRevokesJoinToken(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	w.createPod(t, "one-gpu", resources("cpu", "4", gpu, "1"))
	w.untilRuns(t, "one-gpu")
	w.eventually(t, "the join token of pod one-gpu's server is gone from both clusters", func(ctx context.Context) (string, error) {
		tokens := &corev1.SecretList{}
		if err := w.tenant.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem),
			client.HasLabels{v1alpha1.MachineUIDLabelKey}); err != nil {
			return "", err
		}
		for _, token := range tokens.Items {
			if w.ownsObject(&token) {
				return "bootstrap token " + token.Name + " is still there", nil
			}
		}
		secrets := &corev1.SecretList{}
		if err := w.management.List(ctx, secrets, client.HasLabels{v1alpha1.MachineLabelKey}); err != nil {
			return "", err
		}
		for _, secret := range secrets.Items {
			if w.ownsObject(&secret) && strings.Contains(string(secret.Data[v1alpha1.UserDataSecretKey]), "token:") {
				return "secret " + secret.Namespace + "/" + secret.Name + " still holds a token", nil
			}
		}
		return "", nil
	})
}
