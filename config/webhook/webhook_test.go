// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
)

// If the webhook fails, only writes to the specs of our own kinds are affected, for at most five seconds.
func TestManagementRules(t *testing.T) {
	configuration, err := Management(Options{URL: "https://127.0.0.1:9443", CABundle: []byte("x"), Managers: []string{"a", `it's \ me`}})
	if err != nil {
		t.Fatal(err)
	}
	if configuration.Name != ConfigurationName || len(configuration.Webhooks) != 9 {
		t.Fatalf("%s has %d webhooks", configuration.Name, len(configuration.Webhooks))
	}
	for _, webhook := range configuration.Webhooks {
		if webhook.Name == "writes.karpenter.metal3.io" { // test/webhooks tries it
			if *webhook.FailurePolicy != admissionregistrationv1.Ignore || *webhook.TimeoutSeconds != 1 || webhook.NamespaceSelector == nil ||
				!strings.Contains(webhook.MatchConditions[0].Expression, "karpenter-metal3-provider") {
				t.Errorf("%s would hold up what it is not about, or that servers join: %+v", webhook.Name, webhook)
			}
			for _, rule := range webhook.Rules {
				if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "*") {
					t.Errorf("%s shows the webhook join tokens", webhook.Name)
				}
			}
			continue
		}
		if len(webhook.Rules) != 1 || !slices.Equal(webhook.Rules[0].APIGroups, []string{v1alpha1.Group}) ||
			len(webhook.Rules[0].Resources) != 1 || strings.ContainsAny(webhook.Rules[0].Resources[0], "*/") {
			t.Errorf("%s is about more than one of our kinds, or a subresource: %+v", webhook.Name, webhook.Rules)
			continue
		}
		resource := webhook.Rules[0].Resources[0]
		if *webhook.FailurePolicy != admissionregistrationv1.Fail || *webhook.TimeoutSeconds != 5 ||
			*webhook.SideEffects != admissionregistrationv1.SideEffectClassNone {
			t.Errorf("%s: failure policy %s, %d s, side effects %s", webhook.Name, *webhook.FailurePolicy, *webhook.TimeoutSeconds,
				*webhook.SideEffects)
		}
		changes := "request.operation != 'UPDATE' || object.spec != oldObject.spec"
		if resource == "machines" { // test/webhooks tries it
			changes = "request.operation != 'UPDATE' || object.spec.exists(f, f != 'node' && !(f in oldObject.spec && " +
				"object.spec[f] == oldObject.spec[f])) || oldObject.spec.exists(f, f != 'node' && !(f in object.spec))"
		}
		if webhook.MatchConditions[0].Expression != changes {
			t.Errorf("%s is asked about more than specs: %s", webhook.Name, webhook.MatchConditions[0].Expression)
		}
		selector := webhook.ObjectSelector
		if *webhook.Rules[0].Scope == admissionregistrationv1.NamespacedScope {
			selector = webhook.NamespaceSelector
		}
		if selector == nil || len(selector.MatchExpressions) != 1 || selector.MatchExpressions[0].Key != "karpenter.metal3.io/admission" {
			t.Errorf("%s has no way out: %v", webhook.Name, selector)
		}
		if want := "https://127.0.0.1:9443/validate/" + resource; webhook.ClientConfig.URL == nil || *webhook.ClientConfig.URL != want ||
			string(webhook.ClientConfig.CABundle) != "x" {
			t.Errorf("%s is at %+v, want %s", webhook.Name, webhook.ClientConfig, want)
		}
		if resource == "nodetypes" && !strings.Contains(webhook.MatchConditions[1].Expression, `['a', 'it\'s \\ me']`) {
			t.Errorf("%s does not know the managers: %s", webhook.Name, webhook.MatchConditions[1].Expression)
		}
	}
}

func TestManagementServiceReference(t *testing.T) {
	configuration, err := Management(Options{Service: &admissionregistrationv1.ServiceReference{Namespace: "n", Name: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	service := configuration.Webhooks[0].ClientConfig.Service
	if service == nil || service.Namespace != "n" || service.Name != "s" || *service.Path != "/validate/nodeproviders" {
		t.Errorf("it is at %+v", configuration.Webhooks[0].ClientConfig)
	}
	if !strings.Contains(configuration.Webhooks[1].MatchConditions[1].Expression, ManagerUser) {
		t.Errorf("the manager is not known: %v", configuration.Webhooks[1].MatchConditions)
	}
	if _, err := Management(Options{}); err == nil {
		t.Error("the webhook is nowhere")
	}
}

// If the webhook fails, the only pods that are not created are those that a vCluster makes for a tenant, with claims. It is asked about
// our kinds only where a field is not of the type that the schema has, and the schema refuses these if it fails.
func TestMutatingRules(t *testing.T) {
	configuration, err := Mutating(Options{URL: "https://127.0.0.1:9443", CABundle: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	fail, equivalent := admissionregistrationv1.Fail, admissionregistrationv1.Equivalent
	ignore, all := admissionregistrationv1.Ignore, admissionregistrationv1.AllScopes
	never := admissionregistrationv1.NeverReinvocationPolicy
	want := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "pods.karpenter.metal3.io",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:9443/mutate/pods"),
				CABundle: []byte("x")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
					Scope: ptr.To(admissionregistrationv1.NamespacedScope)},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "karpenter.metal3.io/admission", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"ignore"}}}},
			ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: names.MarkerLabel, Operator: metav1.LabelSelectorOpExists}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "devices",
				Expression: "has(object.spec.resourceClaims) && size(object.spec.resourceClaims) > 0 || has(object.spec.resources) || " +
					"[has(object.spec.containers) ? object.spec.containers : [], has(object.spec.initContainers) ? object.spec.initContainers : [], " +
					"has(object.spec.ephemeralContainers) ? object.spec.ephemeralContainers : []].exists(containers, containers.exists(c, " +
					"has(c.resources) && (has(c.resources.limits) && c.resources.limits.exists(r, r.contains('/')) || " +
					"has(c.resources.requests) && c.resources.requests.exists(r, r.contains('/')))))"}},
			FailurePolicy: &fail, MatchPolicy: &equivalent, ReinvocationPolicy: &never, TimeoutSeconds: ptr.To[int32](5),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}, {
			Name: "spelling.karpenter.metal3.io",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:9443/mutate/spelling"),
				CABundle: []byte("x")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{v1alpha1.Group}, APIVersions: []string{"v1alpha1"},
					Resources: []string{"tenantclusters", "nodetypes"}, Scope: &all},
			}},
			// What it does is in test/webhooks.
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "other-form",
				Expression: configuration.Webhooks[1].MatchConditions[0].Expression}},
			FailurePolicy: &ignore, MatchPolicy: &equivalent, ReinvocationPolicy: &never, TimeoutSeconds: ptr.To[int32](5),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if diff := cmp.Diff(want, configuration); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := Both(Options{}); err == nil {
		t.Error("the webhook is nowhere")
	}
}
