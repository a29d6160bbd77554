// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

const user = "karpenter-metal3-provider"

// optionsFor are the options of a provider whose two clusters are one.
func optionsFor(namespace, kubeconfig string) *options {
	o := defaultOptions()
	o.namespace, o.tenantCluster = namespace, "tenant"
	o.tenant.Kubeconfig, o.management.Kubeconfig = kubeconfig, kubeconfig
	o.tenant.AllowUnsafe = true // it impersonates the provider's user
	o.process.MetricsAddress = operator.Disabled
	return o
}

// grant applies a file of config/rbac until the test ends, and returns once the API server authorizes by it.
func grant(t *testing.T, w *fixture, file string) {
	t.Helper()
	rights, err := rbac.Read(rbac.Files, file, w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range rights {
		if object.GroupVersionKind().Group != rbacv1.GroupName {
			t.Fatalf("%s has a %s", file, object.GroupVersionKind())
		}
		w.create(object)
		t.Cleanup(func() { w.remove(object) })
		if err := env.AwaitRights(t.Context(), environment.Client, object); err != nil {
			t.Fatal(err)
		}
	}
}

// kubeconfigOf writes a kubeconfig that has the rights of a user: the administrator in the user's place.
func kubeconfigOf(t *testing.T, config *rest.Config, user string) string {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return kubeconfigFile(t, config)
}

func kubeconfigFile(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "c",
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
			Impersonate: config.Impersonate.UserName, ImpersonateGroups: config.Impersonate.Groups,
		}},
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// buffer keeps what several goroutines log.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// captureLogs keeps what is logged while the test runs.
func captureLogs(t *testing.T) *buffer {
	t.Helper()
	logs := &buffer{}
	klog.LogToStderr(false)
	klog.SetOutput(logs)
	t.Cleanup(func() {
		klog.Flush()
		klog.SetOutput(os.Stderr)
		klog.LogToStderr(true)
	})
	return logs
}

func linesWith(text, word string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, "\n")
}
