// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

var update = flag.Bool("update", false, "write the golden files")

// expect checks a result: its level, and parts of its message and remedy.
func expect(t *testing.T, reason string, got Result, level Level, parts ...string) {
	t.Helper()
	if got.Level != level {
		t.Errorf("%s: it is %s, want %s: %+v", reason, got.Level, level, got)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message+"\n"+got.Remedy, part) {
			t.Errorf("%s: %+v does not say %q", reason, got, part)
		}
	}
	if (level == Fail) != (got.Remedy != "") && level != Warn {
		t.Errorf("%s: %s with the remedy %q", reason, level, got.Remedy)
	}
}

func TestKubernetesVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, version string
		want            Level
	}{
		"Tested":       {"the newest that the tests run with", "v1.37.2", OK},
		"Minimum":      {"what is asked for", "v1.30.0", OK},
		"Distribution": {"k3s and others add to it", "v1.33.1+k3s1", OK},
		"Old":          {"it has no ValidatingAdmissionPolicies", "v1.29.9", Fail},
		"New":          {"it may work", "v1.38.0-alpha.1", Warn},
		"None":         {"it is no version", "unknown", Skip},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, tc.reason, kubernetesVersion(tc.version), tc.want, strings.TrimPrefix(tc.version, "v"))
		})
	}
}

func TestDefinition(t *testing.T) {
	kind := v1alpha1.GroupVersion.WithKind("NodeType")
	needed := sets.New("spec", "spec.zone")
	for name, tc := range map[string]struct {
		reason string
		served map[string]sets.Set[string]
		err    error
		exact  bool
		want   Level
		says   string
	}{
		"Exact":       {reason: "they agree", served: map[string]sets.Set[string]{"NodeType": needed}, exact: true, want: OK},
		"None":        {reason: "nothing is served", served: nil, want: Fail, says: "is not installed"},
		"Unpublished": {reason: "it is not known", served: map[string]sets.Set[string]{"NodeType": nil}, want: Skip, says: "not published"},
		"Old": {reason: "what is written there is dropped", served: map[string]sets.Set[string]{"NodeType": sets.New("spec")}, want: Fail,
			says: "lacks spec.zone"},
		"New": {reason: "this program would ignore it", served: map[string]sets.Set[string]{"NodeType": sets.New("spec", "spec.zone",
			"spec.new")},
			exact: true, want: Warn, says: "also has spec.new"},
		"More": {reason: "Metal3 has more than is needed",
			served: map[string]sets.Set[string]{"NodeType": sets.New("spec", "spec.zone", "spec.new")}, want: OK},
		"Denied": {reason: "a right is missing", err: forbidden(), want: Skip, says: "a right is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, tc.reason, definition(kind, tc.served, tc.err, needed, tc.exact, "install it", "upgrade it"), tc.want, tc.says)
		})
	}
}

func forbidden() error {
	return fmt.Errorf("reading, %w", apierrors.NewForbidden(schema.GroupResource{Group: "metal3.io", Resource: "baremetalhosts"}, "",
		errors.New(`User "me" cannot list resource "baremetalhosts" in API group "metal3.io" at the cluster scope`)))
}

func TestUnreadable(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   Level
		says   string
		not    string
	}{
		"Forbidden": {reason: "it says which right", err: forbidden(), want: Skip, says: `cannot list resource "baremetalhosts"`},
		"Timeout": {reason: "in one sentence", err: &url.Error{Op: "Get", URL: "https://u:pw@x/?sig=secret", Err: context.DeadlineExceeded},
			want: Fail, says: "no answer in time", not: "secret"},
		"Refused": {reason: "without the URL", err: fmt.Errorf("asking, %w",
			&url.Error{Op: "Get", URL: "https://u:pw@x/?sig=secret", Err: errors.New("connection refused")}), want: Fail, says: "connection refused",
			not: "secret"},
		"Kind": {reason: "another check says that it is not installed",
			err: apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "", 0, true), want: Skip,
			says: "does not have the kind"},
	} {
		t.Run(name, func(t *testing.T) {
			got := unreadable("a", tc.err)
			if got.Level != tc.want || !strings.Contains(got.Message, tc.says) || tc.not != "" && strings.Contains(got.Message, tc.not) {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
		})
	}
}

// changed returns a server that can be claimed, changed.
func changed(change func(*bmov1alpha1.BareMetalHost)) bmov1alpha1.BareMetalHost {
	host := env.AvailableHost("metal3", "server-01", nil)
	host.Spec.BMC.Address = "redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1"
	host.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	if change != nil {
		change(host)
	}
	return *host
}

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func provider(policy v1alpha1.UncleanedServersPolicy) v1alpha1.NodeProvider {
	provider := v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	provider.Spec.Metal3.ClusterRef.Namespace = "metal3"
	provider.Spec.Metal3.UncleanedServers = policy
	return provider
}

func TestProviders(t *testing.T) {
	renewed := func(name, ready string) v1alpha1.TenantCluster {
		tenant := v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name}}
		tenant.Status.ProviderRenewTime = &metav1.Time{Time: now}
		tenant.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: ready}}
		return tenant
	}
	works, silent := renewed("one", v1alpha1.ReasonIdentified), renewed("two", v1alpha1.ReasonProviderSilent)
	for name, tc := range map[string]struct {
		reason  string
		tenants []v1alpha1.TenantCluster
		want    Level
		says    string
	}{
		"None":   {"a fleet without tenants is fine", nil, OK, "0 TenantClusters"},
		"Works":  {"one has never had a provider", []v1alpha1.TenantCluster{works, {}}, OK, "of which 1 have"},
		"Silent": {"its pods get no servers", []v1alpha1.TenantCluster{works, silent}, Fail, "acme/two"},
	} {
		t.Run(name, func(t *testing.T) {
			results := checkProviders(tc.tenants)
			if len(results) != 1 {
				t.Fatalf("%s: got %+v", tc.reason, results)
			}
			expect(t, tc.reason, results[0], tc.want, tc.says)
		})
	}
}

// nodeType is a type of all hosts of its provider that are not labelled as Cluster API's.
func nodeType() v1alpha1.NodeType {
	nodeType := v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}
	nodeType.Spec.ProviderRef.Name = "fleet"
	nodeType.Spec.Resources = env.Resources("cpu", "1", "memory", "1Gi")
	nodeType.Spec.BareMetalHosts = &v1alpha1.HostSelection{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "pool", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"capi"}}}}}
	return nodeType
}

func TestHosts(t *testing.T) {
	single := []v1alpha1.NodeProvider{provider(v1alpha1.UncleanedServersSameTenant)}
	any := []v1alpha1.NodeProvider{provider(v1alpha1.UncleanedServersAnyTenant)}
	type host = bmov1alpha1.BareMetalHost
	annotated := func(key, value string) func(*host) {
		return func(host *host) { host.Annotations = map[string]string{key: value} }
	}
	capi := func(host *host) { host.Labels = map[string]string{"pool": "capi"} }
	used := func(host *host) {
		host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Machine",
			Namespace: "capi", Name: "worker-7"}
	}
	new := func(host *host) { host.Status = bmov1alpha1.BareMetalHostStatus{} }
	for name, tc := range map[string]struct {
		reason    string
		providers []v1alpha1.NodeProvider
		hosts     []host
		there     sets.Set[string]
		networked bool  // whether a tenant has a network of its own
		want      Level // of the worst result
		says      []string
	}{
		"Available": {reason: "it can be claimed", providers: single, hosts: []host{changed(nil)}, want: OK, says: []string{"1 can be claimed"}},
		"NoProvider": {reason: "no tenant gets it", hosts: []host{changed(nil)}, want: Warn,
			says: []string{"there is none, so that no server is offered"}},
		"OtherNamespace": {reason: "no tenant gets it", providers: single, want: Warn, says: []string{"no NodeProvider uses this namespace"},
			hosts: []host{changed(func(host *host) { host.Namespace = "another" }), changed(nil)}},
		"NoNamespace": {reason: "a typo, perhaps", providers: single, there: sets.New("default"), want: Fail,
			says: []string{"does not exist", "fleet", "kubectl create namespace metal3"}},
		"NoHosts":      {reason: "none is registered", providers: single, there: sets.New("metal3"), want: Warn, says: []string{"there is none"}},
		"UnknownThere": {reason: "namespaces could not be listed", providers: single, want: Warn, says: []string{"there is none"}},
		"Unseen": {reason: "no operator has written on it", providers: single, hosts: []host{changed(new)}, want: Fail,
			says: []string{"WATCH_NAMESPACE"}},
		"JustRegistered": {reason: "the operator has time", providers: single, want: OK, hosts: []host{changed(func(host *host) {
			new(host)
			host.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
		})}},
		"Foreign": {reason: "an operator can ask whose they are", providers: single, want: OK,
			says:  []string{"1 of 1 are used by others, and left alone: server-01 (Metal3Machine capi/worker-7)"},
			hosts: []host{changed(func(host *host) { capi(host); used(host) })}},
		"ForeignOfType": {reason: "it looks like ours once it is released", providers: single, want: Warn,
			says: []string{"1 of 1 are used by others and match a NodeType, so that a Machine may claim them once they are released: server-01 " +
				"(Metal3Machine capi/worker-7, NodeType h100)", "ask for a label"},
			hosts: []host{changed(used)}},
		"NoType": {reason: "it may be for something else, and no Machine claims it", providers: single, want: OK,
			says: []string{"2, of which 1 can be claimed and 0 are claimed; 1 more are free and match no NodeType, so that no Machine claims " +
				"them: server-02"},
			hosts: []host{changed(nil), changed(func(host *host) { host.Name = "server-02"; capi(host) })}},
		"NoTypeAtAll": {reason: "its labels are missing", providers: single, want: Warn,
			says:  []string{"1, of which 0 can be claimed", "1 more are free", "give it the labels"},
			hosts: []host{changed(capi)}},
		"PausedUnseen": {reason: "it is told not to look", providers: single, want: Warn, says: []string{"are paused",
			bmov1alpha1.PausedAnnotation + "-"},
			hosts: []host{changed(func(host *host) { new(host); annotated(bmov1alpha1.PausedAnnotation, "")(host) })}},
		"Error": {reason: "Metal3 says so", providers: single, want: Warn,
			says: []string{"registration error", "describe baremetalhost -n metal3 server-01"},
			hosts: []host{changed(func(host *host) {
				host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.RegistrationError, "https://admin:pw@192.0.2.1"
			})}},
		"Detached": {reason: "Metal3 does nothing", providers: single, want: Warn, says: []string{"are detached"},
			hosts: []host{changed(annotated(bmov1alpha1.DetachedAnnotation, ""))}},
		"Uncleaned": {reason: "it is for its last tenant", providers: single, want: Warn, says: []string{"not claimed for another tenant",
			`"metadata"`},
			hosts: []host{changed(func(host *host) { host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled })}},
		"UncleanedAllowed": {reason: "the provider allows it", providers: any, want: Warn, says: []string{"AnyTenant",
			"patch nodeprovider fleet"},
			hosts: []host{changed(func(host *host) { host.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled })}},
		"Uninspected": {reason: "nothing is known of it", providers: single, want: Warn, says: []string{"are not inspected"},
			hosts: []host{changed(func(host *host) {
				host.Spec.InspectionMode = bmov1alpha1.InspectionModeDisabled
				host.Status.HardwareDetails = nil
			})}},
		"Described": {reason: "its hardware is given", providers: single, want: OK, hosts: []host{changed(func(host *host) {
			host.Spec.InspectionMode = bmov1alpha1.InspectionModeDisabled
			host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{RAMMebibytes: 1}
		})}},
		"WithoutMAC": {reason: "it boots from the network", providers: single, want: Warn, says: []string{"bootMACAddress"},
			hosts: []host{changed(func(host *host) { host.Spec.BootMACAddress, host.Spec.BMC.Address = "", "redfish+https://192.0.2.1/1" })}},
		"WithoutScheme": {reason: "no scheme means IPMI", providers: single, want: Warn, says: []string{"bootMACAddress"},
			hosts: []host{changed(func(host *host) { host.Spec.BootMACAddress, host.Spec.BMC.Address = "", "192.0.2.1:623" })}},
		"VirtualMediaWithoutMAC": {reason: "it needs none", providers: single, want: OK,
			hosts: []host{changed(func(host *host) { host.Spec.BootMACAddress = "" })}},
		"BootsByNetwork": {reason: "another machine in the tenant's network could be taken for its agent", providers: single, networked: true,
			want: Warn, says: []string{"1 of 1 boot by network, and a TenantCluster has spec.network", "a scheme of virtual media"},
			hosts: []host{changed(func(host *host) { host.Spec.BMC.Address = "redfish+https://192.0.2.1/1" })}},
		"BootsByNetworkAlone": {reason: "tenants have no networks", providers: single, want: OK,
			hosts: []host{changed(func(host *host) { host.Spec.BMC.Address = "redfish+https://192.0.2.1/1" })}},
		"BootsFromMedia": {reason: "the token is on the medium", providers: single, networked: true, want: OK, hosts: []host{changed(nil)}},
		"Deleting": {reason: "it goes", providers: single, want: OK, hosts: []host{changed(func(host *host) {
			deleted := metav1.NewTime(now)
			host.Spec.AutomatedCleaningMode, host.DeletionTimestamp = bmov1alpha1.CleaningModeDisabled, &deleted
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			results := checkHosts(tc.providers, []v1alpha1.NodeType{nodeType()}, tc.hosts, tc.there, tc.networked, now)
			if len(results) == 0 {
				t.Fatalf("%s: no result", tc.reason)
			}
			worst, text := OK, ""
			for _, result := range results {
				if bySeverity(Result{Level: result.Level}, Result{Level: worst}) < 0 {
					worst = result.Level
				}
				text += result.Message + "\n" + result.Remedy + "\n"
			}
			if worst != tc.want {
				t.Errorf("%s: the worst is %s, want %s: %+v", tc.reason, worst, tc.want, results)
			}
			for _, part := range tc.says {
				if !strings.Contains(text, part) {
					t.Errorf("%s: %q does not say %q", tc.reason, text, part)
				}
			}
			if strings.Contains(text, "pw") {
				t.Errorf("%s: %q has what Metal3 says, which may be a secret", tc.reason, text)
			}
		})
	}
}

func TestWebhookTrust(t *testing.T) {
	configuration := func(bundle string, annotations map[string]string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "a",
				ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte(bundle)}}}}
	}
	injected := map[string]string{injectCA: "ns/cert"}
	for name, tc := range map[string]struct {
		reason        string
		configuration *admissionregistrationv1.ValidatingWebhookConfiguration
		certManager   bool
		want          Level
		says          string
	}{
		"Trusted":       {"it has an authority", configuration("x", nil), false, OK, "1 webhooks"},
		"Untrusted":     {"the manager writes it", configuration("", nil), false, Fail, "logs -l app.kubernetes.io/component=manager"},
		"NoCertManager": {"cert-manager is to write it", configuration("", injected), false, Fail, "is not installed"},
		"NotYet":        {"cert-manager has not written it", configuration("", injected), true, Fail, "Certificate ns/cert"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, tc.reason, webhookTrust("webhook", tc.configuration, tc.certManager), tc.want, tc.says)
		})
	}
}

func TestIronicReady(t *testing.T) {
	condition := func(status string, generation int64) map[string]any {
		return map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": status, "message": "no image",
			"observedGeneration": generation, "lastTransitionTime": "2026-01-02T15:04:05Z", "reason": "x"}}}
	}
	for name, tc := range map[string]struct {
		reason string
		status any
		want   Level
		says   string
	}{
		"Ready":    {"it works", condition("True", 2), OK, "is ready"},
		"NotReady": {"its operator says why", condition("False", 2), Fail, "no image"},
		"Older":    {"it was about another spec", condition("True", 1), Fail, "not looked at it"},
		"None":     {"its operator does not run", map[string]any{}, Fail, "not looked at it"},
		"Strange":  {"it is of another version", "x", Skip, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"status": tc.status}}
			object.SetNamespace("ns")
			object.SetName("ironic")
			object.SetGeneration(2)
			expect(t, tc.reason, ironicReady(object), tc.want, tc.says)
		})
	}
}

// TestCertManager: the remedy installs the version that docs/metal3.md does.
func TestCertManager(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metal3.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n"+certManagerRemedy+"\n") {
		t.Errorf("docs/metal3.md has no line %s", certManagerRemedy)
	}
}

// TestPrint compares the table with testdata/table.txt; -update writes it.
func TestPrint(t *testing.T) {
	results := []Result{kubernetesVersion("v1.36.3"), definition(bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), nil, nil, nil, false,
		metal3Remedy, "")}
	results = append(results, checkHosts([]v1alpha1.NodeProvider{provider("")}, []v1alpha1.NodeType{nodeType()},
		[]bmov1alpha1.BareMetalHost{changed(nil), changed(func(host *bmov1alpha1.BareMetalHost) {
			host.Name, host.UID, host.Status.ErrorType = "server-02", "server-02", bmov1alpha1.InspectionError
		})}, nil, false, now)...)
	results = append(results, unreadable(policiesCheck, forbidden()))
	var got bytes.Buffer
	if err := Print(&got, results); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "table.txt")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the table (-want +got), -update writes it:\n%s", diff)
	}
	if Failures(results) != 1 {
		t.Errorf("%d failures, want that of the definition", Failures(results))
	}
}
