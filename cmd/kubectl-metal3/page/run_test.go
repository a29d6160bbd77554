// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// log is what the program has output.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) write(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line + "\n")
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// program is the page while it runs.
type program struct {
	url    string
	client *http.Client
	output *log
	// end ends it, and returns what it has returned.
	end func() error
}

// start runs the program with TLS, and waits until it is ready.
func start(t *testing.T) *program {
	t.Helper()
	dir := t.TempDir()
	authority, err := pki.NewAuthority("page", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Serving("page", nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pair.WriteFiles(dir, "tls"), pki.WriteFile(filepath.Join(dir, "ca.crt"), environment.Config.CAData)); err != nil {
		t.Fatal(err)
	}
	o := newOptions()
	o.server, o.authority, o.certDir = environment.Config.Host, filepath.Join(dir, "ca.crt"), dir
	o.address, o.healthAddress = freeport.ForTest(t), freeport.ForTest(t)
	p := &program{url: "https://" + o.address, output: &log{}}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(p.output.write, funcr.Options{Verbosity: 10})))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	t.Cleanup(cancel)
	for _, path := range []string{"/healthz", "/readyz"} {
		poll.Eventually(t, path+" answers", func(ctx context.Context) error {
			return cluster.CheckURL(ctx, http.DefaultClient, "http://"+o.healthAddress+path)
		})
	}
	p.end = func() error { cancel(); return poll.Receive(t, "its end", ended) }
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Certificate())
	p.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return p
}

// ask asks for a page as a proxy does. An empty token is none.
func (p *program) ask(t *testing.T, method, path, token string, accept ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header["Accept"] = accept
	answer, err := p.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// TestReaders: the rights of each token on a real API server decide what its reader sees on one page.
func TestReaders(t *testing.T) {
	hosts, acme, globex := environment.Namespace(t), environment.Namespace(t), environment.Namespace(t)
	environment.CreateHost(t, env.AvailableHost(hosts, "server-01", nil))
	for namespace, name := range map[string]string{acme: "acme", globex: "globex"} {
		tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		tenant.Spec.APIServerEndpoint = "192.0.2.1:6443"
		create(t, tenant)
	}
	platform := environment.Reader(t, "platform", map[string][]string{"": {"*"}})
	tenant := environment.Reader(t, "tenant", map[string][]string{acme: {"machines", "tenantclusters"}})
	nobody := environment.Reader(t, "nobody", nil)
	page := start(t)

	ours, theirs := acme+"/acme", globex+"/globex"
	const missing = "you may not list or not watch tenantclusters"
	for name, tc := range map[string]struct {
		path, token string
		want        int
		has, hasNot []string
		reason      string
	}{
		"Platform": {path: "/capacity", token: platform, want: 200, has: []string{ours, theirs}, hasNot: []string{missing},
			reason: "it may list all"},
		"PlatformServers": {path: "/", token: platform, want: 200, has: []string{"server-01"}, reason: "it may list all"},
		"PlatformNamespace": {path: "/namespaces/" + globex + "/capacity", token: platform, want: 200, has: []string{theirs},
			hasNot: []string{ours}, reason: "the address chooses one"},
		"Tenant": {path: "/namespaces/" + acme + "/capacity", token: tenant, want: 200, has: []string{ours},
			hasNot: []string{theirs, missing}, reason: "it may list its own"},
		"TenantServers": {path: "/namespaces/" + acme + "/", token: tenant, want: 200,
			has: []string{"you may not list or not watch baremetalhosts"}, hasNot: []string{"server-01"}, reason: "it may not list servers"},
		"TenantAll": {path: "/capacity", token: tenant, want: 200, has: []string{missing}, hasNot: []string{ours, theirs},
			reason: "it may not list those of all namespaces"},
		"TenantOther": {path: "/namespaces/" + globex + "/capacity", token: tenant, want: 200, has: []string{missing},
			hasNot: []string{theirs}, reason: "it may not list those of another"},
		"Nobody": {path: "/namespaces/" + acme + "/capacity", token: nobody, want: 200, has: []string{missing}, hasNot: []string{ours},
			reason: "a token without rights"},
		"NoToken": {path: "/", want: 401, has: []string{"header Authorization"}, reason: "it is not known who reads"},
		"Wrong":   {path: "/", token: "wrong", want: 401, has: []string{"sign in again"}, reason: "no token of the API server"},
		"Changed": {path: "/", token: platform[:len(platform)-8] + "AAAAAAAA", want: 401, has: []string{"sign in again"},
			reason: "the signature is another"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := page.ask(t, http.MethodGet, tc.path, tc.token)
			body, err := io.ReadAll(answer.Body)
			content := string(body)
			if err != nil || answer.StatusCode != tc.want {
				t.Errorf("%s: status %d, want %d: %s (%v)", tc.reason, answer.StatusCode, tc.want, content, err)
			}
			for _, want := range tc.has {
				if !strings.Contains(content, want) {
					t.Errorf("%s: there is no %q in %s", tc.reason, want, content)
				}
			}
			for _, other := range tc.hasNot {
				if strings.Contains(content, other) {
					t.Errorf("%s: it shows %q", tc.reason, other)
				}
			}
		})
	}
	if answer := page.ask(t, http.MethodPost, "/", platform); answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a write has the status %d", answer.StatusCode)
	}

	// It follows the cluster, and a stream ends with the program.
	stream := page.ask(t, http.MethodGet, "/", platform, "text/event-stream")
	environment.CreateHost(t, env.AvailableHost(hosts, "server-02", nil))
	for lines := bufio.NewReader(stream.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "server-02") {
			break
		}
	}
	if err := page.end(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if _, err := io.ReadAll(stream.Body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if text := page.output.String(); !strings.Contains(text, "system:serviceaccount:default:tenant") {
		t.Errorf("it does not say who reads: %s", text)
	}
	for _, token := range []string{platform, tenant, nobody} {
		if signature := token[strings.LastIndexByte(token, '.')+1:]; strings.Contains(page.output.String(), signature) {
			t.Error("a token is in the log")
		}
	}
}
