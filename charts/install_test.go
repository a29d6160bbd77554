// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/test"
)

// environment is an API server that has the definitions already, as one on which they were applied by hand.
var environment = &test.Environment{}

func TestMain(m *testing.M) { test.Main(m, environment) }

// TestInstallUpgradeUninstall: an upgrade leaves what the webhook has written, and the end of a release the definitions.
// Nothing runs the pods here.
func TestInstallUpgradeUninstall(t *testing.T) {
	kubeconfig := writeKubeconfig(t, environment.Config)
	run := func(args ...string) {
		t.Helper()
		if out, problems, err := helm(t, append(args, "--kubeconfig="+kubeconfig, "--namespace=karpenter-metal3")...); err != nil {
			t.Fatalf("helm %s: %v\n%s%s", strings.Join(args, " "), err, out, problems)
		}
	}
	c := environment.Client
	run("install", "servers", Management, "--create-namespace", "--take-ownership")
	run("install", "acme", Tenant)
	run("install", "acme-cluster", Tenant, "--set=target=tenant", "--take-ownership")

	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	configuration.Name = webhook.ConfigurationName
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration); err != nil {
		t.Fatal(err)
	}
	authority := string(environment.Config.CAData) // any certificate is as good
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig.CABundle = []byte(authority)
	}
	if err := c.Update(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	run("upgrade", "servers", Management, "--set=manager.replicas=3")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration); err != nil {
		t.Fatal(err)
	}
	for _, one := range configuration.Webhooks {
		if string(one.ClientConfig.CABundle) != authority {
			t.Errorf("after the upgrade, the API server trusts %s no more", one.Name)
		}
	}
	manager := &appsv1.Deployment{}
	manager.Namespace, manager.Name = "karpenter-metal3", "karpenter-metal3-manager"
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(manager), manager); err != nil || *manager.Spec.Replicas != 3 {
		t.Errorf("the upgrade did nothing: %v, %v", manager.Spec.Replicas, err)
	}

	for _, release := range []string{"acme-cluster", "acme", "servers"} {
		run("uninstall", release)
	}
	for _, chart := range []struct {
		name  string
		flags []string
	}{{name: Management}, {name: Tenant}, {name: Tenant, flags: []string{"--set=target=tenant"}}} {
		for _, object := range render(t, chart.name, chart.flags...) {
			if object.GetNamespace() == namespace {
				object.SetNamespace("karpenter-metal3")
			}
			err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object)
			switch object.GetKind() {
			case "CustomResourceDefinition":
				definition := as[apiextensionsv1.CustomResourceDefinition](t, object)
				if err != nil || definition.DeletionTimestamp != nil {
					t.Errorf("the definition %s is gone: %v", object.GetName(), err)
				}
			default:
				if !apierrors.IsNotFound(err) && object.GetDeletionTimestamp() == nil {
					t.Errorf("%s %s is left: %v", object.GetKind(), object.GetName(), err)
				}
			}
		}
	}
}

func writeKubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
