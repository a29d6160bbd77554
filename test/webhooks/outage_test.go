// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// What docs/webhooks.md says of an outage: specs of our kinds cannot be written, and everything else can. When the
// webhook is back, it all goes on.
func TestKilled(t *testing.T) {
	webhook := asked(t)
	machine := parse[v1alpha1.Machine](t, "{metadata: {namespace: team-b, name: killed}, spec: {nodeTypeRef: {name: cpu}}}")
	create(t, machine)
	webhook.kill(t)

	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("%s without the webhook: got %v, want that it cannot be asked", what, err)
		}
	}
	admitted := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s without the webhook: %v", what, err)
		}
	}
	c, ctx := environment.Client, t.Context()
	refused("creating a Machine",
		c.Create(ctx, parse[v1alpha1.Machine](t, "{metadata: {namespace: team-b, name: other}, spec: {nodeTypeRef: {name: cpu}}}")))
	refused("changing a spec", patch(ctx, machine, `{"spec":{"bootstrap":{"dataSecretName":"s"}}}`))
	refused("changing a spec together with what is reported about the node",
		patch(ctx, machine, `{"spec":{"node":{"name":"n"},"bootstrap":{"dataSecretName":"s"}}}`))
	admitted("what is reported about the node", patch(ctx, machine, `{"spec":{"node":{"kubernetesVersion":"v1.36"}}}`))
	admitted("more about the node", patch(ctx, machine, `{"spec":{"node":{"name":"n"}}}`))
	refused("deleting an OSImage", c.Delete(ctx, parse[v1alpha1.OSImage](t, "{metadata: {name: ubuntu}}")))
	admitted("a finalizer", patch(ctx, machine, `{"metadata":{"finalizers":["karpenter.metal3.io/machine"],"annotations":{"a":"b"}}}`))
	machine.Status.Phase = v1alpha1.MachinePending
	admitted("a status", c.Status().Update(ctx, machine))
	admitted("deleting a Machine", c.Delete(ctx, machine))
	admitted("taking a finalizer away", patch(ctx, machine, `{"metadata":{"finalizers":null}}`))
	// The rules of the API itself hold all the same.
	if err := c.Create(ctx, parse[v1alpha1.Machine](t, "{metadata: {namespace: team-b, name: other}}")); err == nil ||
		!strings.Contains(err.Error(), "say either nodeTypeRef") {
		t.Errorf("a Machine that asks for nothing: %v", err)
	}
	namespace := &corev1.Namespace{}
	namespace.Name = "made-without-webhook"
	admitted("anything that is not ours", c.Create(ctx, namespace))

	// The way out is a label of the platform's.
	labels := &corev1.Namespace{}
	if err := c.Get(ctx, types.NamespacedName{Name: "made-without-webhook"}, labels); err != nil {
		t.Fatal(err)
	}
	admitted("labelling a namespace",
		c.Patch(ctx, labels, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"karpenter.metal3.io/admission":"ignore"}}}`))))
	free := parse[v1alpha1.Machine](t, "{metadata: {namespace: made-without-webhook, name: m}, spec: {nodeTypeRef: {name: cpu}}}")
	poll.Eventually(t, "the namespace is not asked about", func(ctx context.Context) error { return c.Create(ctx, free.DeepCopy()) })

	start(t, webhook.address).await(t)
	awaitAsked(t)
	other := parse[v1alpha1.Machine](t, "{metadata: {namespace: team-b, name: other}, spec: {nodeTypeRef: {name: cpu}}}")
	admitted("the same Machine, now", c.Create(ctx, other))
	// Other tests have the same fleet.
	admitted("deleting it", c.Delete(ctx, other))
	admitted("deleting that of the other namespace", c.Delete(ctx, free))
	poll.Eventually(t, "no Machine uses the type", func(ctx context.Context) error {
		return c.Delete(ctx, parse[v1alpha1.NodeType](t, "{metadata: {name: cpu}}"), client.DryRunAll)
	})
}

func patch(ctx context.Context, machine *v1alpha1.Machine, text string) error {
	return environment.Client.Patch(ctx, machine, client.RawPatch(types.MergePatchType, []byte(text)))
}
