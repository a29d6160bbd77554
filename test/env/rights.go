// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
)

// Grant applies files of config/rbac. namespace is the files' .Namespace. Existing objects stay.
func (e *Environment) Grant(t testing.TB, namespace string, files ...string) {
	t.Helper()
	for _, file := range files {
		rights, err := rbac.Read(rbac.Files, file, namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range rights {
			if err := e.Client.Create(context.Background(), object); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatalf("granting the rights in %s, %v", file, err)
			}
		}
	}
}

// As returns a client of a user of groups, with its own rights only.
func (e *Environment) As(t testing.TB, user string, groups ...string) client.WithWatch {
	t.Helper()
	config := rest.CopyConfig(e.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.NewWithWatch(config, client.Options{Scheme: e.Scheme, Mapper: e.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Kubeconfig writes a kubeconfig file of the administrator, or of the administrator impersonating a user, with only
// that user's rights.
func (e *Environment) Kubeconfig(t testing.TB, user string) string {
	t.Helper()
	path, config := filepath.Join(t.TempDir(), "kubeconfig"), clientcmdapi.NewConfig()
	server := e.Config.Host
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: e.Config.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: e.Config.CertData, ClientKeyData: e.Config.KeyData,
		Impersonate: user}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
