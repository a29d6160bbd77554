// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// apiServer is the common name of the client certificate that the API server of these tests shows to webhooks.
const apiServer = "kube-apiserver"

// callers is the authority of that certificate.
var callers *pki.Authority

// showCertificate has the API server show a client certificate to webhooks, as docs/webhooks.md says.
func showCertificate(dir string) (flag string, err error) {
	if callers, err = pki.NewAuthority("webhook-clients", clock.RealClock{}); err != nil {
		return "", err
	}
	kubeconfig, configuration := filepath.Join(dir, "webhooks.kubeconfig"), filepath.Join(dir, "admission.yaml")
	pair, err := callers.Client(apiServer)
	if err != nil {
		return "", err
	}
	if err := pair.WriteFiles(dir, apiServer); err != nil {
		return "", err
	}
	for path, text := range map[string]string{
		kubeconfig: fmt.Sprintf(`apiVersion: v1
kind: Config
users:
- name: "*"
  user: {client-certificate: %s, client-key: %s}
`, filepath.Join(dir, apiServer+".crt"), filepath.Join(dir, apiServer+".key")),
		configuration: `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration: &webhooks
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: ` + kubeconfig + `
- name: MutatingAdmissionWebhook
  configuration: *webhooks
`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return "--admission-control-config-file=" + configuration, nil
}

// TestWebhookWithoutClientCertificate: a pod that is not the API server asks which Machines of other tenants use a NodeType.
func TestWebhookWithoutClientCertificate(t *testing.T) {
	fleet(t)
	private := parse[v1alpha1.Machine](t, "{metadata: {namespace: team-b, name: private}, spec: {nodeTypeRef: {name: cpu}}}")
	create(t, private)
	t.Cleanup(func() {
		if err := environment.Client.Delete(context.Background(), private); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, callers.Certificate(), 0o600); err != nil {
		t.Fatal(err)
	}
	namespace := environment.Namespace(t) // others have the Secret's name in default
	environment.Grant(t, namespace, "webhook.yaml")
	webhook := start(t, "", "--namespace="+namespace, "--client-ca-file="+file, "--client-names="+apiServer)
	configure(t, webhook.address)
	rotate(t, namespace, settings)
	webhook.await(t)
	awaitAsked(t)

	stranger, err := pki.NewAuthority("others", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason    string
		authority *pki.Authority
		user      string
		status    int // 0 for no answer at all
		says      string
	}{
		"APIServer": {reason: "it is answered, and hears who uses the type", authority: callers, user: apiServer, status: http.StatusOK,
			says: "Machine team-b/private"},
		"None": {reason: "any pod", status: http.StatusForbidden, says: "--client-ca-file"},
		"OtherName": {reason: "the authority may sign for others too", authority: callers, user: "kubelet", status: http.StatusForbidden,
			says: "--client-names"},
		"Stranger": {reason: "a certificate that anyone can make", authority: stranger, user: apiServer},
	} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}} //nolint:gosec // the answer is what is tested
			if tc.authority != nil {
				pair, err := tc.authority.Client(tc.user)
				if err != nil {
					t.Fatal(err)
				}
				certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
				if err != nil {
					t.Fatal(err)
				}
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
			}
			status, answer, err := review(t.Context(), webhook.address, config)
			if status != tc.status || !strings.Contains(answer, tc.says) || (err != nil) != (tc.status == 0) {
				t.Errorf("%s: got %d, %q, %v", tc.reason, status, answer, err)
			}
			if tc.status != http.StatusOK && strings.Contains(answer, "private") {
				t.Errorf("%s: it hears of a Machine: %q", tc.reason, answer)
			}
		})
	}
	poll.Eventually(t, "refusals are counted", func(ctx context.Context) error {
		text, err := get(ctx, webhook.metrics+"/metrics")
		if err == nil && !strings.Contains(text, `karpenter_metal3_webhook_refused_requests_total{reason="certificate"} 2`) {
			err = fmt.Errorf("they are not, in:\n%s", text)
		}
		return err
	})
}

// review asks as the API server does, whether a NodeType may be deleted.
func review(ctx context.Context, address string, config *tls.Config) (status int, answer string, err error) {
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE","name":"cpu",` +
		`"resource":{"group":"karpenter.metal3.io","version":"v1alpha1","resource":"nodetypes"},` +
		`"kind":{"group":"karpenter.metal3.io","version":"v1alpha1","kind":"NodeType"},"oldObject":{"metadata":{"name":"cpu"}}}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+"/validate/nodetypes", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }() // it is read to the end
	if response.ProtoMajor != 1 {
		return 0, "", fmt.Errorf("it answers %s without --enable-http2", response.Proto)
	}
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// TestSilentConnections: a pod without any credentials keeps a thousand connections on which it announces a body and sends none. What
// others write is admitted all the same.
func TestSilentConnections(t *testing.T) {
	system.Only(t)
	fleet(t)
	namespace := environment.Namespace(t) // others have the Secret's name in default
	environment.Grant(t, namespace, "webhook.yaml")
	webhook := start(t, "", "--namespace="+namespace)
	configure(t, webhook.address)
	rotate(t, namespace, settings)
	webhook.await(t)
	awaitAsked(t)

	const connections = 1000
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var opened atomic.Int64
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	for range connections {
		clients.Go(func() {
			for ctx.Err() == nil {
				connection, err := dialer.DialContext(ctx, "tcp", webhook.address)
				if err != nil {
					continue
				}
				closed := context.AfterFunc(ctx, func() { _ = connection.Close() })
				_, _ = io.WriteString(connection, "POST /validate/machines HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
				opened.Add(1)
				_, _ = io.Copy(io.Discard, connection) // until the webhook closes it
				closed()
				_ = connection.Close()
			}
		})
	}
	defer clients.Wait()
	defer stop()
	poll.Eventually(t, "the connections are open", func(context.Context) error {
		if count := opened.Load(); count < connections {
			return fmt.Errorf("%d are", count)
		}
		return nil
	})
	for n := range 20 {
		if err := write(t.Context(), t, fmt.Sprintf("beside-silence-%d", n)); err != nil {
			t.Errorf("write %d: %v", n, err)
		}
	}
	t.Logf("%d connections were opened", opened.Load())
}
