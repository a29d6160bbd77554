// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
)

// TestServerJoinsVCluster: vCluster's endpoint for joining is not open source. Here a server of ours serves one. What it has in common
// with vCluster's is what decides whether our arguments reach the kubelet: its script writes the kubelet's service, with the
// environment files that vCluster's published installers have in it, and joins by kubeadm.
func TestServerJoinsVCluster(t *testing.T) {
	for name, environment := range map[string][]string{
		"OlderScript": {"/var/lib/kubelet/kubeadm-flags.env"},
		"NewerScript": {"/var/lib/kubelet/kubeadm-flags.env", "/etc/vcluster/vcluster-flags.env"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newClusterFixture(t, ipv4Network())
			w.startCluster(t, cluster.Options{})
			w.install(t, w.joinData(t, v1alpha1.JoinVCluster, w.serveJoin(t, environment), document), nil)

			server := w.turnOn(t, container)
			node := w.untilNodeReady(t, w.Client)
			w.checkJoined(t, node, imageSum)
			if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "example.com/new" }) {
				t.Errorf("the Node lacks the taint of the user data: it has %v", node.Spec.Taints)
			}
			// The command of docs/migration.md.
			output, err := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), "--kubeconfig", w.Kubeconfig,
				"get", "nodes", "-o", "custom-columns=NAME:.metadata.name,PROVIDER:.spec.providerID").CombinedOutput()
			if want := nodeName + " " + providerID; err != nil || !strings.Contains(strings.Join(strings.Fields(string(output)), " "), want) {
				t.Errorf("want the line %q, got %v, %s", want, err, output)
			}
			t.Logf("kubectl get nodes:\n%s", output)
			w.turnOff(t, server)
		})
	}
}

// vclusterScript installs nothing: the image has all that it would install.
var vclusterScript = template.Must(template.New("join").Parse(`#!/bin/sh
set -eu
sysctl -w net.ipv4.ip_forward=1
systemctl stop kubelet
mkdir -p /etc/systemd/system/kubelet.service.d
cat >/etc/systemd/system/kubelet.service <<'END'
[Unit]
ConditionPathExists=/var/lib/kubelet/config.yaml
[Service]
ExecStart=/usr/bin/kubelet
Restart=always
RestartSec=1s
[Install]
WantedBy=multi-user.target
END
cat >/etc/systemd/system/kubelet.service.d/10-kubeadm.conf <<'END'
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
{{- range .Environment}}
EnvironmentFile=-{{.}}
{{- end}}
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
END
systemctl daemon-reload
systemctl enable kubelet
kubeadm join {{.Endpoint}} --token {{.Token}} --discovery-token-ca-cert-hash {{.Hash}}
`))

// serveJoin serves GET /node/join to those that have a token with the labels of vCluster's own. It returns the endpoint. Its certificate
// is the API server's, because a vCluster serves both.
func (w *clusterFixture) serveJoin(t *testing.T, environment []string) (endpoint string) {
	t.Helper()
	hashes, err := bootstrap.CACertHashes(w.CertificateAuthority())
	if err != nil {
		t.Fatal(err)
	}
	pki := filepath.Join(filepath.Dir(w.Kubeconfig), "tenant", "pki")
	certificate, err := tls.LoadX509KeyPair(filepath.Join(pki, "apiserver.crt"), filepath.Join(pki, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(w.network.Address.Addr().String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /node/join", func(response http.ResponseWriter, request *http.Request) {
		token := request.URL.Query().Get("token")
		id, half, _ := strings.Cut(token, ".")
		secret, err := w.kube.CoreV1().Secrets(metav1.NamespaceSystem).Get(request.Context(), "bootstrap-token-"+id, metav1.GetOptions{})
		if err != nil || string(secret.Data["token-secret"]) != half ||
			secret.Labels["vcluster.loft.sh/token"] != "true" || secret.Labels["vcluster.loft.sh/token-node-type"] != "worker" {
			t.Errorf("the token is none of vCluster's: %v", err)
			http.Error(response, "forbidden", http.StatusForbidden)
			return
		}
		if err := vclusterScript.Execute(response, map[string]any{"Environment": environment, "Token": token, "Hash": hashes[0],
			"Endpoint": w.endpoint()}); err != nil {
			t.Error(err)
		}
	})
	server := &httptest.Server{Listener: listener, TLS: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return listener.Addr().String()
}
