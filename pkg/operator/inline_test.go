// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// marker is in each value of a kubeconfig, and must be in no message.
const marker = "MARKER"

// TestKubeconfigIsData sets each field that client-go has, one at a time. A field that a later client-go has fails the test until it is
// decided on.
func TestKubeconfigIsData(t *testing.T) {
	type decision struct {
		reason  string
		refused bool
	}
	decisions := map[string]map[string]decision{
		"clusters[c].cluster.": {
			"server":                     {reason: "an https address", refused: false},
			"tls-server-name":            {reason: "the name in the certificate that the CA has signed", refused: false},
			"insecure-skip-tls-verify":   {reason: "a server in between would get the token", refused: true},
			"certificate-authority":      {reason: "a file of the pod", refused: true},
			"certificate-authority-data": {reason: "a CA", refused: false},
			"proxy-url":                  {reason: "the pod's network would be used to reach another address", refused: true},
			"disable-compression":        {reason: "it costs bytes", refused: false},
			"extensions":                 {reason: "client-go does not read them", refused: false},
		},
		"users[u].user.": {
			"client-certificate":      {reason: "a file of the pod", refused: true},
			"client-certificate-data": {reason: "a certificate", refused: false},
			"client-key":              {reason: "a file of the pod", refused: true},
			"client-key-data":         {reason: "a key", refused: false},
			"token":                   {reason: "a token", refused: false},
			"tokenFile":               {reason: "the token of the pod's service account would go to the server", refused: true},
			"as":                      {reason: "the provider would be another user than the cluster's rights were given to", refused: true},
			"as-uid":                  {reason: "as for as", refused: true},
			"as-groups":               {reason: "as for as", refused: true},
			"as-user-extra":           {reason: "as for as", refused: true},
			"username":                {reason: "no API server takes passwords", refused: true},
			"password":                {reason: "no API server takes passwords", refused: true},
			"auth-provider":           {reason: "a program", refused: true},
			"exec":                    {reason: "a program in the pod", refused: true},
			"extensions":              {reason: "client-go does not read them", refused: false},
		},
	}
	for path, object := range map[string]any{"clusters[c].cluster.": clientcmdv1.Cluster{}, "users[u].user.": clientcmdv1.AuthInfo{}} {
		kind := reflect.TypeOf(object)
		if n := kind.NumField(); n != len(decisions[path]) {
			t.Errorf("%v has %d fields, %d are known", kind, n, len(decisions[path]))
		}
		for i := range kind.NumField() {
			name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			decision, found := decisions[path][name]
			if !found {
				t.Errorf("nothing says whether %s%s of a tenant's kubeconfig is accepted", path, name)
				continue
			}
			content := map[string]map[string]any{
				"clusters[c].cluster.": {"server": "https://127.0.0.1:1"}, "users[u].user.": {"token": marker},
			}
			content[path][name] = valueOf(kind.Field(i), name)
			text := kubeconfigWith(t, content["clusters[c].cluster."], content["users[u].user."])
			_, err := loadTenant(t, text)
			if refused := err != nil && strings.Contains(err.Error(), "is refused"); refused != decision.refused {
				t.Errorf("%s%s (%s): got %v", path, name, decision.reason, err)
			}
			if decision.refused && err != nil {
				checkProblem(t, decision.reason, err, []string{path + name, "--tenant-allow-unsafe-kubeconfig", "kubeconfig of the tenant"})
			}
			if err != nil && strings.Contains(err.Error(), marker) {
				t.Errorf("%s%s: the message has the value: %v", path, name, err)
			}
		}
	}
}

// valueOf is a value of a field, with the marker in it where it can be.
func valueOf(field reflect.StructField, name string) any {
	switch {
	case name == "server":
		return "https://127.0.0.2:1"
	case name == "extensions":
		return []any{map[string]any{"name": "x", "extension": map[string]any{"by": marker}}}
	case name == "exec":
		return map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "command": marker, "interactiveMode": "Never"}
	case name == "auth-provider":
		return map[string]any{"name": marker, "config": map[string]any{"x": marker}}
	case field.Type.Kind() == reflect.Bool:
		return true
	case field.Type.Kind() == reflect.String:
		return marker
	case field.Type == reflect.TypeFor[[]byte]():
		return []byte(marker)
	case field.Type == reflect.TypeFor[[]string]():
		return []string{marker}
	}
	return map[string][]string{marker: {marker}}
}

func TestKubeconfigServer(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, server, message string
	}{
		"HTTP":     {"the token can be read on the way", "http://127.0.0.1:1", "server (not https)"},
		"NoScheme": {"client-go would take http where there is no CA", "127.0.0.1:1", "server (not https)"},
		"Socket":   {"no API server", "unix:///run/x.sock", "server (not https)"},
		"Password": {"the address is in messages and logs", "https://u:" + marker + "@127.0.0.1:1", "server (with a user or a query)"},
		"Query":    {"the address is in messages and logs", "https://127.0.0.1:1?token=" + marker, "server (with a user or a query)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadTenant(t, kubeconfigWith(t, map[string]any{"server": tc.server}, map[string]any{"token": marker}))
			checkProblem(t, tc.reason, err, []string{"clusters[c].cluster." + tc.message})
			if strings.Contains(err.Error(), marker) {
				t.Errorf("the message has the value: %v", err)
			}
		})
	}
}

// TestUnsafeKubeconfig: what is refused is of the chosen context, of a foreign cluster, and without the flag.
func TestUnsafeKubeconfig(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "kubeconfig")
	if err := os.WriteFile(filepath.Join(directory, "token"), []byte("from-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := kubeconfigWith(t, map[string]any{"server": "https://127.0.0.1:1"}, map[string]any{"tokenFile": "token"})
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cluster := range map[string]*Cluster{
		"by the flag":     {Foreign: true, AllowUnsafe: true},
		"of the platform": {},
	} {
		cluster.Kubeconfig, cluster.QPS, cluster.Burst = file, 1, 1
		_, config, err := cluster.RESTConfig(t.Context(), "test")
		if err != nil || config.BearerTokenFile != filepath.Join(directory, "token") {
			t.Errorf("%s: got %v, %v; the path is relative to the kubeconfig", name, config, err)
		}
	}
	other := strings.Replace(text, "current-context: one", "current-context: two", 1)
	other = strings.Replace(other, "contexts:\n", "contexts:\n- {name: two, context: {cluster: c, user: v}}\n", 1)
	other = strings.Replace(other, "users:\n", "users:\n- {name: v, user: {token: t}}\n", 1)
	if config, err := loadTenant(t, other); err != nil || config.BearerTokenFile != "" || config.BearerToken != "t" {
		t.Errorf("a user that is not used is not refused: got %v, %v", config, err)
	}
}

// TestKubeconfigMessages damages kubeconfigs: no message has what was in one.
func TestKubeconfigMessages(t *testing.T) {
	whole := kubeconfigWith(t, map[string]any{"server": "https://127.0.0.1:1"}, map[string]any{"token": marker, "client-key-data": marker})
	random := rand.New(rand.NewPCG(1, 2))
	failed := 0
	for range 3000 {
		text := []byte(whole)
		for range 1 + random.IntN(3) {
			position := random.IntN(len(text))
			switch random.IntN(3) {
			case 0:
				text[position] = ":{}[]'\"\n\t&*!|>- 0"[random.IntN(17)]
			case 1: // not so much that a value becomes the name of something
				text = append(text[:position], text[min(len(text), position+random.IntN(8)):]...)
			default:
				text = append(text[:position], append([]byte("x: "), text[position:]...)...)
			}
		}
		if _, err := loadTenant(t, string(text)); err != nil {
			failed++
			if strings.Contains(err.Error(), marker) {
				t.Fatalf("the message has what the file has: %v\n%s", err, text)
			}
		}
	}
	if failed < 500 {
		t.Errorf("only %d were damaged", failed)
	}
}

func kubeconfigWith(t *testing.T, cluster, user map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "one",
		"clusters": []any{map[string]any{"name": "c", "cluster": cluster}},
		"users":    []any{map[string]any{"name": "u", "user": user}},
		"contexts": []any{map[string]any{"name": "one", "context": map[string]any{"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func loadTenant(t *testing.T, text string) (*rest.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := &Cluster{Name: "tenant cluster", Prefix: "tenant-", Kubeconfig: file, Foreign: true}
	config, _, err := cluster.load()
	return config, err
}

// closed counts how often it is told to close its idle connections.
type closed struct {
	http.RoundTripper
	times *int
}

func (c closed) CloseIdleConnections() { *c.times++ }

// TestIdleConnectionsAreClosed: client-go closes those of a kubeconfig whose credentials change, through what wraps them.
func TestIdleConnectionsAreClosed(t *testing.T) {
	times := 0
	utilnet.CloseIdleConnectionsFor(sameAddress{closed{http.DefaultTransport, &times}})
	if times != 1 {
		t.Errorf("idle connections were closed %d times, want once", times)
	}
}

// TestNoRedirects: an API server cannot have this process ask another address.
func TestNoRedirects(t *testing.T) {
	asked := atomic.Bool{}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Store(true) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	response, err := (&http.Client{Transport: sameAddress{http.DefaultTransport}}).Get(server.URL)
	if err == nil {
		response.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "would redirect the request") || asked.Load() {
		t.Errorf("the other was asked: %t, error %v", asked.Load(), err)
	}
}
