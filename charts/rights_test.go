// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	gocmp "cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/protection"
)

// rules are the rules of all roles, by kind and name.
func rules(t *testing.T, objects []*unstructured.Unstructured) map[string][]rbacv1.PolicyRule {
	t.Helper()
	found := map[string][]rbacv1.PolicyRule{}
	for name, role := range ofKind[rbacv1.Role](t, objects, "Role") {
		found["Role "+role.Namespace+"/"+name] = role.Rules
	}
	for name, role := range ofKind[rbacv1.ClusterRole](t, objects, "ClusterRole") {
		found["ClusterRole "+name] = role.Rules
	}
	return found
}

// documented are the rules in files of config/rbac, for a namespace, by kind and the name that rename makes of theirs.
func documented(t *testing.T, rename func(kind, name string) string, files ...string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	found := map[string][]rbacv1.PolicyRule{}
	for _, file := range files {
		content, err := rbac.Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer("{{ .Namespace }}", namespace, "namespace: default", "namespace: "+namespace).Replace(string(content))
		for key, rules := range rules(t, parse(t, text)) {
			kind, name, _ := strings.Cut(key, " ")
			if renamed := rename(kind, name); renamed != "" {
				found[kind+" "+renamed] = rules
			}
		}
	}
	return found
}

func unchanged(_, name string) string { return name }

// shared are the roles that all tenants share; their own are of the other chart.
func shared(kind, name string) string {
	if kind == "ClusterRole" {
		return name
	}
	return ""
}

func own(kind, name string) string {
	if kind == "Role" {
		return name + "-" + release
	}
	return ""
}

// TestRights: the charts have exactly the rights in config/rbac, with which all tests run.
func TestRights(t *testing.T) {
	providers := []string{"provider-management.yaml", "provider-dra-management.yaml"}
	allTenants := documented(t, shared, providers...)
	all := documented(t, unchanged, "manager.yaml", "manager-webhook.yaml", "webhook.yaml")
	maps.Copy(all, allTenants)
	withoutWebhook := documented(t, unchanged, "manager.yaml")
	maps.Copy(withoutWebhook, allTenants)
	plain := map[string][]rbacv1.PolicyRule{}
	for role, rules := range all {
		plain[role] = slices.DeleteFunc(slices.Clone(rules), func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, "tokenreviews") || slices.Contains(rule.Resources, "subjectaccessreviews")
		})
	}
	for _, some := range []map[string][]rbacv1.PolicyRule{all, withoutWebhook} {
		some["ClusterRole karpenter-metal3-metrics-reader"] = []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}
	}

	certManager := maps.Clone(all)
	maps.DeleteFunc(certManager, func(role string, _ []rbacv1.PolicyRule) bool {
		return role == "Role "+namespace+"/karpenter-metal3-webhook" || strings.HasSuffix(role, "karpenter-metal3-manager-webhook")
	})
	for name, tc := range map[string]struct {
		reason string
		chart  string
		flags  []string
		want   map[string][]rbacv1.PolicyRule
	}{
		"Management": {reason: "manager, webhook, and what tenants share", chart: Management, want: all},
		"WithoutWebhook": {reason: "a disabled webhook has no rights, and the manager none for it", chart: Management,
			flags: []string{"--set=webhook.enabled=false"},
			want:  withoutWebhook},
		"PlainMetrics": {reason: "nothing is reviewed", chart: Management, flags: []string{"--set=metrics.secure=false"}, want: plain},
		"CertManager": {reason: "it writes certificates and CA bundles", chart: Management,
			flags: []string{"--set=webhook.certificates.source=certManager"}, want: certManager},
		"Provider": {reason: "roles in the tenant's namespace only", chart: Tenant, want: documented(t, own, providers...)},
		"KarpenterAlone": {reason: "no claims, no pods", chart: Tenant, flags: []string{"--set=controllers={karpenter}"},
			want: documented(t, own, providers[0])},
		"DRAAlone": {reason: "no Machines, no Secrets", chart: Tenant, flags: []string{"--set=controllers={dra}"},
			want: documented(t, own, providers[1])},
		"Tenant": {reason: "in the tenant cluster", chart: Tenant, flags: []string{"--set=target=tenant"},
			want: documented(t, unchanged, "provider-tenant.yaml", "provider-dra-tenant.yaml")},
		"TenantDRAAlone": {reason: "in the tenant cluster", chart: Tenant, flags: []string{"--set=target=tenant", "--set=controllers={dra}"},
			want: documented(t, unchanged, "provider-dra-tenant.yaml")},
	} {
		t.Run(name, func(t *testing.T) {
			if len(tc.want) == 0 {
				t.Fatal("there is nothing to compare with")
			}
			got := rules(t, render(t, tc.chart, tc.flags...))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for role, rules := range got {
				for _, rule := range rules {
					if slices.Contains(slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups), "*") {
						t.Errorf("%s has a wildcard: %v", role, rule)
					}
				}
			}
		})
	}
}

// managers are the subjects of the one right of the management's chart that the tenants' charts bind for the manager.
var managers = map[string]rbacv1.Subject{
	"tenant-management":     {Kind: "ServiceAccount", Name: "karpenter-metal3-manager", Namespace: "karpenter-metal3"},
	"tenant-management-all": {Kind: "ServiceAccount", Name: "manager", Namespace: "platform"},
}

// TestOwnPolicies: with the TenantCluster named, the provider may update the policies that it writes and no others.
func TestOwnPolicies(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, tenant := range []types.NamespacedName{{Namespace: "team", Name: "acme"}, {Namespace: long, Name: "acme"}} {
		want := []string{protection.PoolsPolicy(tenant), protection.AllowedTypesPolicy(tenant), protection.RequirementsPolicy(tenant)}
		fixed, updated := []string{protection.DeviceClassesPolicy, protection.ResourceClaimsPolicy}, 0
		for role, rules := range rules(t, render(t, Tenant, "--set=target=tenant", "--set=access.tenantNamespace="+tenant.Namespace,
			"--set=tenantCluster="+tenant.Name)) {
			for _, rule := range rules {
				if !slices.Contains(rule.Resources, "validatingadmissionpolicies") || !slices.ContainsFunc(rule.Verbs, func(verb string) bool {
					return verb == "update" || verb == "delete" || verb == "patch"
				}) {
					continue
				}
				if updated++; !slices.Equal(rule.ResourceNames, want) && !slices.Equal(rule.ResourceNames, fixed) {
					t.Errorf("%s may %v the policies %v, want %v or %v", role, rule.Verbs, rule.ResourceNames, want, fixed)
				}
			}
		}
		if updated != 2 {
			t.Errorf("%d rules are for policies, want 2", updated)
		}
	}
}

// TestBindings: each binding is for a role of the charts and for the service account of its program only.
func TestBindings(t *testing.T) {
	roles := rules(t, render(t, Management)) // the tenant chart binds roles of this chart
	// In the releases with all values, accounts have names of their own, and one is not of the release.
	const elsewhere = "refuser"
	own := map[string]string{"servers": "karpenter-metal3-manager", elsewhere: "karpenter-metal3-webhook"}
	for name, tc := range releases {
		t.Run(name, func(t *testing.T) {
			objects := render(t, tc.chart, tc.flags...)
			mine := rules(t, objects)
			maps.Copy(mine, roles)
			accounts := ofKind[corev1.ServiceAccount](t, objects, "ServiceAccount")
			check := func(binding string, ref rbacv1.RoleRef, role string, subjects []rbacv1.Subject) {
				if _, found := mine[role]; !found {
					t.Errorf("%s is of %s, which is not there", binding, role)
				}
				if len(subjects) != 1 {
					t.Fatalf("%s has the subjects %v", binding, subjects)
				}
				subject := subjects[0]
				if name == "tenant-tenant-all" {
					if want := (rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "karpenter-metal3-provider"}); subject != want {
						t.Errorf("%s is for %v, want %v", binding, subject, want)
					}
					return
				}
				if want := managers[name]; want.Name != "" && ref.Name == "karpenter-metal3-manager-tenant" {
					if subject != want {
						t.Errorf("%s is for %v, want %v", binding, subject, want)
					}
					return
				}
				if accounts[subject.Name] == nil && subject.Name != elsewhere || subject.Kind != "ServiceAccount" ||
					subject.Namespace != namespace || subject.APIGroup != "" {
					t.Errorf("%s is for %v, which is not there", binding, subject)
				}
				if tc.chart == Management && !strings.HasPrefix(ref.Name, gocmp.Or(own[subject.Name], subject.Name)) {
					t.Errorf("%s gives %s the role %s", binding, subject.Name, ref.Name)
				}
			}
			found := 0
			for _, object := range objects {
				switch object.GetKind() {
				case "RoleBinding":
					binding := convert[rbacv1.RoleBinding](t, object)
					role := binding.RoleRef.Kind + " " + binding.RoleRef.Name
					if binding.RoleRef.Kind == "Role" {
						role = fmt.Sprintf("Role %s/%s", binding.Namespace, binding.RoleRef.Name)
					}
					check("RoleBinding "+binding.Namespace+"/"+binding.Name, binding.RoleRef, role, binding.Subjects)
				case "ClusterRoleBinding":
					binding := convert[rbacv1.ClusterRoleBinding](t, object)
					check("ClusterRoleBinding "+binding.Name, binding.RoleRef, "ClusterRole "+binding.RoleRef.Name, binding.Subjects)
				default:
					continue
				}
				found++
			}
			if found == 0 {
				t.Error("no role has any rights")
			}
		})
	}
}

// TestHostNamespaces: Secrets can be written only in manager.hostNamespaces, and by default in Metal3's own.
func TestHostNamespaces(t *testing.T) {
	for flag, want := range map[string][]string{"manager.hostNamespaces={a,b}": {"a", "b"}, "manager.replicas=1": {"metal3-system"}} {
		objects := render(t, Management, "--set="+flag)
		everywhere := map[string]bool{}
		for _, binding := range ofKind[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding") {
			everywhere[binding.RoleRef.Name] = true
		}
		for name, role := range ofKind[rbacv1.ClusterRole](t, objects, "ClusterRole") {
			if everywhere[name] && slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Contains(rule.Resources, "secrets")
			}) {
				t.Errorf("%s: %s gives Secrets everywhere", flag, name)
			}
		}
		var in []string
		for _, object := range objects {
			if object.GetKind() == "RoleBinding" && object.GetName() == "karpenter-metal3-manager-hosts" {
				in = append(in, object.GetNamespace())
			}
		}
		if diff := cmp.Diff(want, in); diff != "" {
			t.Errorf("%s: namespaces (-want +got):\n%s", flag, diff)
		}
	}
	_, problems, err := helm(t, "template", release, Management, "--set-json=manager.hostNamespaces=[]")
	if err == nil || !strings.Contains(problems, "manager.hostNamespaces is empty") {
		t.Errorf("an empty list, which was the default, is accepted: %v: %s", err, problems)
	}
}

// TestAdmission: the chart's webhook configurations are those of Management and Pods, and are installed by default.
func TestAdmission(t *testing.T) {
	options := webhook.Options{
		Service: &admissionregistrationv1.ServiceReference{
			Namespace: namespace, Name: "karpenter-metal3-webhook", Port: ptr.To[int32](443),
		},
		Managers: []string{"system:serviceaccount:" + namespace + ":karpenter-metal3-manager"},
	}
	want, err := webhook.Management(options)
	if err != nil {
		t.Fatal(err)
	}
	wantMutating, err := webhook.Mutating(options)
	if err != nil {
		t.Fatal(err)
	}
	objects := render(t, Management)
	got := ofKind[admissionregistrationv1.ValidatingWebhookConfiguration](t, objects,
		"ValidatingWebhookConfiguration")[webhook.ConfigurationName]
	if got == nil {
		t.Fatal("there is no configuration")
	}
	if diff := cmp.Diff(want.Webhooks, got.Webhooks); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
	const mutating = "MutatingWebhookConfiguration"
	changes := ofKind[admissionregistrationv1.MutatingWebhookConfiguration](t, objects, mutating)[webhook.ConfigurationName]
	if changes == nil {
		t.Fatal("there is no configuration of what is changed")
	}
	if diff := cmp.Diff(wantMutating.Webhooks, changes.Webhooks); diff != "" {
		t.Errorf("webhooks that change (-want +got):\n%s", diff)
	}
	if service := ofKind[corev1.Service](t, objects, "Service")["karpenter-metal3-webhook"]; service == nil ||
		service.Spec.Ports[0].Port != 443 {
		t.Errorf("the API server asks a Service that is not there: %v", service)
	}
	if len(got.Annotations)+len(changes.Annotations) > 0 {
		t.Errorf("another program would write the CA: %v, %v", got.Annotations, changes.Annotations)
	}
	certManager := render(t, Management, "--set=webhook.certificates.source=certManager")
	injected := 0
	for _, object := range certManager {
		if !strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
			continue
		}
		injected++
		if object.GetAnnotations()["cert-manager.io/inject-ca-from"] != namespace+"/karpenter-metal3-webhook" {
			t.Errorf("no program writes the CA of %s: %v", object.GetKind(), object.GetAnnotations())
		}
	}
	if injected != 2 {
		t.Errorf("there are %d configurations with cert-manager", injected)
	}
	for _, object := range render(t, Management, "--set=webhook.enabled=false") {
		if strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
			t.Error("without the webhook's pods, the API server would deny all requests")
		}
	}
}
