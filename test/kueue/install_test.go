// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/chart"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/vcluster"
)

const (
	// kueueSystem is the namespace of Kueue.
	kueueSystem    = "kueue-system"
	webhookService = "kueue-webhook-service"
	webhookSecret  = "kueue-webhook-server-cert"
)

// configuration is the one of Kueue's chart but for addresses, metrics, replicas, and what Kueue has no Service for here.
const configuration = `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: %d, certDir: %s}
leaderElection: {leaderElect: false}
clientConnection: {qps: 50, burst: 100}
featureGates: {VisibilityOnDemand: false}
integrations: {frameworks: [batch/job, pod]}
`

// installKueue installs Kueue's chart, and runs its controller as a process, with the rights of the chart's service account.
func (w *fixture) installKueue(t *testing.T) {
	t.Helper()
	ports, err := cluster.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	health, webhooks := ports[0], ports[1]
	certificates := filepath.Join(w.dir, "kueue-certificates")
	helm, err := binaries.Find("helm")
	if err != nil {
		t.Fatal(err)
	}
	program, err := binaries.Find("kueue")
	if err != nil {
		t.Fatalf("run `make kueue-tools` first, %v", err)
	}
	kueue := chart.Chart{Tool: "kueue", Module: "sigs.k8s.io/kueue", Path: "charts/kueue"}
	objects, err := kueue.Render(t.Context(), root, helm, "kueue", kueueSystem, map[string]any{"managerConfig": map[string]any{
		"controllerManagerConfigYaml": fmt.Sprintf(configuration, health, webhooks, certificates),
	}})
	if err != nil {
		t.Fatal(err)
	}
	settings := adapt(t, objects, webhooks)
	// What needs pods, and the API of a Service that needs them.
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Deployment" || object.GetKind() == "APIService"
	})
	if err := chart.Create(t.Context(), w.tenant, kueueSystem, objects); err != nil {
		t.Fatal(err)
	}
	config := w.box.TenantConfig()
	kubeconfig, err := vcluster.TokenKubeconfig(t.Context(), w.tenant, config.Host, config.CAData, kueueSystem, "kueue-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"kueue.yaml": []byte(settings), "kueue.kubeconfig": kubeconfig}
	for name, content := range files {
		if err := pki.WriteFile(filepath.Join(w.dir, name), content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.box.Processes().Start(process.Spec{
		Name: "kueue", Path: program, Rank: cluster.RankClients + 1, Restart: true,
		Args: []string{"--config=" + filepath.Join(w.dir, "kueue.yaml"), "--zap-log-level=2"},
		Env:  []string{"KUBECONFIG=" + filepath.Join(w.dir, "kueue.kubeconfig")},
	}); err != nil {
		t.Fatal(err)
	}
	w.mountCertificates(t, certificates)
	if err := cluster.AwaitURL(t.Context(), "Kueue to be ready", http.DefaultClient,
		fmt.Sprintf("http://127.0.0.1:%d/readyz", health)); err != nil {
		t.Fatal(err)
	}
}

// adapt has the API server find the webhooks of a process, at a port of loopback and for the name that is in their certificate. It
// returns Kueue's configuration.
func adapt(t *testing.T, objects []*unstructured.Unstructured, port int) (configuration string) {
	t.Helper()
	for _, object := range objects {
		switch object.GetKind() {
		case "ConfigMap":
			configuration, _, _ = unstructured.NestedString(object.Object, "data", "controller_manager_config.yaml")
		case "Service":
			if object.GetName() == webhookService {
				object.Object["spec"] = map[string]any{"type": string(corev1.ServiceTypeExternalName), "externalName": "localhost"}
			}
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			for _, hook := range object.Object["webhooks"].([]any) {
				setPort(t, hook.(map[string]any), port, "clientConfig")
			}
		case "CustomResourceDefinition":
			if _, converted, _ := unstructured.NestedMap(object.Object, "spec", "conversion", "webhook"); converted {
				setPort(t, object.Object, port, "spec", "conversion", "webhook", "clientConfig")
			}
		}
	}
	if configuration == "" {
		t.Fatal("the chart of Kueue has no configuration")
	}
	return configuration
}

func setPort(t *testing.T, object map[string]any, port int, clientConfig ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(object, int64(port), append(clientConfig, "service", "port")...); err != nil {
		t.Fatal(err)
	}
}

// mountCertificates does what a kubelet does for Kueue's pod: it writes the Secret that Kueue fills into files.
func (w *fixture) mountCertificates(t *testing.T, dir string) {
	t.Helper()
	secret := &corev1.Secret{}
	poll.Eventually(t, "Kueue makes its certificates", func(ctx context.Context) error {
		if err := w.tenant.Get(ctx, client.ObjectKey{Namespace: kueueSystem, Name: webhookSecret}, secret); err != nil {
			return err
		}
		if len(secret.Data[corev1.TLSCertKey]) == 0 {
			return errors.New("it has made none")
		}
		return nil
	})
	for name, content := range secret.Data {
		if err := pki.WriteFile(filepath.Join(dir, name), content); err != nil {
			t.Fatal(err)
		}
	}
}
