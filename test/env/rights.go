// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
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

// Reader makes a service account that may list and watch resources of ours and Metal3's, by the namespace in which it may, and returns a
// token of it. The empty namespace is the whole cluster.
func (e *Environment) Reader(t testing.TB, name string, rights map[string][]string) string {
	t.Helper()
	create := func(objects ...client.Object) {
		for _, object := range objects {
			if err := e.Client.Create(context.Background(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	create(account)
	for namespace, resources := range rights {
		named := metav1.ObjectMeta{Namespace: namespace, Name: name}
		rules := []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.Group, bmov1alpha1.GroupVersion.Group}, Resources: resources,
			Verbs: []string{"list", "watch"}}}
		subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: name}}
		if namespace == "" {
			create(&rbacv1.ClusterRole{ObjectMeta: named, Rules: rules}, &rbacv1.ClusterRoleBinding{ObjectMeta: named,
				Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}})
		} else {
			create(&rbacv1.Role{ObjectMeta: named, Rules: rules}, &rbacv1.RoleBinding{ObjectMeta: named,
				Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}})
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := e.Client.SubResource("token").Create(context.Background(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}
