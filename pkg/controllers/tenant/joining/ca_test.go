// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func publicMap(name, key, value string) client.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: name}, Data: map[string]string{key: value}}
}

func TestClusterCA(t *testing.T) {
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{
		"": {Server: "https://192.0.2.10:6443", CertificateAuthorityData: []byte("cluster-info")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("file"), 0o600); err != nil {
		t.Fatal(err)
	}
	clusterInfo := publicMap("cluster-info", "kubeconfig", string(kubeconfig))
	podCA := publicMap("kube-root-ca.crt", "ca.crt", "pods")
	data := rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("data")}}

	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		config  rest.Config
		down    bool
		want    string
		wantErr string
	}{
		"ClusterInfo": {reason: "it is what kubeadm compares the hash with", objects: []client.Object{clusterInfo, podCA}, config: data,
			want: "cluster-info"},
		"Pods":           {reason: "not every cluster is made for kubeadm", objects: []client.Object{podCA}, config: data, want: "pods"},
		"KubeconfigData": {reason: "our own connection is better than nothing", config: data, want: "data"},
		"KubeconfigFile": {reason: "it can be in a file", config: rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: file}}, want: "file"},
		"None":           {reason: "an insecure connection has none", wantErr: "certificate-authority-data"},
		"Broken": {reason: "a damaged ConfigMap is not one that is missing",
			objects: []client.Object{publicMap("cluster-info", "kubeconfig", "{")}, config: data, wantErr: "kube-public/cluster-info"},
		"Down": {reason: "without an answer another CA would be a guess", down: true, config: data, wantErr: "down"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithObjects(tc.objects...).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
					if tc.down {
						return apierrors.NewServiceUnavailable("down")
					}
					return c.Get(ctx, key, object, opts...)
				},
			}).Build()
			got, err := ClusterCA(reader, &tc.config)(t.Context())
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("%s: got error %v, want one with %q", tc.reason, err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s: CA (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
