// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signin has the page for a team behind a real proxy, identity provider and API server, configured as docs/screen.md says.
package signin

import (
	"bufio"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const (
	clientID = "karpenter-metal3-page"
	// secret is that of the client and of the users, and encrypts cookies, for which it must have 32 characters.
	secret = "a secret of thirty-two character"
	// The group of ann is that of the Role in docs/screen.md; bob is in none.
	ann, bob = "ann@example.com", "bob@example.com"
)

var binaries = cluster.Binaries{filepath.Join("..", "..", "bin")}

// TestSignIn: users sign in with a real identity provider, and see on the page what the API server lets them read.
func TestSignIn(t *testing.T) {
	system.Only(t)
	s := start(t)
	t.Run("Rights", s.rights)
	t.Run("Session", s.session)
	t.Run("Tokens", s.tokens)
}

// rights: the Role of docs/screen.md shows those of one tenant to its group.
func (s *setup) rights(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, user, path string
		has, hasNot        []string
	}{
		"Tenant": {reason: "the group of the token may list those of its namespace", user: ann, path: "/namespaces/acme/capacity",
			has: []string{"acme/acme"}, hasNot: []string{"globex", "you may not list or not watch tenantclusters"}},
		"TenantMachines": {reason: "the same", user: ann, path: "/namespaces/acme/pending", has: []string{"acme-worker"},
			hasNot: []string{"globex"}},
		"TenantOther": {reason: "the group has no rights there", user: ann, path: "/namespaces/globex/pending",
			has:    []string{"you may not list or not watch machines", "kubectl metal3 ui --tenant-kubeconfig FILE shows them"},
			hasNot: []string{"globex-worker"}},
		"TenantAll": {reason: "nor in all namespaces", user: ann, path: "/capacity",
			has: []string{"you may not list or not watch tenantclusters"}, hasNot: []string{"acme/acme", "globex"}},
		"Platform":         {reason: "the user may list all", user: bob, path: "/capacity", has: []string{"acme/acme", "globex/globex"}},
		"PlatformMachines": {reason: "the same", user: bob, path: "/pending", has: []string{"acme-worker", "globex-worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			browser := s.browser(t)
			answer := s.signIn(t, browser, tc.user, tc.path)
			if answer.status != http.StatusOK || answer.url.Path != tc.path {
				t.Fatalf("%s: status %d at %s: %s", tc.reason, answer.status, answer.url, answer.text)
			}
			for _, want := range tc.has {
				if !strings.Contains(answer.text, want) {
					t.Errorf("%s: there is no %q in %s", tc.reason, want, answer.text)
				}
			}
			for _, unwanted := range tc.hasNot {
				if strings.Contains(strings.ReplaceAll(answer.text, tc.path, ""), unwanted) {
					t.Errorf("%s: it shows %q: %s", tc.reason, unwanted, answer.text)
				}
			}
		})
	}
}

// session: it is refreshed, its stream comes through the proxy as it is sent, and signing out ends it.
func (s *setup) session(t *testing.T) {
	browser := s.browser(t)
	if shown := s.signIn(t, browser, bob, "/pending"); shown.status != http.StatusOK {
		t.Fatalf("status %d at %s: %s", shown.status, shown.url, shown.text)
	}
	poll.Eventually(t, "the proxy gets a new token", func(ctx context.Context) error {
		response, err := browser.Do(request(t, http.MethodGet, s.fleet+"/pending", "").WithContext(ctx))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK || response.Request.URL.Path != "/pending" {
			t.Fatalf("status %s at %s", response.Status, response.Request.URL)
		}
		if len(response.Cookies()) == 0 {
			return errors.New("the cookie is not set again")
		}
		return nil
	})

	stream := request(t, http.MethodGet, s.fleet+"/pending", "").WithContext(t.Context())
	stream.Header.Set("Accept", "text/event-stream")
	response, err := browser.Do(stream)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	machine := machineOf("acme", "acme-late")
	if err := s.environment.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream of %s ends without the new Machine: %v", response.Request.URL, err)
		}
		if strings.Contains(line, machine.Name) {
			break
		}
	}

	if out := open(t, browser, request(t, http.MethodGet, s.fleet+"/oauth2/sign_out?rd=%2Fpending", "")); form.FindString(out.text) == "" ||
		!strings.HasPrefix(out.url.String(), s.issuer) {
		t.Errorf("after signing out there is no form of the identity provider, but status %d at %s: %s", out.status, out.url, out.text)
	}
}

// tokens: behind the proxy, the page takes one that the identity provider has signed for its client, and no other.
func (s *setup) tokens(t *testing.T) {
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason string
		key    *rsa.PrivateKey
		claims map[string]any
		want   int
	}{
		"Valid":    {reason: "the others differ from it by one thing each", key: s.key, want: 200},
		"Expired":  {reason: "it was valid an hour ago", key: s.key, claims: map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, want: 401},
		"Forged":   {reason: "another key has signed it", key: stranger, want: 401},
		"Audience": {reason: "it is for another client", key: s.key, claims: map[string]any{"aud": "another"}, want: 401},
		"Issuer":   {reason: "another has issued it", key: s.key, claims: map[string]any{"iss": "https://example.com"}, want: 401},
	} {
		t.Run(name, func(t *testing.T) {
			asked := request(t, http.MethodGet, s.page+"/capacity", "")
			asked.Header.Set("Authorization", "Bearer "+s.token(t, tc.key, tc.claims))
			shown := open(t, s.browser(t), asked)
			if shown.status != tc.want || strings.Contains(shown.text, "acme/acme") != (tc.want == http.StatusOK) ||
				strings.Contains(shown.text, "sign in again") != (tc.want == http.StatusUnauthorized) {
				t.Errorf("%s: status %d, want %d: %s", tc.reason, shown.status, tc.want, shown.text)
			}
		})
	}
}

// token is an ID token of bob, with other claims in place of the usual ones.
func (s *setup) token(t *testing.T, key *rsa.PrivateKey, others map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": s.issuer, "aud": clientID, "sub": bob, "email": bob, "email_verified": true,
		"iat": time.Now().Add(-2 * time.Hour).Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, others)
	content, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + base64.RawURLEncoding.EncodeToString(content)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// setup is the page behind all that is in front of it.
type setup struct {
	// fleet is the URL that users have, issuer that of the identity provider, and page that of the page itself, which they do not reach.
	fleet, issuer, page string
	// authority is that of all certificates but the API server's.
	authority *x509.CertPool
	// key signs the tokens of the identity provider.
	key         *rsa.PrivateKey
	environment *env.Environment
}

func start(t *testing.T) *setup {
	t.Helper()
	dex, proxy, served, probes := freeport.ForTest(t), freeport.ForTest(t), freeport.ForTest(t), freeport.ForTest(t)
	s := &setup{issuer: "https://" + dex, page: "http://" + served, authority: x509.NewCertPool()}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	s.certify(t, dir)
	s.fleet = s.ingress(t, file, proxy)

	processes := process.ForTest(t, dir)
	run := func(program, ready string, spec process.Spec) {
		t.Helper()
		if err := binaries.Start(processes, program, spec); err != nil {
			t.Fatalf("starting %s (run `make oidc-tools build` first), %v", program, err)
		}
		if err := cluster.AwaitURL(t.Context(), program+" answers", s.browser(t), ready); err != nil {
			t.Fatal(err)
		}
	}
	writeJSON(t, file("dex.json"), map[string]any{
		"issuer": s.issuer, "certificate": file("tls.crt"), "key": file("tls.key"), "signingKey": file("signing.key"),
		"clients": []any{map[string]any{"id": clientID, "secret": secret, "redirectURIs": []string{s.fleet + "/oauth2/callback"}}},
		"users":   map[string]any{ann: map[string]any{"password": secret, "groups": []string{"acme"}}, bob: map[string]any{"password": secret}},
	})
	run("dex", s.issuer+"/.well-known/openid-configuration", process.Spec{Args: []string{file("dex.json")}})

	flags := strings.Fields(strings.ReplaceAll(documented(t, "--oidc-issuer-url"), "https://login.example.com", s.issuer))
	s.environment = env.NewEnvironment(t, append(flags, "--oidc-ca-file="+file("ca.crt"))...)
	fill(t, s.environment)
	if err := pki.WriteFile(file("apiserver.crt"), s.environment.Config.CAData); err != nil {
		t.Fatal(err)
	}
	run("page", "http://"+probes+"/readyz", process.Spec{Args: []string{"--server=" + s.environment.Config.Host,
		"--certificate-authority=" + file("apiserver.crt"), "--page-bind-address=" + served, "--health-probe-bind-address=" + probes}})
	t.Cleanup(func() { // otherwise the API server, which ends first, waits a minute for its watches
		if err := processes.Stop("page"); err != nil {
			t.Error(err)
		}
	})

	values := struct {
		ExtraArgs map[string]any `json:"extraArgs"`
	}{}
	if err := yaml.Unmarshal([]byte(documented(t, "extraArgs:")), &values); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"oidc-issuer-url": s.issuer, "upstream": s.page, "cookie-refresh": "1s"} {
		if values.ExtraArgs[name] == nil {
			t.Errorf("docs/screen.md does not set %s", name)
		}
		values.ExtraArgs[name] = value
	}
	// What the chart of oauth2-proxy adds: the address, and a file with what it has by default.
	const defaults = "email_domains = [ \"*\" ]\nupstreams = [ \"file:///dev/null\" ]\n"
	if err := pki.WriteFile(file("oauth2_proxy.cfg"), []byte(defaults)); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"--http-address=" + proxy, "--config=" + file("oauth2_proxy.cfg"), "--provider-ca-file=" + file("ca.crt")}
	for name, value := range values.ExtraArgs {
		arguments = append(arguments, fmt.Sprintf("--%s=%v", name, value))
	}
	run("oauth2-proxy", "http://"+proxy+"/ready", process.Spec{Args: arguments, Env: []string{"OAUTH2_PROXY_CLIENT_ID=" + clientID,
		"OAUTH2_PROXY_CLIENT_SECRET=" + secret, "OAUTH2_PROXY_COOKIE_SECRET=" + secret}})
	return s
}

// certify writes an authority, a certificate of it for this machine, and the key that signs tokens.
func (s *setup) certify(t *testing.T, dir string) {
	t.Helper()
	authority, err := pki.NewAuthority("example", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Serving("example", nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s.authority.AppendCertsFromPEM(authority.Certificate())
	if s.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		t.Fatal(err)
	}
	signing := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := errors.Join(pair.WriteFiles(dir, "tls"), pki.WriteFile(filepath.Join(dir, "ca.crt"), authority.Certificate()),
		pki.WriteFile(filepath.Join(dir, "signing.key"), signing)); err != nil {
		t.Fatal(err)
	}
}

// ingress has TLS in front of the proxy, and returns its URL.
func (s *setup) ingress(t *testing.T, file func(string) string, proxy string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(file("tls.crt"), file("tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: proxy}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// documented is the only block of the section of docs/screen.md that has the text.
func documented(t *testing.T, text string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "screen.md"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, block := range page.Blocks(string(content)) {
		if block.Section == "In the cluster, for a team" && strings.Contains(block.Text(), text) {
			found = append(found, block.Text())
		}
	}
	if len(found) != 1 {
		t.Fatalf("docs/screen.md has %d blocks with %s in that section, want one", len(found), text)
	}
	return found[0]
}

func writeJSON(t *testing.T, file string, content any) {
	t.Helper()
	encoded, err := json.Marshal(content)
	if err == nil {
		err = pki.WriteFile(file, encoded)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fill creates two tenants with a Machine each, the Role of docs/screen.md for the group of one of them, and rights for bob to read all.
func fill(t *testing.T, environment *env.Environment) {
	t.Helper()
	all := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "fleet-reader"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.Group, bmov1alpha1.GroupVersion.Group}, Resources: []string{"*"},
				Verbs: []string{"list", "watch"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "fleet-reader"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "oidc:" + bob}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fleet-reader"}},
	}
	for _, name := range []string{"acme", "globex"} {
		tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
		tenant.Spec.APIServerEndpoint = "192.0.2.1:6443"
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, tenant, machineOf(name, name+"-worker"))
	}
	for document := range strings.SplitSeq(documented(t, "kind: RoleBinding"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
	for _, object := range all {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func machineOf(namespace, name string) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "n1"}
	return machine
}

// browser is one that nobody has used yet.
func (s *setup) browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.authority}}}
}

// answer is what a browser shows in the end.
type answer struct {
	status int
	url    *url.URL
	text   string
}

// open follows all redirects.
func open(t *testing.T, browser *http.Client, request *http.Request) answer {
	t.Helper()
	response, err := browser.Do(request.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: response.StatusCode, url: response.Request.URL, text: string(content)}
}

func request(t *testing.T, method, address, body string) *http.Request {
	t.Helper()
	made, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

var form = regexp.MustCompile(`<form method="post"(?: action="([^"]+)")?`)
var hidden = regexp.MustCompile(`name="req" value="([^"]+)"`)

// signIn opens a path of the fleet, is sent to the form of the identity provider, fills it in, and grants what the proxy asks for.
func (s *setup) signIn(t *testing.T, browser *http.Client, user, path string) answer {
	t.Helper()
	asked := open(t, browser, request(t, http.MethodGet, s.fleet+path, ""))
	consent := s.submit(t, browser, asked, url.Values{"login": {user}, "password": {secret}})
	number := hidden.FindStringSubmatch(consent.text)
	if number == nil {
		t.Fatalf("%s is not asked for consent: %d at %s: %s", user, consent.status, consent.url, consent.text)
	}
	return s.submit(t, browser, consent, url.Values{"req": {number[1]}, "approval": {"approve"}})
}

// submit fills in the first form of a page of the identity provider.
func (s *setup) submit(t *testing.T, browser *http.Client, shown answer, fields url.Values) answer {
	t.Helper()
	found := form.FindStringSubmatch(shown.text)
	if found == nil || !strings.HasPrefix(shown.url.String(), s.issuer) {
		t.Fatalf("there is no form of the identity provider, but status %d at %s: %s", shown.status, shown.url, shown.text)
	}
	action, err := shown.url.Parse(html.UnescapeString(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	filled := request(t, http.MethodPost, action.String(), fields.Encode())
	filled.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return open(t, browser, filled)
}
