// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/cluster"
)

func handlers(t *testing.T, synced bool) map[string]admission.Handler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	inventory := inventory.NewInventory(inventory.Options{})
	if synced {
		inventory.MarkHostsSynced()
		inventory.MarkTypesSynced()
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	return handlersOf(t, c, inventory)
}

// handlersOf are the handlers with a reader and an inventory.
func handlersOf(t *testing.T, reader client.Reader, inventory *inventory.Inventory) map[string]admission.Handler {
	t.Helper()
	all, err := Handlers(cluster.New(reader, inventory), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Everything that the API server is told to ask about is answered, and nothing else is served.
func TestPaths(t *testing.T) {
	configuration, err := webhook.Management(webhook.Options{URL: "https://x"})
	if err != nil {
		t.Fatal(err)
	}
	mutating, err := webhook.Mutating(webhook.Options{URL: "https://x"})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, webhook := range mutating.Webhooks {
		want = append(want, strings.TrimPrefix(*webhook.ClientConfig.URL, "https://x"))
	}
	for _, webhook := range configuration.Webhooks {
		want = append(want, strings.TrimPrefix(*webhook.ClientConfig.URL, "https://x"))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(handlers(t, true)))); diff != "" {
		t.Errorf("asked (-) and answered (+):\n%s", diff)
	}
}

func request(operation admissionv1.Operation, object, old string) admission.Request {
	r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation, Namespace: "a", Name: "m",
		Kind:     metav1.GroupVersionKind{Group: v1alpha1.Group, Version: "v1alpha1", Kind: "Machine"},
		Resource: metav1.GroupVersionResource{Group: v1alpha1.Group, Version: "v1alpha1", Resource: "machines"},
	}}
	r.Object.Raw, r.OldObject.Raw = []byte(object), []byte(old)
	return r
}

func TestHandle(t *testing.T) {
	const good, wrong = `{"spec":{"tenantClusterRef":{"name":"t"},"labels":{"a":"b"}}}`,
		`{"spec":{"tenantClusterRef":{"name":"t"},"labels":{"a b":"c"}}}`
	for name, tc := range map[string]struct {
		reason   string
		request  admission.Request
		unsynced bool
		allowed  bool
		code     int32
		says     string
	}{
		"Good": {reason: "nothing is wrong", request: request(admissionv1.Create, good, ""), allowed: true},
		"Wrong": {reason: "in the API's own form", request: request(admissionv1.Create, wrong, ""), code: http.StatusUnprocessableEntity,
			says: `Machine.karpenter.metal3.io "m" is invalid: spec.labels["a b"]: Invalid value: "a b"`},
		"Update": {reason: "what has changed is wrong", request: request(admissionv1.Update, wrong, good),
			code: http.StatusUnprocessableEntity, says: `spec.labels["a b"]`},
		"Old": {reason: "it was so before", request: request(admissionv1.Update, wrong, wrong), allowed: true},
		"Going": {reason: "finalizers must be removable",
			request: request(admissionv1.Update, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"labels":{"a b":"c"}}}`, good),
			allowed: true},
		"Delete":  {reason: "a Machine can always be deleted", request: request(admissionv1.Delete, "", wrong), allowed: true},
		"Connect": {reason: "the configuration has no rule for it", request: request(admissionv1.Connect, "", ""), allowed: true},
		"Malformed": {reason: "it is no Machine", request: request(admissionv1.Create, `{"spec":[]}`, ""), code: http.StatusBadRequest,
			says: "reading the object"},
		"Empty": {reason: "it is nothing", request: request(admissionv1.Create, "", ""), code: http.StatusBadRequest,
			says: "reading the object"},
		"OldGarbage": {reason: "it was nothing", request: request(admissionv1.Update, good, "x"), code: http.StatusBadRequest,
			says: "reading the object"},
		"Unsynced": {reason: "what is not known would count as what does not exist", request: request(admissionv1.Create, good, ""),
			unsynced: true, code: http.StatusInternalServerError, says: "the servers are not known yet"},
	} {
		t.Run(name, func(t *testing.T) {
			requests.Reset()
			response := handlers(t, !tc.unsynced)["/validate/machines"].Handle(t.Context(), tc.request)
			if response.Allowed != tc.allowed {
				t.Fatalf("%s: allowed is %v: %v", tc.reason, response.Allowed, response.Result)
			}
			if !tc.allowed && (response.Result.Code != tc.code || !strings.Contains(response.Result.Message, tc.says)) {
				t.Errorf("%s: %d %s, want %d %s", tc.reason, response.Result.Code, response.Result.Message, tc.code, tc.says)
			}
			counted := make(chan prometheus.Metric, 10)
			if requests.Collect(counted); len(counted) == 0 {
				t.Errorf("%s: no result is counted", tc.reason)
			}
		})
	}
}

// TestAlertedMetric: alerts of the chart are on the durations by this name, and on requests of this path, which the test of the alerts
// cannot read from here.
func TestAlertedMetric(t *testing.T) {
	const want = `fqName: "karpenter_metal3_webhook_duration_seconds"`
	described := make(chan *prometheus.Desc, 1)
	durations.Describe(described)
	if got := (<-described).String(); !strings.Contains(got, want) || !strings.Contains(got, "{kind,operation}") {
		t.Errorf("got %s, want %s by kind and operation", got, want)
	}
	if handlersOf(t, nil, nil)["/validate/machines"] == nil {
		t.Error("the webhook has no path /validate/machines, by which KarpenterMetal3WebhookDown knows it")
	}
}

// A deletion that is refused says so as the API server itself would.
func TestAnswerRefusesDeletion(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	response := handlers(t, true)["/validate/osimages"].Handle(t.Context(), request(admissionv1.Delete, "", `{}`))
	// The client in memory has no index, so what is in use is not known: the deletion must wait.
	if response.Allowed || response.Result.Code != http.StatusInternalServerError {
		t.Errorf("the users of the image are not known: %+v", response)
	}
}
