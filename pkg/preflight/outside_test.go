// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// answers is a server that answers by path.
func answers(t *testing.T, byPath map[string]http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for path, handle := range byPath {
		mux.HandleFunc(path, handle)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			http.Error(w, "credentials", http.StatusTeapot)
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func versionIs(version string) string {
	return `{"id": "v1", "version": {"id": "v1", "min_version": "1.1", "version": "` + version + `"}}`
}

func TestIronic(t *testing.T) {
	const drivers = `{"drivers": [{"name": "ipmi"}, {"name": "redfish"}]}`
	stop := make(chan struct{})
	hang := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}
	for name, tc := range map[string]struct {
		reason      string
		v1, drivers http.HandlerFunc
		timeout     time.Duration
		want        []Level
		says        string
	}{
		"Credentials": {reason: "it is as it should be", v1: says(200, versionIs("1.99")), drivers: says(401, "{}"), want: []Level{OK},
			says: "API version 1.99, and asks for credentials"},
		"Open": {reason: "all may use it", v1: says(200, versionIs("1.99")), drivers: says(200, drivers), want: []Level{OK, Warn},
			says: "drivers ipmi, redfish"},
		"NoConductor": {reason: "nothing is done", v1: says(200, versionIs("1.99")), drivers: says(200, `{"drivers": []}`), want: []Level{Fail},
			says: "no conductor works"},
		"Old": {reason: "baremetal-operator refuses it", v1: says(200, versionIs("1.82")), drivers: says(200, drivers), want: []Level{Fail},
			says: "requires 1.89"},
		"Other":   {reason: "it is another server", v1: says(200, `{"hello": 1}`), want: []Level{Fail}, says: "something else than Ironic"},
		"NotJSON": {reason: "it is another server", v1: says(200, `<html>`), want: []Level{Fail}, says: "not JSON"},
		"Missing": {reason: "it is another server", v1: says(404, ""), want: []Level{Fail}, says: "status 404"},
		"Broken": {reason: "its database is down", v1: says(200, versionIs("1.99")), drivers: says(500, ""), want: []Level{Fail},
			says: "status 500"},
		"Hangs": {reason: "it never answers", v1: hang, timeout: 50 * time.Millisecond, want: []Level{Fail}, says: "no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			byPath := map[string]http.HandlerFunc{"/v1": tc.v1}
			if tc.drivers != nil {
				byPath["/v1/drivers"] = tc.drivers
			}
			server := answers(t, byPath)
			timeout := time.Minute
			if tc.timeout != 0 {
				timeout = tc.timeout
			}
			client, err := NewIronicClient(timeout, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, form := range []string{"", "/", "/v1", "/v1/"} {
				results := askIronic(t.Context(), client, server.URL+form)
				if len(results) != len(tc.want) {
					t.Fatalf("%s: got %+v, want %v", tc.reason, results, tc.want)
				}
				expect(t, tc.reason, results[0], tc.want[0], tc.says)
				for i := range results {
					if results[i].Level != tc.want[i] {
						t.Errorf("%s: got %+v, want %v", tc.reason, results, tc.want)
					}
				}
			}
		})
	}
	close(stop)
}

// TestIronicTLS: a certificate is trusted if its authority is given, and not otherwise.
func TestIronicTLS(t *testing.T) {
	server := httptest.NewTLSServer(says(200, versionIs("1.99")))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, tc := range map[string]struct {
		reason      string
		authorities []byte
		says        string
	}{
		"Trusted":   {"its authority is given", authority, "has no drivers"},
		"Untrusted": {"its authority is not known", nil, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := NewIronicClient(time.Minute, tc.authorities)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, tc.reason, askIronic(t.Context(), client, server.URL)[0], Fail, tc.says)
		})
	}
	if _, err := NewIronicClient(time.Minute, []byte("x")); err == nil {
		t.Error("what is no certificate is trusted")
	}
	client, err := NewIronicClient(time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := askIronic(t.Context(), client, "http://admin:secret@127.0.0.1:1/v1")[0]
	expect(t, "nothing listens there", got, Fail, "connection refused")
	if strings.Contains(got.Message, "secret") {
		t.Errorf("%q has the password", got.Message)
	}
}

func TestAskImage(t *testing.T) {
	var heads, gets atomic.Int32
	server := answers(t, map[string]http.HandlerFunc{
		"/there": says(200, "x"),
		"/signed": func(w http.ResponseWriter, r *http.Request) { // for GET alone
			if r.Method == http.MethodHead {
				heads.Add(1)
				w.WriteHeader(http.StatusForbidden)
				return
			}
			gets.Add(1)
			if r.Header.Get("Range") != "bytes=0-0" {
				t.Errorf("all of it is asked for: %v", r.Header)
			}
			w.WriteHeader(http.StatusPartialContent)
		},
		"/denied": says(403, ""),
		"/v2/os/manifests/sha256:ab": func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.Header.Get("Accept"), "application/vnd.oci.image.manifest.v1+json") {
				w.WriteHeader(http.StatusNotFound)
			}
		},
		"/v2/index/manifests/sha256:ab": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
		},
		"/v2/index/manifests/v1": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
		},
		"/v2/private/manifests/sha256:ab": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://registry.example.com/token"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"/moved": http.RedirectHandler("/target", http.StatusFound).ServeHTTP,
		"/target": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Referer") != "" {
				t.Errorf("the target of a redirect gets the URL before: %s", r.Header.Get("Referer"))
			}
			w.WriteHeader(http.StatusOK)
		},
		"/loop": http.RedirectHandler("/loop", http.StatusFound).ServeHTTP,
	})
	for name, tc := range map[string]struct {
		reason, path string
		want         Level
		says         string
	}{
		"There":    {"it can be read", "/there", OK, "/there"},
		"Signed":   {"its first byte can be read", "/signed?sig=secret", OK, "/signed"},
		"Manifest": {"a registry is told what it may answer", "/v2/os/manifests/sha256:ab", OK, "/v2/os"},
		"Index":    {"Ironic chooses by the architecture of the server", "/v2/index/manifests/v1", OK, "/v2/index"},
		"IndexByDigest": {"Ironic takes a digest for the image itself", "/v2/index/manifests/sha256:ab", Fail,
			"an index of several images"},
		"Token":  {"some registries give a token to anyone", "/v2/private/manifests/sha256:ab", Skip, "the registry wants a token"},
		"Denied": {"it cannot be read", "/denied", Fail, "status 403"},
		"Gone":   {"it does not exist", "/gone?sig=secret", Fail, "status 404"},
		"Moved":  {"redirects are followed", "/moved?sig=secret", OK, "/moved"},
		"Loop":   {"not for ever", "/loop", Fail, "too many redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			got := askImage(t.Context(), NewImageClient(time.Minute), server.URL+tc.path, "image of x")
			expect(t, tc.reason, got, tc.want, tc.says)
			if strings.Contains(got.Message, "secret") {
				t.Errorf("%q has what signs the URL", got.Message)
			}
		})
	}
	if heads.Load() != 1 || gets.Load() != 1 {
		t.Errorf("the signed URL was asked %d times by HEAD and %d times by GET, want once each", heads.Load(), gets.Load())
	}
}

func TestImageLocations(t *testing.T) {
	const sum = "d41d8cd98f00b204e9800998ecf8427e"
	properties := func(url, checksum string) map[string]string {
		return map[string]string{v1alpha1.PropertyImageURL: url, v1alpha1.PropertyImageChecksum: checksum}
	}
	osImage := func(name, url, checksum string) v1alpha1.OSImage {
		return v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.OSImageSpec{Properties: properties(url, checksum)}}
	}
	nodeType := func(values map[string]string) v1alpha1.NodeType {
		nodeType := v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		nodeType.Spec.ProviderRef.Name, nodeType.Spec.Properties = "fleet", values
		return nodeType
	}
	bound := provider("")
	bound.Spec.ImageHosts = []string{"images.example.com"}
	for name, tc := range map[string]struct {
		reason   string
		provider v1alpha1.NodeProvider
		types    []v1alpha1.NodeType
		images   []v1alpha1.OSImage
		want     map[string]string
		problem  string
	}{
		"Type": {reason: "with its checksum", provider: provider(""),
			types: []v1alpha1.NodeType{nodeType(properties("http://a/i.qcow2", "http://a/sums"))},
			want:  map[string]string{"http://a/i.qcow2": "image of NodeType gpu", "http://a/sums": "checksum of NodeType gpu"}},
		"OSImage": {reason: "which the type names", provider: provider(""),
			types:  []v1alpha1.NodeType{nodeType(map[string]string{v1alpha1.PropertyOSImage: "noble"})},
			images: []v1alpha1.OSImage{osImage("noble", "http://a/i.qcow2", sum)},
			want:   map[string]string{"http://a/i.qcow2": "image of NodeType gpu"}},
		"Unnamed": {reason: "a class may name it", provider: provider(""), images: []v1alpha1.OSImage{osImage("noble", "http://a/i.qcow2", sum)},
			want: map[string]string{"http://a/i.qcow2": "image of OSImage noble"}},
		"None": {reason: "a class may have the image", provider: provider(""), types: []v1alpha1.NodeType{nodeType(nil)},
			want: map[string]string{}},
		"Unknown": {reason: "a typo, which TestOSImages has", provider: provider(""),
			types: []v1alpha1.NodeType{nodeType(map[string]string{v1alpha1.PropertyOSImage: "x"})}, want: map[string]string{}},
		"OCI": {reason: "the registry is asked for the manifest", provider: provider(""),
			types: []v1alpha1.NodeType{nodeType(properties("oci://r.example.com:5000/images/os@sha256:"+strings.Repeat("ab", 32), ""))},
			want: map[string]string{"https://r.example.com:5000/v2/images/os/manifests/sha256:" + strings.Repeat("ab", 32): "image of NodeType " +
				"gpu"}},
		"NoChecksum": {reason: "Metal3 installs none", provider: provider(""),
			types: []v1alpha1.NodeType{nodeType(properties("http://a/i.qcow2", ""))},
			want:  map[string]string{}, problem: "installs no disk image without one"},
		"NotAllowed": {reason: "that host is not asked", provider: bound,
			types: []v1alpha1.NodeType{nodeType(properties("http://169.254.169.254/i", sum))},
			want:  map[string]string{}, problem: "not among spec.imageHosts"},
		"UnnamedNotAllowed": {reason: "that host is not asked", provider: bound, images: []v1alpha1.OSImage{osImage("noble", "http://a/i.qcow2",
			sum)},
			want: map[string]string{}, problem: "not among spec.imageHosts"},
		"Allowed": {reason: "that host is asked", provider: bound,
			types: []v1alpha1.NodeType{nodeType(properties("http://images.example.com/i", sum))},
			want:  map[string]string{"http://images.example.com/i": "image of NodeType gpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := imageLocations([]v1alpha1.NodeProvider{tc.provider}, tc.types, tc.images)
			if len(got) != len(tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
			for location, what := range tc.want {
				if got[location] != what {
					t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
				}
			}
			if (tc.problem == "") != (len(problems) == 0) || tc.problem != "" && !strings.Contains(problems[0].Message, tc.problem) {
				t.Errorf("%s: the problems are %+v, want %q", tc.reason, problems, tc.problem)
			}
		})
	}
}

func TestOSImages(t *testing.T) {
	const key = v1alpha1.PropertyOSImage
	for name, tc := range map[string]struct {
		reason             string
		ofType, ofProvider map[string]string
		level              Level
		says               string
	}{
		"Exists": {reason: "the type's wins", ofType: map[string]string{key: "noble"}, ofProvider: map[string]string{key: "gone"}, level: OK},
		"Class":  {reason: "a class may name it", level: OK},
		"Emptied": {reason: "the type takes the provider's away, and has an image of its own",
			ofType: map[string]string{key: "", v1alpha1.PropertyImageURL: "http://a/i"}, ofProvider: map[string]string{key: "nobel"}, level: OK},
		"Type": {reason: "a typo", ofType: map[string]string{key: "nobel"}, ofProvider: map[string]string{key: "noble"}, level: Fail,
			says: "the OSImage nobel, which NodeType gpu names,"},
		"Provider": {reason: "a typo for all types", ofProvider: map[string]string{key: "nobel"}, level: Fail,
			says: "the OSImage nobel, which NodeProvider fleet names,"},
	} {
		t.Run(name, func(t *testing.T) {
			provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
			provider.Spec.Properties = tc.ofProvider
			nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
			nodeType.Spec.ProviderRef.Name, nodeType.Spec.Properties = provider.Name, tc.ofType
			image := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "noble"}}
			reader := fake.NewClientBuilder().WithScheme(env.Scheme()).WithObjects(provider, nodeType, image).Build()
			got := (&Cluster{Reader: reader}).OSImages(t.Context())
			if len(got) != 1 || got[0].Level != tc.level || !strings.Contains(got[0].Message, tc.says) {
				t.Errorf("%s: got %+v, want %s and %q", tc.reason, got, tc.level, tc.says)
			}
		})
	}
}
