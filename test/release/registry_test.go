// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/release/published"
)

// helm runs it without the user's configuration, in the time zone of the release.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	home := t.TempDir()
	return run(t, home, []string{"TZ=UTC", "HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home},
		filepath.Join(repository(t), "bin", "helm"), args...)
}

// testRegistry: the release is pushed, pulled, installed and verified.
func testRegistry(t *testing.T, c checkout, files dist) {
	registry := registry{published.Start(t)}
	address := string(registry.Registry)
	output, err := c.make(t, nil, "release-push", "REGISTRY="+address+"/metal")
	if err != nil || strings.Contains(output, "not signed") {
		t.Fatalf("make release-push: %v\n%s", err, output)
	}
	charts := "oci://" + address + "/metal/charts/"
	packages := map[string]string{"karpenter-metal3": "", "karpenter-metal3-tenant": ""}
	for chart := range packages {
		dir := t.TempDir()
		helm(t, "pull", charts+chart, "--version="+c.chart, "--plain-http", "--destination="+dir)
		packages[chart] = filepath.Join(dir, chart+"-"+c.chart+".tgz")
		if got := dist(dir).read(t, filepath.Base(packages[chart])); !bytes.Equal(got, files.read(t, filepath.Base(packages[chart]))) {
			t.Errorf("%s is another package when it has been pulled", chart)
		}
		// Who pushes the package by hand has what was signed.
		helm(t, "push", filepath.Join(string(files), filepath.Base(packages[chart])), "oci://"+address+"/by-hand", "--plain-http")
		if ours, theirs := registry.Digest(t, "metal/charts/"+chart, c.chart), registry.Digest(t, "by-hand/"+chart, c.chart); ours != theirs {
			t.Errorf("%s is %s, and %s as Helm pushes it", chart, ours, theirs)
		}
	}
	t.Run("Platforms", func(t *testing.T) {
		var index struct {
			Manifests []struct {
				Platform struct{ OS, Architecture string }
			}
		}
		if err := json.Unmarshal(registry.Get(t, "metal/"+image+"/manifests/"+c.tag), &index); err != nil {
			t.Fatal(err)
		}
		platforms := ""
		for _, manifest := range index.Manifests {
			platforms += manifest.Platform.OS + "/" + manifest.Platform.Architecture + " "
		}
		if platforms != "linux/amd64 linux/arm64 " {
			t.Errorf("the image is for %q", platforms)
		}
	})
	t.Run("Install", func(t *testing.T) { testInstall(t, c, address, charts, packages) })
	t.Run("Signatures", func(t *testing.T) { testSignatures(t, c, files, registry) })
}

// testInstall: an API server takes the charts from the registry, and as packages. Pods do not run here.
func testInstall(t *testing.T, c checkout, registry, charts string, packages map[string]string) {
	environment := env.NewEnvironment(t)
	kubeconfig := writeKubeconfig(t, environment.Config)
	for _, name := range []string{"metal", "metal3-system"} {
		if err := environment.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	install := func(release, chart string, flags ...string) {
		t.Helper()
		helm(t, append([]string{"install", release, chart, "--namespace=metal", "--kubeconfig=" + kubeconfig, "--take-ownership",
			"--set=image.registry=" + registry + "/metal"}, flags...)...)
	}
	install("servers", charts+"karpenter-metal3", "--version="+c.chart, "--plain-http")
	install("acme", packages["karpenter-metal3-tenant"])
	install("acme-cluster", charts+"karpenter-metal3-tenant", "--version="+c.chart, "--plain-http", "--set=target=tenant")
	for deployment, program := range map[string]string{
		"karpenter-metal3-manager": "manager", "karpenter-metal3-webhook": "webhook", "karpenter-metal3-provider-acme": "provider",
	} {
		installed := &appsv1.Deployment{}
		if err := environment.Client.Get(t.Context(), client.ObjectKey{Namespace: "metal", Name: deployment}, installed); err != nil {
			t.Error(err)
			continue
		}
		if got, want := installed.Spec.Template.Spec.Containers[0].Image, registry+"/metal/"+program+":"+c.tag; got != want {
			t.Errorf("%s runs %s, want %s, which was pushed", deployment, got, want)
		}
	}
}

func writeKubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func testSignatures(t *testing.T, c checkout, files dist, registry registry) {
	public := publicKey(t, files.read(t, "cosign.pub"))
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// A manifest that says more is another one, under the tag of the first.
	manifest := map[string]any{}
	if err := json.Unmarshal(registry.Get(t, "metal/charts/karpenter-metal3/manifests/"+c.chart), &manifest); err != nil {
		t.Fatal(err)
	}
	manifest["annotations"] = map[string]string{"changed": "yes"}
	changed, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	registry.put(t, "metal/charts/karpenter-metal3", "changed", changed)
	// With the signature of the first.
	signature := registry.Get(t, "metal/charts/karpenter-metal3/manifests/"+
		signatureTag(registry.Digest(t, "metal/charts/karpenter-metal3", c.chart)))
	manifest["annotations"] = map[string]string{"changed": "again"}
	again, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	registry.put(t, "metal/charts/karpenter-metal3", "again", again)
	registry.put(t, "metal/charts/karpenter-metal3", signatureTag("sha256:"+sum(again)), signature)
	for name, tc := range map[string]struct {
		reason          string
		repository, tag string
		key             *ecdsa.PublicKey
		want            string
	}{
		"Image":       {reason: "both platforms are signed by their index", repository: "metal/" + image, tag: c.tag, key: public},
		"Chart":       {reason: "Helm takes it as it is signed", repository: "metal/charts/karpenter-metal3", tag: c.chart, key: public},
		"TenantChart": {reason: "so is the other", repository: "metal/charts/karpenter-metal3-tenant", tag: c.chart, key: public},
		"WrongKey": {reason: "anyone can sign", repository: "metal/" + image, tag: c.tag, key: &other.PublicKey,
			want: "the signature is not of this key"},
		"Changed": {reason: "what was not signed has no signature", repository: "metal/charts/karpenter-metal3", tag: "changed", key: public,
			want: "404"},
		"OtherSignature": {reason: "a signature of something else is none", repository: "metal/charts/karpenter-metal3", tag: "again",
			key: public, want: "the signature is of sha256:"},
	} {
		t.Run(name, func(t *testing.T) {
			err := registry.verify(tc.repository, tc.tag, tc.key)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
