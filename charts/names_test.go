// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// names of the labels that Kubernetes recommends, and their values where they are the same for all objects.
var recommended = map[string]string{
	"app.kubernetes.io/name": "", "app.kubernetes.io/instance": release, "app.kubernetes.io/component": "",
	"app.kubernetes.io/version": "", "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/part-of": "karpenter-metal3",
}

// TestLabels: every object and every pod has the recommended labels and those of additionalLabels.
func TestLabels(t *testing.T) {
	const own = "example.com/cluster"
	for name, tc := range releases {
		t.Run(name, func(t *testing.T) {
			check := func(what string, got map[string]string) {
				for key, value := range recommended {
					if got[key] == "" || value != "" && got[key] != value {
						t.Errorf("%s has %s: %q, want %q", what, key, got[key], value)
					}
				}
				if want := strings.HasSuffix(name, "-all"); want != (got[own] != "") {
					t.Errorf("%s has %s: %q", what, own, got[own])
				}
			}
			objects := render(t, tc.chart, tc.flags...)
			for _, object := range objects {
				check(object.GetKind()+" "+object.GetName(), object.GetLabels())
			}
			for name, deployment := range ofKind[appsv1.Deployment](t, objects, "Deployment") {
				check("a pod of "+name, deployment.Spec.Template.Labels)
			}
		})
	}
}

// TestSelectorsStay: the selector of a Deployment cannot be changed, so with the default names it is the one of all releases before,
// whatever labels are added.
func TestSelectorsStay(t *testing.T) {
	want := map[string]map[string]map[string]string{
		Management: {
			"karpenter-metal3-manager": {"app.kubernetes.io/name": Management, "app.kubernetes.io/instance": release,
				"app.kubernetes.io/component": "manager"},
			"karpenter-metal3-webhook": {"app.kubernetes.io/name": Management, "app.kubernetes.io/instance": release,
				"app.kubernetes.io/component": "webhook"},
		},
		Tenant: {
			"karpenter-metal3-provider-acme": {"app.kubernetes.io/name": Tenant, "app.kubernetes.io/instance": release,
				"app.kubernetes.io/component": "provider"},
		},
	}
	for chart, want := range want {
		for _, flags := range [][]string{nil, {"--set=additionalLabels.team=metal", "--set=podLabels.tier=one"}} {
			got := map[string]map[string]string{}
			for name, deployment := range ofKind[appsv1.Deployment](t, render(t, chart, flags...), "Deployment") {
				got[name] = deployment.Spec.Selector.MatchLabels
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %v: an installed Deployment could not be upgraded (-want +got):\n%s", chart, flags, diff)
			}
		}
	}
}

// TestNames: with other names, what refers to an object still finds it, and what is fixed keeps its name.
func TestNames(t *testing.T) {
	fixed := func(objects []*unstructured.Unstructured) []string {
		var names []string
		for _, object := range objects {
			switch object.GetKind() {
			case "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ValidatingAdmissionPolicy",
				"ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
				names = append(names, object.GetKind()+" "+object.GetName())
			}
		}
		slices.Sort(names)
		return names
	}
	monitored := []string{"--set=metrics.serviceMonitor.enabled=true"}
	certified := append([]string{"--set=webhook.certificates.source=certManager"}, monitored...)
	for name, tc := range map[string]struct {
		reason string
		chart  string
		base   []string
		flags  []string
		// want are the names of the Deployments and the accounts of their pods.
		want map[string]string
		// elsewhere are accounts that the release does not create.
		elsewhere []string
	}{
		"Default": {reason: "as all releases before", chart: Management, base: monitored,
			want: map[string]string{"karpenter-metal3-manager": "karpenter-metal3-manager", "karpenter-metal3-webhook": "karpenter-metal3-webhook"}},
		"NameOverride": {reason: "in place of the chart's name", chart: Management, base: certified, flags: []string{"--set=nameOverride=metal"},
			want: map[string]string{"metal-manager": "karpenter-metal3-manager", "metal-webhook": "karpenter-metal3-webhook"}},
		"FullnameOverride": {reason: "it wins", chart: Management, base: certified,
			flags: []string{"--set=nameOverride=metal", "--set=fullnameOverride=servers"},
			want:  map[string]string{"servers-manager": "karpenter-metal3-manager", "servers-webhook": "karpenter-metal3-webhook"}},
		"Accounts": {reason: "rights and policies follow", chart: Management, base: monitored,
			flags: []string{"--set=manager.serviceAccount.name=servers", "--set=webhook.serviceAccount.name=refuser"},
			want:  map[string]string{"karpenter-metal3-manager": "servers", "karpenter-metal3-webhook": "refuser"}},
		"AccountsOfYours": {reason: "rights and policies follow", chart: Management, base: monitored,
			flags: []string{"--set=manager.serviceAccount.create=false,manager.serviceAccount.name=servers",
				"--set=webhook.serviceAccount.create=false,webhook.serviceAccount.name=refuser"},
			want:      map[string]string{"karpenter-metal3-manager": "servers", "karpenter-metal3-webhook": "refuser"},
			elsewhere: []string{"refuser", "servers"}},
		"Provider": {reason: "as all releases before", chart: Tenant, base: monitored,
			want: map[string]string{"karpenter-metal3-provider-acme": "karpenter-metal3-provider-acme"}},
		"ProviderNameOverride": {reason: "the TenantCluster makes it unique in a namespace", chart: Tenant, base: monitored,
			flags: []string{"--set=nameOverride=metal"}, want: map[string]string{"metal-acme": "karpenter-metal3-provider-acme"}},
		"ProviderFullnameOverride": {reason: "it wins", chart: Tenant, base: monitored,
			flags: []string{"--set=nameOverride=metal", "--set=fullnameOverride=servers"},
			want:  map[string]string{"servers": "karpenter-metal3-provider-acme"}},
		"ProviderAccount": {reason: "rights follow", chart: Tenant, base: monitored,
			flags: []string{"--set=serviceAccount.name=karpenter-metal3-provider-own"},
			want:  map[string]string{"karpenter-metal3-provider-acme": "karpenter-metal3-provider-own"}},
		"ProviderAccountOfYours": {reason: "rights follow", chart: Tenant, base: monitored,
			flags:     []string{"--set=serviceAccount.create=false,serviceAccount.name=karpenter-metal3-provider-own"},
			want:      map[string]string{"karpenter-metal3-provider-acme": "karpenter-metal3-provider-own"},
			elsewhere: []string{"karpenter-metal3-provider-own"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, tc.chart, append(tc.base, tc.flags...)...)
			accounts := slices.Collect(maps.Keys(ofKind[corev1.ServiceAccount](t, objects, "ServiceAccount")))
			for _, account := range tc.elsewhere {
				if slices.Contains(accounts, account) {
					t.Errorf("%s: the release has the account %s", tc.reason, account)
				}
			}
			accounts = append(accounts, tc.elsewhere...)
			got, pods := map[string]string{}, map[string]labels.Set{}
			for name, deployment := range ofKind[appsv1.Deployment](t, objects, "Deployment") {
				got[name], pods[name] = deployment.Spec.Template.Spec.ServiceAccountName, deployment.Spec.Template.Labels
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: Deployments and their accounts (-want +got):\n%s", tc.reason, diff)
			}
			for deployment, account := range got {
				if !slices.Contains(accounts, account) {
					t.Errorf("the account %s of %s is not there", account, deployment)
				}
			}
			if diff := cmp.Diff(fixed(render(t, tc.chart, tc.base...)), fixed(objects)); diff != "" {
				t.Errorf("what has a fixed name has another one (-want +got):\n%s", diff)
			}
			bound := map[string]bool{}
			for _, object := range objects {
				if !strings.HasSuffix(object.GetKind(), "RoleBinding") || strings.HasPrefix(object.GetName(), "karpenter-metal3-manager-tenant-") {
					continue
				}
				subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
				if err != nil || len(subjects) != 1 {
					t.Fatalf("%s has the subjects %v, %v", object.GetName(), subjects, err)
				}
				subject, _ := subjects[0].(map[string]any)
				bound[fmt.Sprint(subject["name"])] = true
			}
			if diff := cmp.Diff(slices.Sorted(maps.Values(tc.want)), slices.Sorted(maps.Keys(bound))); diff != "" {
				t.Errorf("accounts with rights (-want +got):\n%s", diff)
			}
			selectPods(t, objects, pods)
			if tc.chart == Management {
				reachWebhook(t, objects)
				knowAccounts(t, objects, got)
			}
		})
	}
}

// selectPods: every selector of an object that is about pods selects those of one Deployment, and every ServiceMonitor one Service.
func selectPods(t *testing.T, objects []*unstructured.Unstructured, pods map[string]labels.Set) {
	t.Helper()
	selectors, services := map[string]map[string]string{}, ofKind[corev1.Service](t, objects, "Service")
	for name, service := range services {
		selectors["Service "+name] = service.Spec.Selector
	}
	for name, policy := range ofKind[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy") {
		selectors["NetworkPolicy "+name] = policy.Spec.PodSelector.MatchLabels
	}
	for name, budget := range ofKind[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget") {
		selectors["PodDisruptionBudget "+name] = budget.Spec.Selector.MatchLabels
	}
	for name, deployment := range ofKind[appsv1.Deployment](t, objects, "Deployment") {
		selectors["Deployment "+name] = deployment.Spec.Selector.MatchLabels
		for n, constraint := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
			selectors[fmt.Sprintf("constraint %d of %s", n, name)] = constraint.LabelSelector.MatchLabels
		}
	}
	selected := func(what string, selector map[string]string, all map[string]labels.Set) {
		found := 0
		for _, set := range all {
			if labels.SelectorFromSet(selector).Matches(set) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s selects %d: %v", what, found, selector)
		}
	}
	for what, selector := range selectors {
		selected(what, selector, pods)
	}
	all := map[string]labels.Set{}
	for name, service := range services {
		all[name] = service.Labels
	}
	monitors := 0
	for _, object := range objects {
		if object.GetKind() != "ServiceMonitor" {
			continue
		}
		monitors++
		selector, _, err := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
		if err != nil {
			t.Fatal(err)
		}
		selected("ServiceMonitor "+object.GetName(), selector, all)
	}
	if monitors != len(pods) {
		t.Errorf("%d ServiceMonitors for %d programs", monitors, len(pods))
	}
}

// reachWebhook: the API server asks a Service that is there, whose name is in the certificates.
func reachWebhook(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	service := ""
	for name := range ofKind[corev1.Service](t, objects, "Service") {
		if strings.HasSuffix(name, "-webhook") {
			service = name
		}
	}
	for _, configuration := range ofKind[admissionregistrationv1.ValidatingWebhookConfiguration](t, objects,
		"ValidatingWebhookConfiguration") {
		for _, webhook := range configuration.Webhooks {
			if webhook.ClientConfig.Service.Name != service {
				t.Errorf("%s is asked at %s, and there is %s", webhook.Name, webhook.ClientConfig.Service.Name, service)
			}
		}
	}
	deployments := ofKind[appsv1.Deployment](t, objects, "Deployment")
	deployment, manager := deployments[service], deployments[strings.TrimSuffix(service, "webhook")+"manager"]
	args, files := manager.Spec.Template.Spec.Containers[0].Args,
		slices.Contains(deployment.Spec.Template.Spec.Containers[0].Args, "--cert-rotation=false")
	if slices.Contains(args, "--webhook-cert-rotation") == files || slices.Contains(args, "--webhook-service="+service) == files {
		t.Errorf("the manager makes no certificates for the Service %s, or others do, too: %v", service, args)
	}
	issuers := map[string]bool{}
	for _, object := range objects {
		if object.GetKind() == "Issuer" {
			issuers[object.GetName()] = true
		}
	}
	for _, object := range objects {
		if object.GetKind() != "Certificate" {
			continue
		}
		issuer, _, err := unstructured.NestedString(object.Object, "spec", "issuerRef", "name")
		if err != nil || !issuers[issuer] {
			t.Errorf("the issuer %s of %s is not there, %v", issuer, object.GetName(), err)
		}
		names, found, err := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames")
		if err != nil || found && !slices.Contains(names, service+"."+namespace+".svc") {
			t.Errorf("the certificate %s is for %v, and the Service is %s, %v", object.GetName(), names, service, err)
		}
		secret, _, err := unstructured.NestedString(object.Object, "spec", "secretName")
		if err != nil || found && deployment.Spec.Template.Spec.Volumes[0].Secret.SecretName != secret {
			t.Errorf("the certificate is in %s, which is not mounted, %v", secret, err)
		}
	}
	for _, object := range objects {
		from := object.GetAnnotations()["cert-manager.io/inject-ca-from"]
		if from != "" && from != namespace+"/"+service {
			t.Errorf("the CA of %s is taken from %s", object.GetName(), from)
		}
	}
}

// knowAccounts: the policies and the webhook know the manager by the account that it has.
func knowAccounts(t *testing.T, objects []*unstructured.Unstructured, accounts map[string]string) {
	t.Helper()
	for deployment, account := range accounts {
		if strings.HasSuffix(deployment, "-webhook") {
			continue
		}
		user := fmt.Sprintf("'system:serviceaccount:%s:%s'", namespace, account)
		text := map[string]string{}
		for _, object := range objects {
			text[object.GetKind()+" "+object.GetName()] = fmt.Sprint(object.Object)
		}
		const known = "karpenter-metal3-manager"
		for _, what := range []string{"ValidatingAdmissionPolicy karpenter-metal3-machines", "ValidatingWebhookConfiguration karpenter-metal3"} {
			if !strings.Contains(text[what], user) {
				t.Errorf("%s does not know the manager %s", what, user)
			}
		}
		named := fmt.Sprintf("%s: '%s'", user, known)
		if account != known && !strings.Contains(text["ValidatingAdmissionPolicy karpenter-metal3-secrets"], named) {
			t.Errorf("the policy about Secrets does not hold for %s", user)
		}
	}
}

// TestServiceNames: the name of a TenantCluster may be longer than that of a Service, and have dots.
func TestServiceNames(t *testing.T) {
	for _, name := range []string{strings.Repeat("a", 63), "eu.acme"} {
		for service := range ofKind[corev1.Service](t, render(t, Tenant, "--set=tenantCluster="+name,
			"--set=metrics.serviceMonitor.enabled=true"), "Service") {
			if problems := validation.IsDNS1035Label(service); problems != nil {
				t.Errorf("%s: the API server refuses the Service %s: %v", name, service, problems)
			}
		}
	}
}
