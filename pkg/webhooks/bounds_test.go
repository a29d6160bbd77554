// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestElements: whatever the pieces, no value is missed, and what is in strings counts for nothing.
func TestElements(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, text string
		want         int
	}{
		"Containers": {"the brackets, and one more for each further item", `{"a":[{},{},{}]}`, 7},
		"Strings":    {"signs in strings make no value", `["a,b","{[,","\",[","\\",""]`, 5},
		"Nothing":    {"blanks and numbers", ` 12 `, 0},
	} {
		for size := 1; size <= len(tc.text); size++ {
			counted := elements{}
			for piece := range slices.Chunk([]byte(tc.text), size) {
				counted.add(piece)
			}
			if counted.count != tc.want {
				t.Errorf("%s, in pieces of %d: got %d, want %d: %s", name, size, counted.count, tc.want, tc.reason)
			}
		}
	}
}

// paths that have no shape, and what bounds their objects instead.
var shapeless = map[string]string{
	"/mutate/pods":     "rules.Pod refuses more claims than it looks up, and only their names are decoded",
	"/validate/writes": "only the length of the object is read",
	"/mutate/spelling": "the object is walked once, as it was decoded, and the bound of the body holds",
}

// TestEveryHandlerIsBounded: a new handler has the bounds of the others. Each refuses bodies that become too much in
// memory, requests whose time is over, values that would be labels of metrics, and lists, maps and strings that are
// longer than their schema allows.
func TestEveryHandlerIsBounded(t *testing.T) {
	callers, err := NewCallers("", nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := shapes()
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]*shape{}
	for kind, shape := range kinds {
		byPath["/validate/"+strings.ToLower(kind)+"s"] = shape
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for path, handler := range handlers(t, true) {
		t.Run(path, func(t *testing.T) {
			server := httptest.NewServer(callers.Limit(t.Context(), &admission.Webhook{Handler: handler}))
			defer server.Close()
			for name, tc := range map[string]struct {
				reason, body string
				status       int
			}{
				"Values": {"3 bytes of an empty object become hundreds",
					`{"request":{"object":{"spec":{"containers":[` + strings.Repeat("{},", elementsLimit) + `{}]}}}}`,
					http.StatusRequestEntityTooLarge},
				"Bytes": {"the buffers alone are too much", `{"a":"` + strings.Repeat("x", bodyLimit) + `"}`,
					http.StatusRequestEntityTooLarge},
				"YAML": {"its values are not counted", "request:\n- a\n", http.StatusBadRequest},
			} {
				response, err := http.Post(server.URL, "application/json", strings.NewReader(tc.body))
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				if response.StatusCode != tc.status {
					t.Errorf("%s: got %s, want %d: %s", name, response.Status, tc.status, tc.reason)
				}
			}
			good := request(admissionv1.Create, `{"metadata":{"name":"a"}}`, "")
			response := handler.Handle(ended, good)
			if response.Allowed || response.Result.Code != http.StatusServiceUnavailable {
				t.Errorf("a request whose time is over: got %+v", response.AdmissionResponse)
			}
			before := series()
			for n := range 10 {
				strange := request(admissionv1.Operation(fmt.Sprint(n)), "{}", "{}")
				if response := handler.Handle(t.Context(), strange); response.Allowed {
					t.Error("an operation that no API server has is allowed")
				}
				strange = request(admissionv1.Create, "{}", "")
				strange.Kind.Kind = fmt.Sprint(n)
				handler.Handle(t.Context(), strange)
			}
			if after := series(); after > before+5 {
				t.Errorf("20 requests make %d series of metrics", after-before)
			}
			if shapeless[path] != "" {
				return
			}
			bounded := 0
			byPath[path].each(nil, func(fields []string, most int64) {
				bounded++
				for _, r := range []admission.Request{
					request(admissionv1.Create, longer(fields, most), ""), request(admissionv1.Update, "{}", longer(fields, most)),
				} {
					says := fmt.Sprintf("is longer than the %d of its schema", most)
					response := handler.Handle(t.Context(), r)
					if response.Allowed || !strings.Contains(response.Result.Message, says) {
						t.Errorf("%s of %d: got %+v", strings.Join(fields, "."), most+1, response.Result)
					}
				}
			})
			if bounded == 0 {
				t.Error("no list, map or string of its objects has a bound: give the handler the shape of its kind, or say in " +
					"shapeless why not")
			}
		})
	}
}

// each calls a function for each bounded list, map and string. Their paths have "*" for an item or a key.
func (s *shape) each(path []string, found func(path []string, most int64)) {
	if s == nil || s == anything {
		return
	}
	if s.most < 1000 { // longer ones are no different, and slow
		found(path, s.most)
	}
	for name, field := range s.fields {
		field.each(append(slices.Clone(path), name), found)
	}
	s.rest.each(append(slices.Clone(path), "*"), found)
}

// longer is an object with a value at a path that is one longer than allowed. A list, a map and a string count alike.
func longer(path []string, most int64) string {
	value := "[" + strings.Repeat("0,", int(most)) + "0]"
	for _, name := range slices.Backward(path) {
		value = fmt.Sprintf("{%q:%s}", name, value)
	}
	return value + strings.Repeat(" ", smallBytes)
}

// series is how many series of metrics this package has.
func series() (count int) {
	for _, collector := range []prometheus.Collector{requests, durations, refused} {
		metrics := make(chan prometheus.Metric, 1000)
		collector.Collect(metrics)
		count += len(metrics)
	}
	return count
}

// TestShape: what fits is admitted, and the rest of an object may be anything.
func TestShape(t *testing.T) {
	kinds, err := shapes()
	if err != nil {
		t.Fatal(err)
	}
	taints := func(count int) string { return `{"spec":{"taints":[` + strings.Repeat(`{},`, count-1) + `{}]}}` }
	for name, tc := range map[string]struct{ reason, object, says string }{
		"Fits":   {"as many as the schema allows", taints(128), ""},
		"Longer": {"one more", taints(129), "spec.taints is longer than the 128 of its schema"},
		"Value": {"a value of a map", `{"spec":{"labels":{"a":"` + strings.Repeat("x", 64) + `"}}}`,
			"spec.labels.a is longer than the 63"},
		"Letters": {"letters count, not bytes", `{"spec":{"labels":{"a":"` + strings.Repeat("ü", 63) + `"}}}`, ""},
		"Unknown": {"the schema does not have it",
			`{"x":[[],{},[{"y":[1,null,true,"z"]}]],"metadata":{"labels":{"a":"b"}}}`, ""},
		"Cut":   {"it is no JSON", `{"spec":[`, "EOF"},
		"Array": {"it is no object", `[]`, "cannot unmarshal array"},
	} {
		err := kinds["Machine"].decode([]byte(strings.Repeat(" ", smallBytes)+tc.object), &map[string]any{})
		if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %q: %s", name, err, tc.says, tc.reason)
		}
	}
}

// TestSpellingOfFields: a field in other letters is another field, which no schema bounds and no rule reads.
func TestSpellingOfFields(t *testing.T) {
	machine := &v1alpha1.Machine{}
	err := anything.decode([]byte(`{"spec":{"Taints":[{"key":"a"}]}}`), machine)
	if err != nil || len(machine.Spec.Taints) > 0 {
		t.Errorf("the taints are %v, %v", machine.Spec.Taints, err)
	}
}

// TestOneLargeBody: one large body is answered at a time, and small ones wait for none of them.
func TestOneLargeBody(t *testing.T) {
	for name, body := range map[string]string{
		"Bytes": `{"a":"` + strings.Repeat("x", largeBytes) + `"}`, "Values": "{" + strings.Repeat(",", largeElements) + "}",
	} {
		t.Run(name, func(t *testing.T) {
			callers, err := NewCallers("", nil, 3)
			if err != nil {
				t.Fatal(err)
			}
			b := newBlocked(t, callers)
			first := b.send(t.Context(), t, body)
			<-b.entered
			second := b.send(t.Context(), t, body)
			awaitWaiting(t, &callers.large, 1)
			small := b.ask(t.Context(), t)
			<-b.entered
			select {
			case <-b.entered:
				t.Error("two large bodies are answered at once")
			default:
			}
			b.answer <- struct{}{}
			b.answer <- struct{}{}
			<-b.entered
			b.answer <- struct{}{}
			for _, response := range []chan *http.Response{first, second, small} {
				if r := <-response; r == nil || r.StatusCode != http.StatusOK {
					t.Errorf("got %v", r)
				}
			}
		})
	}
}

// TestSource: the namespaces of the API server take turns, and of others the addresses, whatever they say.
func TestSource(t *testing.T) {
	review, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{Namespace: "tenant"}})
	if err != nil {
		t.Fatal(err)
	}
	shown := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	for name, tc := range map[string]struct {
		reason, address string
		tls             *tls.ConnectionState
		review          []byte
		want            string
	}{
		"APIServer": {"all tenants come from there", "10.0.0.1:1234", shown, review, "namespace tenant"},
		"Cluster":   {"what has no namespace has a turn, too", "10.0.0.1:1234", shown, []byte("{}"), "namespace "},
		"Malformed": {"it is refused in its turn", "10.0.0.1:1234", shown, []byte("{"), "10.0.0.1"},
		"Anybody":   {"it could name as many as it likes", "[::1]:1234", &tls.ConnectionState{}, review, "::1"},
	} {
		got := sourceOf(&http.Request{RemoteAddr: tc.address, TLS: tc.tls}, tc.review)
		if got != tc.want {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
}
