// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package renewkubeconfig tests the manifests of this folder.
package renewkubeconfig

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
)

const (
	programNamespace = "karpenter-metal3"
	tenantNamespace  = "acme"
	operationsPage   = "../../docs/operations.md"
)

// environment is both clusters.
var environment = &env.Environment{}

func TestMain(m *testing.M) { env.Main(m, environment) }

// TestRenewal runs the commands of the page, and then the job twice, as its account. The second time it has what the first has written.
func TestRenewal(t *testing.T) {
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{programNamespace, tenantNamespace} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	for _, account := range []string{"karpenter-metal3-provider", "another"} {
		create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: programNamespace, Name: account}})
	}
	// The kubeconfig of docs/install.md, whose token has ended.
	acme, err := clientcmd.LoadFromFile(environment.Kubeconfig(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	acme.AuthInfos = map[string]*clientcmdapi.AuthInfo{"provider": {Token: "ended"}}
	acme.Contexts["test"].AuthInfo = "provider"
	stored, err := clientcmd.Write(*acme)
	if err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: "acme-kubeconfig"},
		Data: map[string][]byte{"kubeconfig": stored}})
	create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: "another"}})

	config := page.Config{File: operationsPage, Dir: t.TempDir(), Bin: bin, Kubeconfig: environment.Kubeconfig(t, ""),
		Links: map[string]string{"examples": examples, "acme-admin.kubeconfig": environment.Kubeconfig(t, "")}}
	operations, err := page.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config.Dir, "acme.kubeconfig"), stored, 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(operationsPage)
	if err != nil {
		t.Fatal(err)
	}
	blocks := page.Blocks(string(content))
	i := slices.IndexFunc(blocks, func(b page.Block) bool { return strings.Contains(b.Text(), "examples/renew-kubeconfig") })
	if i < 0 {
		t.Fatalf("%s does not say how the job is installed", operationsPage)
	}
	if output, err := operations.Run(t.Context(), blocks[i].Text()); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	job := &batchv1.Job{}
	get(t, programNamespace, "renew-acme-now", job)
	pod := job.Spec.Template.Spec
	account := "system:serviceaccount:" + programNamespace + ":" + pod.ServiceAccountName
	renew := func() (string, error) {
		container := pod.Containers[0]
		command := exec.CommandContext(t.Context(), container.Command[0], slices.Concat(container.Command[1:], container.Args)...)
		command.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "KUBECONFIG=" + environment.Kubeconfig(t, account)}
		output, err := command.CombinedOutput()
		return string(output), err
	}
	before := map[string][]byte{}
	for _, run := range []string{"first", "second"} {
		if output, err := renew(); err != nil {
			t.Fatalf("the %s run: %v\n%s", run, err, output)
		}
		for _, secret := range []struct{ namespace, name, account string }{
			{tenantNamespace, "acme-kubeconfig", "karpenter-metal3-provider"},
			{programNamespace, "acme-renewal", "karpenter-metal3-renewal"},
		} {
			kubeconfig := kubeconfigIn(t, secret.namespace, secret.name)
			if bytes.Equal(kubeconfig, before[secret.name]) {
				t.Errorf("the %s run left %s as it was", run, secret.name)
			}
			before[secret.name] = kubeconfig
			review := &authenticationv1.SelfSubjectReview{}
			if err := clientOf(t, kubeconfig).Create(t.Context(), review); err != nil {
				t.Errorf("the %s run: %s is not accepted, %v", run, secret.name, err)
			}
			if want := "system:serviceaccount:" + programNamespace + ":" + secret.account; review.Status.UserInfo.Username != want {
				t.Errorf("the %s run: %s is of %q, want %s", run, secret.name, review.Status.UserInfo.Username, want)
			}
		}
	}

	t.Run("Rights", func(t *testing.T) {
		renewer, inTenant := environment.As(t, account), clientOf(t, before["acme-renewal"])
		for what, err := range map[string]error{
			"the job reads another Secret of the tenant": renewer.Get(t.Context(),
				client.ObjectKey{Namespace: tenantNamespace, Name: "another"}, &corev1.Secret{}),
			"the job lists Secrets": renewer.List(t.Context(), &corev1.SecretList{}, client.InNamespace(tenantNamespace)),
			"it makes tokens of another account": inTenant.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: programNamespace, Name: "another"}}, &authenticationv1.TokenRequest{}),
			"it lists the tenant's Secrets": inTenant.List(t.Context(), &corev1.SecretList{}, client.InNamespace(programNamespace)),
			"the provider makes tokens of itself": clientOf(t, before["acme-kubeconfig"]).SubResource("token").Create(t.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: programNamespace, Name: "karpenter-metal3-provider"}},
				&authenticationv1.TokenRequest{}),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v, want forbidden", what, err)
			}
		}
	})
	t.Run("Refused", func(t *testing.T) {
		ended := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: programNamespace, Name: "acme-renewal"},
			Data: map[string][]byte{"kubeconfig": stored}}
		if err := environment.Client.Update(t.Context(), ended); err != nil {
			t.Fatal(err)
		}
		if output, err := renew(); err == nil {
			t.Errorf("the tenant refuses the job, and it does not fail:\n%s", output)
		}
		if !bytes.Equal(kubeconfigIn(t, tenantNamespace, "acme-kubeconfig"), before["acme-kubeconfig"]) {
			t.Error("the tenant refuses the job, and the kubeconfig was written")
		}
	})
}

func create(t *testing.T, object client.Object) {
	t.Helper()
	if err := environment.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, namespace, name string, object client.Object) {
	t.Helper()
	if err := environment.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}
}

func kubeconfigIn(t *testing.T, namespace, name string) []byte {
	t.Helper()
	secret := &corev1.Secret{}
	get(t, namespace, name, secret)
	return secret.Data["kubeconfig"]
}

// clientOf returns a client with a kubeconfig.
func clientOf(t *testing.T, kubeconfig []byte) client.Client {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: environment.Scheme, Mapper: environment.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
