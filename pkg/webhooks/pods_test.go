// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// hostPod is the copy of the pod default/train of the tenant research, with a field that this version does not know.
const hostPod = `
metadata:
  namespace: research
  name: train-x-default-x-research
  labels: {vcluster.loft.sh/managed-by: research}
  annotations:
    vcluster.loft.sh/object-name: train
    vcluster.loft.sh/object-namespace: default
    vcluster.loft.sh/object-uid: u
    vcluster.loft.sh/object-kind: /v1, Kind=Pod
    vcluster.loft.sh/object-host-name: train-x-default-x-research
    vcluster.loft.sh/object-host-namespace: research
spec:
  fieldOfTheFuture: {a: b}
  resourceClaims:
  - {name: one, resourceClaimName: two-gpus, sourceOfTheFuture: c}
  - {name: two, resourceClaimTemplateName: one-gpu}
`

// TestPods: the API server gets exactly the new names, also while the servers are not known.
func TestPods(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	enabled := v1alpha1.ClaimSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: true}}
	tenant := &v1alpha1.TenantCluster{}
	tenant.Namespace, tenant.Name = "research", "research"
	tenant.Spec.Sync.ToHost = v1alpha1.SyncToHost{ResourceClaims: enabled, ResourceClaimTemplates: enabled,
		PodTranslation: v1alpha1.PodTranslationWebhook}
	for name, tc := range map[string]struct {
		reason    string
		namespace string
		change    func(string) string
		fails     bool
		want      []string // patches
		code      int32    // 0 if it is allowed
		says      string
	}{
		"Translated": {reason: "both names, and nothing else", namespace: "research", want: []string{
			`{"op":"replace","path":"/spec/resourceClaims/0/resourceClaimName","value":"vafbxvymjp0b01"}`,
			`{"op":"replace","path":"/spec/resourceClaims/1/resourceClaimTemplateName","value":"v54qxjtxdazeqo"}`}},
		"OtherNamespace": {reason: "a TenantCluster of that name is elsewhere", namespace: "inference"},
		"Denied": {reason: "the origin is forged", namespace: "research",
			change: func(pod string) string { return strings.Replace(pod, "namespace: default", "namespace: ml", 1) },
			code:   http.StatusForbidden, says: `pods "train-x-default-x-research" is forbidden: it has the label`},
		"Invalid": {reason: "the name is ambiguous", namespace: "research",
			change: func(pod string) string { return strings.Replace(pod, "two-gpus", "a-x-b", 1) },
			code:   http.StatusUnprocessableEntity, says: `Pod "train-x-default-x-research" is invalid: spec.resourceClaims[0].resourceClaimName`},
		"Malformed": {reason: "it is no pod", namespace: "research", change: func(string) string { return "spec: []" },
			code: http.StatusBadRequest, says: "reading the object"},
		"Many": {reason: "each would be looked up", namespace: "research", change: func(pod string) string {
			return pod + strings.Repeat("  - {name: more, resourceClaimName: more}\n", 63)
		}, code: http.StatusUnprocessableEntity, says: "spec.resourceClaims: Forbidden: there are 65 claims, and at most 64"},
		"AsMany": {reason: "that is as many as there may be", namespace: "inference", change: func(pod string) string {
			return pod + strings.Repeat("  - {name: more, resourceClaimName: more}\n", 63)
		}},
		"NoCache": {reason: "whose pod it is, is not known", namespace: "research", fails: true, code: http.StatusInternalServerError,
			says: "reading the management cluster, no cache"},
	} {
		t.Run(name, func(t *testing.T) {
			requests.Reset()
			reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(tenant).Build(), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if tc.fails {
						return errors.New("no cache")
					}
					return c.Get(ctx, key, object, options...)
				},
			})
			text := hostPod
			if tc.change != nil {
				text = tc.change(text)
			}
			raw, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create,
				Namespace: tc.namespace, Name: "train-x-default-x-research"}}
			request.Kind.Kind, request.Resource.Resource, request.Object.Raw = "Pod", "pods", raw
			unsynced := inventory.NewInventory(inventory.Options{})
			response := handlersOf(t, reader, unsynced)["/mutate/pods"].Handle(t.Context(), request)
			if response.Allowed != (tc.code == 0) {
				t.Fatalf("%s: allowed is %v: %v", tc.reason, response.Allowed, response.Result)
			}
			if !response.Allowed && (response.Result.Code != tc.code || !strings.Contains(response.Result.Message, tc.says)) {
				t.Errorf("%s: %d %s, want %d %s", tc.reason, response.Result.Code, response.Result.Message, tc.code, tc.says)
			}
			var got []string
			for _, patch := range response.Patches {
				encoded, err := json.Marshal(patch)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(encoded))
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: patches (-want +got):\n%s", tc.reason, diff)
			}
			counted := make(chan prometheus.Metric, 10)
			if requests.Collect(counted); len(counted) != 1 {
				t.Errorf("%s: %d results are counted", tc.reason, len(counted))
			}
		})
	}
}

// TestAsked: each field of a pod by which devices can be asked for is read, and the path of the first is the one that errors name.
func TestAsked(t *testing.T) {
	for name, tc := range map[string]struct{ reason, spec, want string }{
		"Limits": {"the usual way",
			`{containers: [{}, {resources: {limits: {a/b: 1}}}]}`, "spec.containers[1].resources.limits[a/b]"},
		"Requests": {"kube-scheduler reads these",
			`{containers: [{resources: {requests: {a/b: 1}}}]}`, "spec.containers[0].resources.requests[a/b]"},
		"Init": {"a container that ends",
			`{initContainers: [{resources: {limits: {a/b: "1"}}}]}`, "spec.initContainers[0].resources.limits[a/b]"},
		"Sidecar": {"it runs on",
			`{initContainers: [{restartPolicy: Always, resources: {requests: {a/b: 1}}}]}`, "spec.initContainers[0].resources.requests[a/b]"},
		"Ephemeral": {"no version allows it yet",
			`{ephemeralContainers: [{resources: {limits: {a/b: 1}}}]}`, "spec.ephemeralContainers[0].resources.limits[a/b]"},
		"Pod": {"no version allows it yet",
			`{resources: {limits: {a/b: 1}}}`, "spec.resources.limits[a/b]"},
		"Zero":   {"it is judged all the same", `{containers: [{resources: {limits: {a/b: 0}}}]}`, "spec.containers[0].resources.limits[a/b]"},
		"Native": {"a node has these", `{containers: [{resources: {limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 4Mi}}}]}`, ""},
	} {
		fields := podFields{}
		if err := yaml.Unmarshal([]byte("spec: "+tc.spec), &fields); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got string
		if path := fields.asked()["a/b"]; path != nil {
			got = path.String()
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
}
