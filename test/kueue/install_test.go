// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/chart"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/vcluster"
)

// controller is one of another project, and how its chart names things.
type controller struct {
	name, module, account string
	// configuration is the beginning of its configuration file.
	configuration string
	// issues is whether it makes the certificate of its webhooks itself. The others do that at a path of the machine that is not theirs here.
	issues bool
}

var (
	// The configuration is the one of Kueue's chart but for addresses, metrics, replicas, and what Kueue has no Service for here.
	kueue = controller{name: "kueue", module: "sigs.k8s.io/kueue", account: "kueue-controller-manager", issues: true,
		configuration: `apiVersion: config.kueue.x-k8s.io/v1beta2
clientConnection: {qps: 50, burst: 100}
featureGates: {VisibilityOnDemand: false}
integrations: {frameworks: [batch/job, pod]}`}
	jobSet = controller{name: "jobset", module: "sigs.k8s.io/jobset", account: "jobset-controller",
		configuration: "apiVersion: config.jobset.x-k8s.io/v1alpha1"}
	leaderWorkerSet = controller{name: "lws", module: "sigs.k8s.io/lws", account: "lws-controller-manager",
		configuration: "apiVersion: config.lws.x-k8s.io/v1alpha1"}
)

// here is the rest of a configuration file, which is alike in all of them: ports of loopback, and where the certificates are.
const here = `
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: %d, certDir: %s}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: %v}
`

// install installs the chart of a controller, and runs its program as a process with the rights of the chart's service account.
func (w *fixture) install(t *testing.T, c controller) {
	t.Helper()
	ports, err := freeport.Reserve(2)
	if err != nil {
		t.Fatal(err)
	}
	health, webhooks := ports[0], ports[1]
	helm, err := binaries.Find("helm")
	if err != nil {
		t.Fatal(err)
	}
	program, err := binaries.Find(c.name)
	if err != nil {
		t.Fatalf("run `make kueue-tools` first, %v", err)
	}
	namespace := c.name + "-system"
	objects, err := chart.Chart{Tool: "kueue", Module: c.module, Path: filepath.Join("charts", c.name)}.Render(t.Context(), root, helm,
		c.name, namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, service := filepath.Join(w.dir, c.name), c.name+"-webhook-service"
	var bundle []byte
	if !c.issues {
		authority, err := pki.NewAuthority(c.name, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		serving, err := authority.Serving(c.name, []string{fmt.Sprintf("%s.%s.svc", service, namespace)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := serving.WriteFiles(dir, "tls"); err != nil {
			t.Fatal(err)
		}
		bundle = authority.Certificate()
	}
	// The API server finds the webhooks of a process at a port of loopback, for the name that is in their certificate.
	for _, object := range objects {
		setPort(object.Object, webhooks, bundle)
		if object.GetKind() == "Service" && object.GetName() == service {
			object.Object["spec"] = map[string]any{"type": string(corev1.ServiceTypeExternalName), "externalName": "localhost"}
		}
	}
	// What needs pods, and the API of a Service that needs them.
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Deployment" || object.GetKind() == "APIService"
	})
	if err := chart.Create(t.Context(), w.tenant, namespace, objects); err != nil {
		t.Fatal(err)
	}
	config := w.box.TenantConfig()
	kubeconfig, err := vcluster.TokenKubeconfig(t.Context(), w.tenant, config.Host, config.CAData, namespace, c.account)
	if err != nil {
		t.Fatal(err)
	}
	settings := c.configuration + fmt.Sprintf(here, health, webhooks, dir, c.issues)
	for name, content := range map[string][]byte{"config.yaml": []byte(settings), "kubeconfig": kubeconfig} {
		if err := pki.WriteFile(filepath.Join(dir, name), content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.box.Processes().Start(process.Spec{
		Name: c.name, Path: program, Rank: cluster.RankClients + 1, Restart: true,
		Args: []string{"--config=" + filepath.Join(dir, "config.yaml"), "--zap-log-level=2"},
		Env:  []string{"KUBECONFIG=" + filepath.Join(dir, "kubeconfig")},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			lines, err := process.LastLines(filepath.Join(w.dir, "sandbox", "log", c.name+".log"), 30)
			t.Logf("the last lines of the log of %s (%v):\n%s", c.name, err, strings.Join(lines, "\n"))
		}
	})
	if c.issues {
		w.mountCertificates(t, client.ObjectKey{Namespace: namespace, Name: c.name + "-webhook-server-cert"}, dir)
	}
	ctx, cancel := poll.WithPatience(t.Context())
	defer cancel()
	if err := cluster.AwaitURL(ctx, c.name+" to be ready", http.DefaultClient,
		fmt.Sprintf("http://127.0.0.1:%d/readyz", health)); err != nil {
		t.Fatal(err)
	}
}

// setPort sets the port, and the authority if there is one, of all webhooks of a Service that are in an object.
func setPort(node any, port int, authority []byte) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			setPort(child, port, authority)
		}
	case map[string]any:
		if config, found := node["clientConfig"].(map[string]any); found {
			config["service"].(map[string]any)["port"] = int64(port)
			if authority != nil {
				config["caBundle"] = base64.StdEncoding.EncodeToString(authority)
			}
		}
		for _, child := range node {
			setPort(child, port, authority)
		}
	}
}

// mountCertificates does what a kubelet does for the controller's pod: it writes the Secret that the controller fills into files.
func (w *fixture) mountCertificates(t *testing.T, key client.ObjectKey, dir string) {
	t.Helper()
	secret := &corev1.Secret{}
	poll.Eventually(t, key.Name+" is filled", func(ctx context.Context) error {
		if err := w.tenant.Get(ctx, key, secret); err != nil {
			return err
		}
		if len(secret.Data[corev1.TLSCertKey]) == 0 {
			return errors.New("there is no certificate")
		}
		return nil
	})
	for name, content := range secret.Data {
		if err := pki.WriteFile(filepath.Join(dir, name), content); err != nil {
			t.Fatal(err)
		}
	}
}
