// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// environment is an API server with the CRDs, as if they were applied by hand. Like those before Kubernetes 1.34 it
// does not stream lists, so watching also needs the right to list.
var environment = &env.Environment{Flags: []string{"--feature-gates=WatchList=false"}}

func TestMain(m *testing.M) { env.Main(m, environment) }

// TestInstallUpgradeUninstall: an upgrade keeps the CA bundle of the webhook, and uninstalling keeps the CRDs. In
// between, the programs work with the charts' rights. Pods do not run here, so the programs run as processes.
func TestInstallUpgradeUninstall(t *testing.T) {
	system.Only(t)
	kubeconfig := writeKubeconfig(t, environment.Config)
	run := func(args ...string) {
		t.Helper()
		if out, problems, err := helm(t, append(args, "--kubeconfig="+kubeconfig, "--namespace=karpenter-metal3")...); err != nil {
			t.Fatalf("helm %s: %v\n%s%s", strings.Join(args, " "), err, out, problems)
		}
	}
	c := environment.Client
	// The TenantCluster is created before the webhook, which the API server could not reach here.
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "karpenter-metal3", Name: "acme"}}
	tenant.Spec.APIServerEndpoint = "192.0.2.1:6443"
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant.Namespace}}, tenant,
	} {
		if err := c.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	run("install", "servers", Management, "--take-ownership", "--set=page.enabled=true")
	run("install", "acme", Tenant)
	run("install", "acme-cluster", Tenant, "--set=target=tenant", "--take-ownership")

	t.Run("Programs", func(t *testing.T) {
		authority, page := filepath.Join(t.TempDir(), "ca.crt"), freeport.ForTest(t)
		if err := os.WriteFile(authority, environment.Config.CAData, 0o600); err != nil {
			t.Fatal(err)
		}
		management := func(account string) func() []string {
			return func() []string { return []string{"--kubeconfig=" + asAccount(t, tenant.Namespace, account)} }
		}
		startPrograms(t,
			program{namespace: tenant.Namespace, deployment: "karpenter-metal3-manager", lease: "karpenter-metal3-manager",
				flags: management("karpenter-metal3-manager"), secure: true},
			program{namespace: tenant.Namespace, deployment: "karpenter-metal3-webhook", secure: true, flags: func() []string {
				return append(management("karpenter-metal3-webhook")(), "--webhook-bind-address="+freeport.ForTest(t), "--shutdown-delay=0s")
			}},
			program{namespace: tenant.Namespace, deployment: "karpenter-metal3-provider-acme", lease: "karpenter-metal3-provider",
				leaseNamespace: metav1.NamespaceSystem, flags: func() []string {
					return []string{
						"--management-kubeconfig=" + asAccount(t, tenant.Namespace, "karpenter-metal3-provider-acme"),
						"--tenant-kubeconfig=" + asAccount(t, tenant.Namespace, "karpenter-metal3-provider"),
						"--tenant-allow-unsafe-kubeconfig", // it impersonates
					}
				}},
			program{namespace: tenant.Namespace, deployment: "karpenter-metal3-page", flags: func() []string {
				return []string{"--server=" + environment.Config.Host, "--certificate-authority=" + authority, "--page-bind-address=" + page}
			}},
		)
		pageIsForReaders(t, "http://"+page+"/capacity")
	})

	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	configuration.Name = webhook.ConfigurationName
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration); err != nil {
		t.Fatal(err)
	}
	for _, webhook := range configuration.Webhooks {
		if len(webhook.ClientConfig.CABundle) == 0 {
			t.Errorf("the manager has not told the API server to trust %s", webhook.Name)
		}
	}
	pods := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(configuration), pods); err != nil {
		t.Fatal(err)
	}
	if len(pods.Webhooks[0].ClientConfig.CABundle) == 0 {
		t.Error("the manager has not told the API server to trust the webhook about pods")
	}
	authority := string(environment.Config.CAData) // any certificate is as good
	pods.Webhooks[0].ClientConfig.CABundle = []byte(authority)
	if err := c.Update(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig.CABundle = []byte(authority)
	}
	if err := c.Update(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	run("upgrade", "servers", Management, "--set=manager.replicas=3", "--set=additionalLabels.team=metal", "--set=podLabels.tier=one")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration); err != nil {
		t.Fatal(err)
	}
	for _, webhook := range configuration.Webhooks {
		if string(webhook.ClientConfig.CABundle) != authority {
			t.Errorf("after the upgrade, the API server trusts %s no more", webhook.Name)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(configuration), pods); err != nil {
		t.Fatal(err)
	}
	if string(pods.Webhooks[0].ClientConfig.CABundle) != authority {
		t.Error("after the upgrade, the API server trusts the webhook about pods no more")
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
				definition := convert[apiextensionsv1.CustomResourceDefinition](t, object)
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

// TestInstallWithOtherNames: the programs start with names, accounts and variables of the user's own, under the policies of the chart.
func TestInstallWithOtherNames(t *testing.T) {
	system.Only(t)
	const namespace = "karpenter-metal3" // a cluster can be that of one TenantCluster alone
	kubeconfig, c := writeKubeconfig(t, environment.Config), environment.Client
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "acme"}}
	tenant.Spec.APIServerEndpoint = "192.0.2.1:6443"
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, tenant,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "servers"}},
	} {
		if err := c.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte("{logLevel: debug, additionalLabels: {team: metal}, "+
		"extraEnv: [{name: KARPENTER_METAL3_KUBE_API_QPS, value: '300'}], imagePullSecrets: [{name: registry}], "+
		"extraVolumes: [{name: authorities, emptyDir: {}}], extraVolumeMounts: [{name: authorities, mountPath: /etc/ssl/certs}], "+
		"topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}], "+
		"priorityClassName: system-cluster-critical, nameOverride: metal}"), 0o600); err != nil {
		t.Fatal(err)
	}
	releases := map[string][]string{
		"servers": {Management, "--set=fullnameOverride=bare-metal", "--set=webhook.serviceAccount.name=refuser",
			"--set=manager.serviceAccount.create=false,manager.serviceAccount.name=servers"},
		"acme": {Tenant, "--set=fullnameOverride=acme-servers", "--set=serviceAccount.name=karpenter-metal3-provider-own",
			"--set=manager.serviceAccount=servers,manager.namespace=" + namespace},
		"acme-cluster": {Tenant, "--set=target=tenant"},
	}
	for _, name := range []string{"servers", "acme", "acme-cluster"} {
		args := append([]string{"install", name, "--take-ownership", "--values=" + values, "--kubeconfig=" + kubeconfig,
			"--namespace=" + namespace},
			releases[name]...)
		if out, problems, err := helm(t, args...); err != nil {
			t.Fatalf("helm install %s: %v\n%s%s", name, err, out, problems)
		}
	}
	t.Run("Programs", func(t *testing.T) {
		startPrograms(t,
			program{namespace: namespace, deployment: "bare-metal-manager", lease: "karpenter-metal3-manager", secure: true,
				flags: func() []string { return []string{"--kubeconfig=" + asAccount(t, namespace, "servers")} }},
			program{namespace: namespace, deployment: "bare-metal-webhook", secure: true, flags: func() []string {
				return []string{"--kubeconfig=" + asAccount(t, namespace, "refuser"), "--webhook-bind-address=" + freeport.ForTest(t),
					"--shutdown-delay=0s"}
			}},
			program{namespace: namespace, deployment: "acme-servers", lease: "karpenter-metal3-provider", leaseNamespace: metav1.NamespaceSystem,
				flags: func() []string {
					return []string{
						"--management-kubeconfig=" + asAccount(t, namespace, "karpenter-metal3-provider-own"),
						"--tenant-kubeconfig=" + asAccount(t, namespace, "karpenter-metal3-provider"),
						"--tenant-allow-unsafe-kubeconfig", // it impersonates
					}
				}},
		)
	})
	// The manager has written the webhook's certificates, for its Service, as the policy lets it.
	certificates := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "karpenter-metal3-webhook-certs"}, certificates); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(certificates.Data[corev1.TLSCertKey])
	if block == nil {
		t.Fatal("there is no certificate")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := certificate.VerifyHostname("bare-metal-webhook." + namespace + ".svc"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"acme-cluster", "acme", "servers"} {
		if out, problems, err := helm(t, "uninstall", name, "--kubeconfig="+kubeconfig, "--namespace="+namespace); err != nil {
			t.Errorf("helm uninstall %s: %v\n%s%s", name, err, out, problems)
		}
	}
}

// pageIsForReaders reads the page with tokens of accounts that may read nothing, and all.
func pageIsForReaders(t *testing.T, url string) {
	t.Helper()
	const tenant = "karpenter-metal3/acme"
	manager := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "karpenter-metal3", Name: "karpenter-metal3-manager"}}
	for reason, tc := range map[string]struct {
		token string
		want  int
		sees  bool
	}{
		"nobody":                  {want: http.StatusUnauthorized},
		"an account of no rights": {token: tokenFor(t, "default", "nobody"), want: http.StatusOK},
		"the manager's account":   {token: requestToken(t, manager), want: http.StatusOK, sees: true},
	} {
		if status, text, err := scrape(t.Context(), url, tc.token); err != nil || status != tc.want || strings.Contains(text, tenant) != tc.sees {
			t.Errorf("%s: got %d (%v): %s", reason, status, err, text)
		}
	}
}

func writeKubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		Token: config.BearerToken}
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
