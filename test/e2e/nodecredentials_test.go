// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// TestCredentialsOfNode: root on a tenant's server has the user data that it boots with, the token in it, and the certificate of its
// kubelet. With these it reads no Secrets, changes no other node, and is unknown to the management cluster.
func TestCredentialsOfNode(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	w.createPod(t, "first", resources("cpu", "4", gpu, "4"))
	w.untilRuns(t, "first")
	other := w.machineOf(t, "first")
	release := w.holdNodes(t)
	w.createPod(t, "second", resources("cpu", "4", gpu, "8"))
	var join bootstrap.Join
	w.eventually(t, "the server of pod second has user data with a token", func(ctx context.Context) (missing string, err error) {
		join, missing, err = w.joinOf(ctx, t)
		return missing, err
	})
	tenant, management := w.config(t, w.tenantKubeconfig), w.config(t, w.managementKubeconfig)
	withToken := func(base *rest.Config) *rest.Config {
		config := rest.AnonymousClientConfig(base)
		config.BearerToken = join.Token.Reveal()
		return config
	}
	clientset, err := kubernetes.NewForConfig(withToken(tenant))
	if err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the API server knows the token", func(ctx context.Context) (string, error) {
		if _, err := clientset.CoreV1().Nodes().Get(ctx, join.NodeName, metav1.GetOptions{}); apierrors.IsUnauthorized(err) {
			return err.Error(), nil
		}
		return "", nil
	})
	t.Run("Token", func(t *testing.T) { w.attempts(t, withToken(tenant), join.NodeName, other.Name) })
	t.Run("TokenInManagement", func(t *testing.T) { isUnknown(t, withToken(management)) })

	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := emulator.RequestCertificate(t.Context(), clientset, key, join.NodeName)
	if err != nil {
		t.Fatal(err)
	}
	release()
	w.untilRuns(t, "second")
	withCertificate := func(base *rest.Config) *rest.Config {
		config := rest.AnonymousClientConfig(base)
		config.CertData, config.KeyData = certificate, key
		return config
	}
	t.Run("Certificate", func(t *testing.T) { w.attempts(t, withCertificate(tenant), join.NodeName, other.Name) })
	t.Run("CertificateInManagement", func(t *testing.T) { isUnknown(t, withCertificate(management)) })
	t.Run("UsedToken", func(t *testing.T) {
		w.eventually(t, "the token of Node "+join.NodeName+" is worth nothing", func(ctx context.Context) (string, error) {
			if _, err := clientset.CoreV1().Nodes().Get(ctx, join.NodeName, metav1.GetOptions{}); !apierrors.IsUnauthorized(err) {
				return fmt.Sprintf("it reads its node: %v", err), nil
			}
			return "", nil
		})
	})
}

// holdNodes keeps servers of the group's first pool from registering as nodes until release is called: the token of one that has is
// gone at once.
func (w *fixture) holdNodes(t *testing.T) (release func()) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "hold-nodes-of-" + w.group.namespace}
	names := w.group.pools[0] + "-"
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{
				{Expression: fmt.Sprintf("!object.metadata.name.startsWith('%s')", names), Message: meta.Name},
			},
		}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: meta.Name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}
	release = func() {
		for _, object := range []client.Object{binding, policy} {
			if err := w.tenant.Delete(context.WithoutCancel(t.Context()), object); client.IgnoreNotFound(err) != nil {
				t.Errorf("letting nodes register again: %v", err)
			}
		}
	}
	t.Cleanup(release)
	for _, object := range []client.Object{policy, binding} {
		if err := w.tenant.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually(t, "no node registers", func(ctx context.Context) (string, error) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: names + "attempt"}}
		if err := w.tenant.Create(ctx, node, client.DryRunAll); err == nil || !strings.Contains(err.Error(), meta.Name) {
			return fmt.Sprintf("a Node is created: %v", err), nil
		}
		return "", nil
	})
	return release
}

// joinOf finds the join in the user data of a server whose node has not registered. The user data names neither the management cluster nor
// the credentials of a BMC.
func (w *fixture) joinOf(ctx context.Context, t *testing.T) (join bootstrap.Join, missing string, err error) {
	secrets, bmcs := &corev1.SecretList{}, &corev1.SecretList{}
	if err := w.management.List(ctx, secrets, client.InNamespace(hostNamespace), client.HasLabels{v1alpha1.MachineLabelKey}); err != nil {
		return join, "", err
	}
	if err := w.management.List(ctx, bmcs, client.InNamespace(hostNamespace)); err != nil {
		return join, "", err
	}
	for _, secret := range secrets.Items {
		data := secret.Data[v1alpha1.UserDataSecretKey]
		if !w.ownsObject(&secret) || !bytes.Contains(data, []byte("token:")) {
			continue
		}
		if bytes.Contains(data, []byte(w.config(t, w.managementKubeconfig).Host)) {
			t.Errorf("user data %s names the API server of the management cluster", secret.Name)
		}
		for _, bmc := range bmcs.Items {
			if password := bmc.Data["password"]; len(password) > 0 && bytes.Contains(data, password) {
				t.Errorf("user data %s has the password of BMC %s", secret.Name, bmc.Name)
			}
		}
		join, err = emulator.ReadJoin(data)
		return join, "", err
	}
	return join, "there is none", nil
}

func (w *fixture) config(t *testing.T, kubeconfig string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// attempts tries what the credentials of a node must not do in its own cluster.
func (w *fixture) attempts(t *testing.T, config *rest.Config, own, other string) {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: w.tenant.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	named := metav1.ObjectMeta{Name: other}
	inSystem := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "attempt"}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}`))
	for name, attempt := range map[string]func(context.Context) error{
		"ListSecrets": func(ctx context.Context) error { return c.List(ctx, &corev1.SecretList{}) },
		"ListSystemSecrets": func(ctx context.Context) error {
			return c.List(ctx, &corev1.SecretList{}, client.InNamespace("kube-system"))
		},
		"CreateSecret":   func(ctx context.Context) error { return c.Create(ctx, &corev1.Secret{ObjectMeta: inSystem}) },
		"CreatePod":      func(ctx context.Context) error { return c.Create(ctx, podOn(other)) },
		"LabelOtherNode": func(ctx context.Context) error { return c.Patch(ctx, &corev1.Node{ObjectMeta: named}, patch) },
		"LabelOwnNode": func(ctx context.Context) error {
			return c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: own}}, patch)
		},
		"DeleteOtherNode":    func(ctx context.Context) error { return c.Delete(ctx, &corev1.Node{ObjectMeta: named}) },
		"OtherNodeStatus":    func(ctx context.Context) error { return c.Status().Patch(ctx, &corev1.Node{ObjectMeta: named}, patch) },
		"ListNodeClaims":     func(ctx context.Context) error { return c.List(ctx, &karpv1.NodeClaimList{}) },
		"DeleteNodeClaim":    func(ctx context.Context) error { return c.Delete(ctx, &karpv1.NodeClaim{ObjectMeta: named}) },
		"ListClasses":        func(ctx context.Context) error { return c.List(ctx, &v1alpha1.MetalNodeClassList{}) },
		"CreateClass":        func(ctx context.Context) error { return c.Create(ctx, &v1alpha1.MetalNodeClass{ObjectMeta: named}) },
		"TokenOfTheProvider": func(ctx context.Context) error { return tokenOf(ctx, config, "karpenter-metal3-provider") },
	} {
		if err := attempt(t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want Forbidden", name, err)
		}
	}
}

func podOn(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "attempt"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "registry.k8s.io/pause:3.10"}}},
	}
}

// tokenOf requests a token of a service account in kube-system, for no pod.
func tokenOf(ctx context.Context, config *rest.Config, account string) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return clientset.CoreV1().RESTClient().Post().Namespace(metav1.NamespaceSystem).Resource("serviceaccounts").Name(account).
		SubResource("token").SetHeader("Content-Type", "application/json").
		Body([]byte(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["api"]}}`)).Do(ctx).Error()
}

// isUnknown tries credentials on an API server that must not know them.
func isUnknown(t *testing.T, config *rest.Config) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/v1/secrets", "/api/v1/nodes", "/apis/metal3.io/v1alpha1/baremetalhosts",
		"/apis/karpenter.metal3.io/v1alpha1/machines", "/apis/authentication.k8s.io/v1/selfsubjectreviews"} {
		if err := clientset.RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: got %v, want Unauthorized", path, err)
		}
	}
}
