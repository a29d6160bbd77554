// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

const hostsPath = "/apis/metal3.io/v1alpha1/namespaces/metal3/baremetalhosts"

// answer has a client of Hosts' configuration send a request, and the API server answer with a body. It returns what the client reads.
func answer(t *testing.T, target, contentType string, status int, body io.Reader) []byte {
	t.Helper()
	config := &rest.Config{}
	Hosts(config)
	client := config.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(body)}, nil
	}))
	response, err := client.RoundTrip(httptest.NewRequest(http.MethodGet, target, nil))
	if err != nil {
		t.Fatal(err)
	}
	read, err := io.ReadAll(iotest.HalfReader(response.Body))
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return read
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

type event struct {
	Type   string                     `json:"type"`
	Object *bmov1alpha1.BareMetalHost `json:"object"`
}

// A watch skips exactly what the transform drops, whatever a host has.
func TestSkippedIsDropped(t *testing.T) {
	var events []event
	var body bytes.Buffer
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), serializer.NewCodecFactory(runtime.NewScheme())).NumElements(1, 8)
	for n := range 100 {
		host := &bmov1alpha1.BareMetalHost{}
		fill.Fill(host)
		if n == 50 {
			host.Status.ErrorMessage = strings.Repeat(`"long\`, 1<<16)
		}
		if err := json.NewEncoder(&body).Encode(event{"MODIFIED", host}); err != nil {
			t.Fatal(err)
		}
		if _, err := Hosts(&rest.Config{}).Transform(host); err != nil {
			t.Fatal(err)
		}
		events = append(events, event{"MODIFIED", host})
	}
	skipped := answer(t, hostsPath+"?watch=true", "application/json", http.StatusOK, iotest.OneByteReader(&body))
	got := json.NewDecoder(bytes.NewReader(skipped))
	for n, want := range events {
		var read event
		if err := got.Decode(&read); err != nil {
			t.Fatalf("event %d, %v", n, err)
		}
		asJSON := cmp.Transformer("JSON", func(event event) string { text, _ := json.MarshalIndent(event, "", " "); return string(text) })
		if diff := cmp.Diff(want, read, asJSON); diff != "" {
			t.Fatalf("what is decoded of event %d (-without skipping, trimmed; +skipped):\n%s", n, diff)
		}
	}
}

func TestAnswers(t *testing.T) {
	const whole = `{"type":"ADDED","object":{"kind":"BareMetalHost","status":{"poweredOn":true,"hardware":{"hostname":"h","nics":[]}}}}`
	const skipped = `{"type":"ADDED","object":{"kind":"BareMetalHost","status":{"poweredOn":true,"hardware":{"cpu":{},"nics":[]}}}}`
	const null = `{"type":"ADDED","object":{"kind":"BareMetalHost","status":{"poweredOn":true,"hardware":null}}}`
	const watch, list, json = hostsPath + "?watch=true", hostsPath, "application/json"
	for name, tc := range map[string]struct {
		reason, target, contentType string
		status                      int
		body, want                  string
	}{
		"Watch":          {"fields are skipped", watch, json, 200, whole + "\n" + whole + "\n", skipped + "\n" + skipped + "\n"},
		"All namespaces": {"fields are skipped", "/apis/metal3.io/v1alpha1/baremetalhosts?watch=1", json, 200, whole + "\n", skipped + "\n"},
		"Other object":   {"a status is no host", watch, json, 200, "{ }\n" + whole + "\n", "{ }\n" + skipped + "\n"},
		"No object":      {"hardware that is null stays", watch, json, 200, null + "\n", null + "\n"},
		"Interrupted":    {"half an event is whole", watch, json, 200, whole + "\n" + whole[:50], skipped + "\n" + whole[:50]},
		"Host":           {"a single host has all fields: templates read them", hostsPath + "/h", json, 200, whole + "\n", whole + "\n"},
		"List":           {"a list has all fields", list, json, 200, whole + "\n", whole + "\n"},
		"Other kind": {"another kind has all fields", "/apis/metal3.io/v1alpha1/hardwaredata?watch=true", json, 200,
			whole + "\n", whole + "\n"},
		"Error":          {"an error has all fields", watch, json, 410, whole + "\n", whole + "\n"},
		"Other encoding": {"this is JSON only", watch, "application/cbor-seq", 200, whole + "\n", whole + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := answer(t, tc.target, tc.contentType, tc.status, strings.NewReader(tc.body)); string(got) != tc.want {
				t.Errorf("%s: got %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}
