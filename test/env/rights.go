// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
)

// Grant applies files of config/rbac. namespace is the files' .Namespace. Existing objects stay.
func (e *Environment) Grant(t testing.TB, namespace string, files ...string) {
	t.Helper()
	for _, file := range files {
		var rendered bytes.Buffer
		parsed, err := template.ParseFS(rbac.Files, file)
		if err == nil {
			err = parsed.Execute(&rendered, map[string]string{"Namespace": namespace})
		}
		if err != nil {
			t.Fatalf("reading %s, %v", file, err)
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(&rendered, 4096); ; {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("parsing %s, %v", file, err)
			}
			if err := e.Client.Create(context.Background(), object); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatalf("granting the rights in %s, %v", file, err)
			}
		}
	}
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
