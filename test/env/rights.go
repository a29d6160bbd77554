// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Give creates Roles and their bindings, or other objects. Existing ones stay. It returns once the API server authorizes by them.
func (e *Environment) Give(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := e.Client.Create(context.Background(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("granting the rights of %T %s, %v", object, object.GetName(), err)
		}
	}
	if err := AwaitRights(t.Context(), e.Client, objects...); err != nil {
		t.Fatal(err)
	}
}

// AwaitRights returns once the API server authorizes by the bindings among the objects: it reads them and their roles some time after they
// are there.
func AwaitRights(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, object := range objects {
		binding := &rbacv1.RoleBinding{}
		switch object := object.(type) {
		case *rbacv1.RoleBinding:
			binding = object
		case *rbacv1.ClusterRoleBinding:
			binding.RoleRef, binding.Subjects = object.RoleRef, object.Subjects
		case *unstructured.Unstructured:
			if kind := object.GetKind(); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
				continue
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding); err != nil {
				return fmt.Errorf("reading binding %s, %w", object.GetName(), err)
			}
		default:
			continue
		}
		if err := awaitBinding(ctx, c, binding); err != nil {
			return err
		}
	}
	return nil
}

// awaitBinding waits until the subjects of a binding may do what its role allows. A binding without a namespace is for all.
func awaitBinding(ctx context.Context, c client.Client, binding *rbacv1.RoleBinding) error {
	bound, role := binding.RoleRef, &rbacv1.ClusterRole{}
	if bound.Kind == "Role" {
		own := &rbacv1.Role{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: binding.Namespace, Name: bound.Name}, own); err != nil {
			return fmt.Errorf("reading what is bound, %w", err)
		}
		role.Rules = own.Rules
	} else if err := c.Get(ctx, client.ObjectKey{Name: bound.Name}, role); err != nil {
		return fmt.Errorf("reading what is bound, %w", err)
	}
	for _, rule := range role.Rules {
		for _, subject := range binding.Subjects {
			if err := awaitRule(ctx, c, binding.Namespace, bound, rule, subject); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitRule waits until a subject may do the first of what a rule of a role allows.
func awaitRule(ctx context.Context, c client.Client, namespace string, bound rbacv1.RoleRef, rule rbacv1.PolicyRule, subject rbacv1.Subject,
) error {
	spec := authorizationv1.SubjectAccessReviewSpec{User: subject.Name}
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		spec.User = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	case rbacv1.GroupKind:
		spec.User, spec.Groups = "anybody", []string{subject.Name}
	}
	if len(rule.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: rule.NonResourceURLs[0], Verb: rule.Verbs[0]}
	} else {
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0],
			Group: rule.APIGroups[0], Resource: resource, Subresource: subresource}
		if len(rule.ResourceNames) > 0 {
			spec.ResourceAttributes.Name = rule.ResourceNames[0]
		}
	}
	return poll.Await(ctx, "the API server has read the rights of "+subject.Name, func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		if err := c.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("%s %s: %s", bound.Kind, bound.Name, cmp.Or(review.Status.Reason, "not allowed"))
		}
		return nil
	})
}

// Grant applies files of config/rbac. namespace is the files' .Namespace. Existing objects stay.
func (e *Environment) Grant(t testing.TB, namespace string, files ...string) {
	t.Helper()
	for _, file := range files {
		rights, err := rbac.Read(rbac.Files, file, namespace)
		if err != nil {
			t.Fatal(err)
		}
		objects := make([]client.Object, 0, len(rights))
		for _, right := range rights {
			objects = append(objects, right)
		}
		e.Give(t, objects...)
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
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	e.Give(t, account)
	for namespace, resources := range rights {
		named := metav1.ObjectMeta{Namespace: namespace, Name: name}
		rules := []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.Group, bmov1alpha1.GroupVersion.Group}, Resources: resources,
			Verbs: []string{"list", "watch"}}}
		subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: name}}
		if namespace == "" {
			e.Give(t, &rbacv1.ClusterRole{ObjectMeta: named, Rules: rules}, &rbacv1.ClusterRoleBinding{ObjectMeta: named,
				Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}})
		} else {
			e.Give(t, &rbacv1.Role{ObjectMeta: named, Rules: rules}, &rbacv1.RoleBinding{ObjectMeta: named,
				Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}})
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := e.Client.SubResource("token").Create(context.Background(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}
