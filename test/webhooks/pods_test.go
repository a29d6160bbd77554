// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// asVCluster is a client with the name and the rights of the service account of a tenant's vCluster.
func asVCluster(t *testing.T, tenant string) client.Client {
	t.Helper()
	name := metav1.ObjectMeta{Namespace: tenant, Name: "vc-" + tenant}
	environment.Give(t,
		&rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"},
			Verbs: []string{"create", "delete", "patch", "get"}}}},
		&rbacv1.RoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: name.Name}}})
	config := rest.CopyConfig(environment.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + tenant + ":" + name.Name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + tenant, "system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: environment.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What docs/webhooks.md says of the pods that a tenant's vCluster creates: with the webhook, without it, with one that does not
// answer, and when it is back. Pods without claims, and those of others, never wait for it.
func TestPodsOfTenants(t *testing.T) {
	hook := asked(t)
	vcluster, ctx := asVCluster(t, "research"), t.Context()
	made := func(what string, pod *corev1.Pod) {
		t.Helper()
		if err := vcluster.Create(ctx, pod); err != nil {
			t.Fatalf("%s, %v", what, err)
		}
		t.Cleanup(func() {
			if err := environment.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
				t.Error(err)
			}
		})
	}
	refused := func(what, says string, pod *corev1.Pod) {
		t.Helper()
		if err := vcluster.Create(ctx, pod); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", what, err, says)
		}
	}

	train := hostPod(t, "research", "train", "two-gpus", "template:one-gpu")
	want := train.DeepCopy()
	*want.Spec.ResourceClaims[0].ResourceClaimName, *want.Spec.ResourceClaims[1].ResourceClaimTemplateName = "vafbxvymjp0b01", "v54qxjtxdazeqo"
	made("a pod with claims", train)
	for _, diff := range []string{
		cmp.Diff(want.Spec.ResourceClaims, train.Spec.ResourceClaims),
		cmp.Diff(want.Spec.Containers[0].Resources, train.Spec.Containers[0].Resources),
		cmp.Diff(want.Labels, train.Labels), cmp.Diff(want.Annotations, train.Annotations, cmpopts.EquateEmpty()),
		cmp.Diff(want.Spec.SchedulingGates, train.Spec.SchedulingGates),
	} {
		if diff != "" {
			t.Errorf("vCluster would find something else than its pod and the names (-want +got):\n%s", diff)
		}
	}
	forged := hostPod(t, "research", "forged", "secret-gpu")
	forged.Annotations["vcluster.loft.sh/object-namespace"] = "ml"
	refused("a forged origin", `admission webhook "pods.karpenter.metal3.io" denied the request: `+
		`pods "forged-x-default-x-research" is forbidden: it has the label vcluster.loft.sh/managed-by, `+
		`and not the name and the annotations`, forged)
	refused("the host name of another namespace's claim", `admission webhook "pods.karpenter.metal3.io" denied the request: `+
		`Pod "thief-x-default-x-research" is invalid: spec.resourceClaims[0].resourceClaimName: Invalid value: `+
		`"secret-gpu-x-ml-x-research": the name on the host is made of`, hostPod(t, "research", "thief", "secret-gpu-x-ml-x-research"))

	withoutWebhook := func(without, says string) {
		t.Helper()
		refused("a pod with claims "+without, says, hostPod(t, "research", "other", "two-gpus"))
		made("a pod without claims "+without, hostPod(t, "research", "plain-"+strings.ReplaceAll(without, " ", "-")))
		own := hostPod(t, "research", "own-"+strings.ReplaceAll(without, " ", "-"), "two-gpus")
		own.Labels = nil
		made("a pod of the platform, with claims, "+without, own)
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"`+strings.ReplaceAll(without, " ", "-")+`"}}}`))
		if err := vcluster.Patch(ctx, train, label); err != nil {
			t.Errorf("a label of a pod with claims %s: %v", without, err)
		}
	}
	hook.kill(t)
	withoutWebhook("while the webhook is down", `failed calling webhook "pods.karpenter.metal3.io"`)
	back := start(t, hook.address).await(t)
	awaitAsked(t)

	// It takes connections and does not answer.
	short := &admissionregistrationv1.MutatingWebhookConfiguration{}
	short.Name = webhook.ConfigurationName
	if err := environment.Client.Patch(ctx, short, client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":5}]`))); err != nil {
		t.Fatal(err)
	}
	if err := back.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// A dry run: the process may answer for a moment after the signal.
	poll.Eventually(t, "the API server waits for 5 s", func(ctx context.Context) error {
		err := vcluster.Create(ctx, hostPod(t, "research", "other", "two-gpus"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "?timeout=5s") {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
	withoutWebhook("while the webhook hangs", `context deadline exceeded`)

	// The way out is a label of the platform's on the namespace. The tenant's word is then a name on the host.
	label := func(value string) {
		t.Helper()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "research"}}
		if err := environment.Client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"karpenter.metal3.io/admission":`+value+`}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	label(`"ignore"`)
	out := hostPod(t, "research", "ignored", "two-gpus")
	poll.Eventually(t, "the namespace is not asked about", func(ctx context.Context) error { return vcluster.Create(ctx, out) })
	made("a second one", hostPod(t, "research", "ignored-too", "two-gpus"))
	if name := *out.Spec.ResourceClaims[0].ResourceClaimName; name != "two-gpus" {
		t.Errorf("its claim is %s", name)
	}
	label("null")

	if err := back.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	again := hostPod(t, "research", "other", "two-gpus")
	poll.Eventually(t, "vCluster's next try succeeds, and is translated", func(ctx context.Context) error {
		pod := again.DeepCopy()
		if err := vcluster.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if name := *pod.Spec.ResourceClaims[0].ResourceClaimName; name != "vafbxvymjp0b01" {
			return errors.New("it has " + name)
		}
		return nil
	})
	if err := environment.Client.Delete(ctx, out, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
	if err := vcluster.Create(ctx, hostPod(t, "inference", "elsewhere")); !apierrors.IsForbidden(err) {
		t.Errorf("the rights of vCluster reach other namespaces: %v", err)
	}
}

// TestClaimOfAnotherNamespace: where vCluster translates names, the webhook knows from its cache whose claim a name is
// on the host. A claim that is not there may become one of the pod's own.
func TestClaimOfAnotherNamespace(t *testing.T) {
	asked(t)
	origin := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "gpu", UID: "u"}}
	short, err := names.HostNameShort(origin.Name, origin.Namespace, "inference")
	if err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "inference", Name: short}
	metadata := names.HostMetadata(origin, names.ClaimKind, key, "inference", names.Metadata{})
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		Labels: metadata.Labels, Annotations: metadata.Annotations}}
	vcluster := asVCluster(t, "inference")
	if err := vcluster.Create(t.Context(), hostPod(t, "inference", "early", short), client.DryRunAll); err != nil {
		t.Errorf("there is no such claim yet: %v", err)
	}
	create(t, claim)
	t.Cleanup(func() {
		if err := environment.Client.Delete(context.Background(), claim); err != nil {
			t.Error(err)
		}
	})
	poll.Eventually(t, "a pod of another namespace may not have the claim", func(ctx context.Context) error {
		err := vcluster.Create(ctx, hostPod(t, "inference", "thief", short), client.DryRunAll)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is not translated") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}
