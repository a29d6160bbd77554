// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/joining"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

var clusterInfo = client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}

// A server joins a vCluster of the open-source build by `kubeadm join`, with what docs/migration.md says that must be prepared.
func TestAServerJoinsAVCluster(t *testing.T) {
	w := newHostFixture(t)
	page := w.readPage(t, w.network.Server(21).Addr())
	plain, acme := w.startTenant(t, "plain", 20), w.startTenant(t, "acme", 21, filepath.Join(page.dir, "vcluster.yaml"))
	plain.untilReady(t)
	plain.checkDeletesNodes(t)
	acme.untilReady(t)
	acme.checkUnprepared(t)

	page.follow(t, acme)
	provider := acme.asProvider(t)
	token := joinToken(t, provider, nodeName, v1alpha1.JoinKubeadm)
	w.bootServer(t, acme.joinData(t, provider, token))
	acme.untilSigned(t, token)
	acme.untilCertified(t, token)
	acme.untilJoined(t)
}

// checkDeletesNodes waits until the vCluster has deleted a Node, as it does with those that none of its pods is on, unless it syncs
// nodes from the host.
func (v *tenant) checkDeletesNodes(t *testing.T) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joined"}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	if err := v.client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	v.until(t, "vCluster "+v.name+" to delete a Node", func(ctx context.Context) error {
		switch err := v.client.Get(ctx, client.ObjectKeyFromObject(node), node); {
		case err == nil:
			return errors.New("the Node exists")
		case apierrors.IsNotFound(err):
			return nil
		default:
			return err
		}
	})
	v.logf("vCluster %s, which syncs no nodes, has deleted a Node", v.name)
}

// checkUnprepared fails if the vCluster has what the page prepares.
func (v *tenant) checkUnprepared(t *testing.T) {
	t.Helper()
	for _, key := range []client.ObjectKey{
		clusterInfo, {Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, {Namespace: metav1.NamespaceSystem, Name: "kubelet-config"},
	} {
		if err := v.client.Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
			t.Errorf("reading ConfigMap %s, got %v, want that it does not exist, as docs/migration.md says", key, err)
		}
	}
	for _, name := range []string{"kubeadm:kubelet-bootstrap", "kubeadm:node-autoapprove-bootstrap"} {
		if err := v.client.Get(t.Context(), client.ObjectKey{Name: name}, &rbacv1.ClusterRoleBinding{}); !apierrors.IsNotFound(err) {
			t.Errorf("reading ClusterRoleBinding %s, got %v, want that it does not exist, as docs/migration.md says", name, err)
		}
	}
}

// asProvider returns a client with exactly the provider's rights in the tenant.
func (v *tenant) asProvider(t *testing.T) client.Client {
	t.Helper()
	v.grant(t, v.client, "provider-tenant.yaml", metav1.NamespaceSystem)
	kubeconfig := v.tokenKubeconfig(t, v.client, v.server, v.rest.CAData, metav1.NamespaceSystem, providerAccount)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := client.New(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// joinData returns the user data by which a server joins the vCluster, with the CA that the provider finds.
func (v *tenant) joinData(t *testing.T, provider client.Client, token bootstrap.Token) []byte {
	t.Helper()
	authority, err := joining.ClusterCA(provider, &rest.Config{})(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return userData(t, bootstrap.Join{
		NodeName: nodeName, ProviderID: providerID, APIServerEndpoint: strings.TrimPrefix(v.server, "https://"), Token: token,
		Labels: map[string]string{"rack": "r1"}, Taints: []corev1.Taint{{Key: "example.com/new", Effect: corev1.TaintEffectNoSchedule}},
	}, authority, "")
}

// untilSigned waits until cluster-info has the signature of the token, by which a server knows it.
func (v *tenant) untilSigned(t *testing.T, token bootstrap.Token) {
	t.Helper()
	v.until(t, "cluster-info to be signed", func(ctx context.Context) error {
		info := &corev1.ConfigMap{}
		if err := v.client.Get(ctx, clusterInfo, info); err != nil {
			return err
		}
		if info.Data[bootstrapapi.JWSSignatureKeyPrefix+token.ID()] == "" {
			return errors.New("it lacks the token's signature")
		}
		return nil
	})
	v.logf("cluster-info is signed with the token")
}

// untilCertified waits until a kubelet that has asked by the token has its client certificate.
func (v *tenant) untilCertified(t *testing.T, token bootstrap.Token) {
	t.Helper()
	v.until(t, "the kubelet's certificate to be signed", func(ctx context.Context) error {
		requests := &certificatesv1.CertificateSigningRequestList{}
		if err := v.client.List(ctx, requests); err != nil {
			return err
		}
		for _, request := range requests.Items {
			if request.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName &&
				request.Spec.Username == bootstrapapi.BootstrapUserPrefix+token.ID() && len(request.Status.Certificate) > 0 {
				v.logf("request %s of %s is approved and signed", request.Name, request.Spec.Username)
				return nil
			}
		}
		return fmt.Errorf("there are %d requests", len(requests.Items))
	})
}

// untilJoined waits until the Node is ready and as its user data say.
func (v *tenant) untilJoined(t *testing.T) {
	t.Helper()
	node := v.untilNodeReady(t, v.client)
	if node.Spec.ProviderID != providerID {
		t.Errorf("the Node has provider ID %q, want %q", node.Spec.ProviderID, providerID)
	}
	if node.Labels["rack"] != "r1" {
		t.Errorf("the Node lacks the label of the user data: it has %v", node.Labels)
	}
	if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "example.com/new" }) {
		t.Errorf("the Node lacks the taint of the user data: it has %v", node.Spec.Taints)
	}
}

// joinPage is the section of docs/migration.md about joining a vCluster by kubeadm.
type joinPage struct {
	// dir has the files of the page.
	dir      string
	commands []string
}

// readPage writes the files of the page, with the address of the vCluster in them.
func (w *hostFixture) readPage(t *testing.T, address netip.Addr) *joinPage {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(filepath.Dir(bin), "docs", "migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "\n## kubeadm join and vCluster\n")
	section, _, _ = strings.Cut(section, "\n## ")
	section = strings.NewReplacer("acme.example.com:6443", fmt.Sprintf("%s:%d", address, vclusterPort), "acme.example.com", address.String()).
		Replace(section)
	page := &joinPage{dir: filepath.Join(w.dir, "page")}
	for i, block := range strings.Split(section, "\n```") {
		switch language, lines, _ := strings.Cut(block, "\n"); {
		case i%2 == 0: // text
		case language == "yaml":
			name, _, _ := strings.Cut(strings.TrimPrefix(lines, "# "), "\n")
			writeFile(t, filepath.Join(page.dir, name), []byte(lines), 0o600)
		case language == "console":
			page.commands = append(page.commands, strings.Split(lines, "\n")...)
		}
	}
	if len(page.commands) != 2 {
		t.Fatalf("docs/migration.md has the commands %q about joining a vCluster, want two", page.commands)
	}
	return page
}

// follow runs the commands of the page for a tenant.
func (p *joinPage) follow(t *testing.T, v *tenant) {
	t.Helper()
	writeFile(t, filepath.Join(p.dir, "acme-admin.kubeconfig"), v.kubeconfig, 0o600)
	for _, line := range p.commands {
		command := exec.CommandContext(t.Context(), "sh", "-c", line)
		command.Dir, command.Env = p.dir, []string{"PATH=" + bin, "HOME=" + p.dir}
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("running %s, %v: %s", line, err, output)
		}
		t.Logf("$ %s\n%s", line, output)
	}
}
