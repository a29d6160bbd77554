// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// If the webhook fails, only writes to the specs of our own kinds are affected, for at most five seconds.
func TestManagementRules(t *testing.T) {
	configuration, err := Management(Options{URL: "https://127.0.0.1:9443", CABundle: []byte("x"), Managers: []string{"a", `it's \ me`}})
	if err != nil {
		t.Fatal(err)
	}
	if configuration.Name != ConfigurationName || len(configuration.Webhooks) != 7 {
		t.Fatalf("%s has %d webhooks", configuration.Name, len(configuration.Webhooks))
	}
	for _, one := range configuration.Webhooks {
		if len(one.Rules) != 1 || !slices.Equal(one.Rules[0].APIGroups, []string{v1alpha1.Group}) || len(one.Rules[0].Resources) != 1 ||
			strings.ContainsAny(one.Rules[0].Resources[0], "*/") {
			t.Errorf("%s is about more than one of our kinds, or a subresource: %+v", one.Name, one.Rules)
			continue
		}
		resource := one.Rules[0].Resources[0]
		if *one.FailurePolicy != admissionregistrationv1.Fail || *one.TimeoutSeconds != 5 ||
			*one.SideEffects != admissionregistrationv1.SideEffectClassNone {
			t.Errorf("%s: failure policy %s, %d s, side effects %s", one.Name, *one.FailurePolicy, *one.TimeoutSeconds, *one.SideEffects)
		}
		if one.MatchConditions[0].Expression != "request.operation != 'UPDATE' || object.spec != oldObject.spec" {
			t.Errorf("%s is asked about more than specs: %s", one.Name, one.MatchConditions[0].Expression)
		}
		selector := one.ObjectSelector
		if *one.Rules[0].Scope == admissionregistrationv1.NamespacedScope {
			selector = one.NamespaceSelector
		}
		if selector == nil || len(selector.MatchExpressions) != 1 || selector.MatchExpressions[0].Key != "karpenter.metal3.io/admission" {
			t.Errorf("%s has no way out: %v", one.Name, selector)
		}
		if want := "https://127.0.0.1:9443/validate/" + resource; one.ClientConfig.URL == nil || *one.ClientConfig.URL != want ||
			string(one.ClientConfig.CABundle) != "x" {
			t.Errorf("%s is at %+v, want %s", one.Name, one.ClientConfig, want)
		}
		if resource == "nodetypes" && !strings.Contains(one.MatchConditions[1].Expression, `['a', 'it\'s \\ me']`) {
			t.Errorf("%s does not know the managers: %s", one.Name, one.MatchConditions[1].Expression)
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
