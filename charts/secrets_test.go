// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// writer is an account that may create Secrets, and where.
type writer struct {
	account, home, namespace string
}

// writers are all of them, by cluster.
var (
	managementWriters = []writer{
		{"karpenter-metal3-manager", systemNamespace, hostNamespace},
		{"karpenter-metal3-manager", systemNamespace, systemNamespace},
		{"karpenter-metal3-provider-" + tenantNamespace, tenantNamespace, tenantNamespace},
	}
	tenantWriters = []writer{{"karpenter-metal3-provider", systemNamespace, metav1.NamespaceSystem}}
)

// contents are Secrets that none of them must create, although RBAC lets them.
var contents = []struct {
	why, what string
	secret    corev1.Secret
}{
	{"Kubernetes would put the token of that account into it", "of type `kubernetes.io/service-account-token`", tokenOf("m-join")},
	{"as before, with the name of one of its own", "`…-user-data` of type `kubernetes.io/service-account-token`",
		tokenOf("m-0b0ab04f-user-data")},
	{"as before, with the name of one of its own", "`bootstrap-token-…` of type `kubernetes.io/service-account-token`",
		tokenOf("bootstrap-token-abcdef")},
	{"another program could be led to that account", "with the annotation `kubernetes.io/service-account.name`", corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "m-join", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
			Labels: map[string]string{v1alpha1.MachineUIDLabelKey: "0b0ab04f-9c5e-4b0c-8f0e-3f8d1c1f2a77"}}}},
	{"Metal3, Helm or the tenant may read it", "of another name", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "another"}}},
	{"it would be of no Machine, and stay", "without the UID of a Machine", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "m-join"}}},
	{"Helm believes its records", "of type `helm.sh/release.v1`", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.a.v1"},
		Type: "helm.sh/release.v1"}},
}

// tokenOf is a Secret that asks for a token of the default account.
func tokenOf(name string) corev1.Secret {
	return corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{Name: name,
		Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
		Labels:      map[string]string{v1alpha1.MachineUIDLabelKey: "0b0ab04f-9c5e-4b0c-8f0e-3f8d1c1f2a77"}}}
}

// in is one of the contents in a namespace.
func in(namespace string, secret corev1.Secret) *corev1.Secret {
	clone := secret.DeepCopy()
	clone.Namespace = namespace
	return clone
}

// startWriters makes both clusters with the accounts of the charts. What is returned applies their policies.
func startWriters(t *testing.T) (management, tenant *cluster, restrict func()) {
	t.Helper()
	management = newCluster(t, hostNamespace, systemNamespace, tenantNamespace)
	tenant = newCluster(t, systemNamespace)
	management.accounts(t, "servers", systemNamespace, Management)
	management.accounts(t, "acme", tenantNamespace, Tenant)
	tenant.accounts(t, "acme", systemNamespace, Tenant, "--set=target=tenant")
	return management, tenant, func() {
		t.Helper()
		management.policies(t, "servers", systemNamespace, Management)
		tenant.policies(t, "acme", systemNamespace, Tenant, "--set=target=tenant")
		for _, side := range []struct {
			*cluster
			writer
		}{{management, managementWriters[0]}, {tenant, tenantWriters[0]}} {
			account := side.login(t, side.token(t, side.home, side.account))
			poll.Eventually(t, "the policy is in force", func(ctx context.Context) error {
				err := account.client.Create(ctx, in(side.namespace, contents[0].secret), client.DryRunAll)
				if !apierrors.IsForbidden(err) {
					return errors.Join(errors.New("it is admitted"), err)
				}
				return nil
			})
		}
	}
}

// policies applies the admission policies of a rendered chart.
func (c *cluster) policies(t *testing.T, release, namespace, chart string, flags ...string) {
	t.Helper()
	out, problems, err := helm(t, append([]string{"template", release, chart, "--namespace=" + namespace}, flags...)...)
	if err != nil {
		t.Fatalf("rendering %s %v: %v\n%s", chart, flags, err, problems)
	}
	for _, object := range parse(t, out) {
		if !strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			continue
		}
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// TestContents: a real API server denies the accounts of the charts each Secret of the table, which is also in docs/rights.md, with
// the charts' policies, and because of them.
func TestContents(t *testing.T) {
	t.Setenv(audit.DirectoryVariable, "") // these attempts must not count as use of a right
	management, tenant, restrict := startWriters(t)
	each := func(try func(writer writer, what int, err error)) {
		t.Helper()
		for side, writers := range map[*cluster][]writer{management: managementWriters, tenant: tenantWriters} {
			for _, writer := range writers {
				account := side.login(t, side.token(t, writer.home, writer.account))
				for n := range contents {
					try(writer, n, account.client.Create(t.Context(), in(writer.namespace, contents[n].secret), client.DryRunAll))
				}
			}
		}
	}
	each(func(writer writer, what int, err error) {
		if err != nil {
			t.Errorf("without the policies %s could not write a Secret %s, so the test shows nothing: %v", writer.account, contents[what].what, err)
		}
	})
	restrict()
	each(func(writer writer, what int, err error) {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'karpenter-metal3-") {
			t.Errorf("%s: %s can write a Secret %s: %v", contents[what].why, writer.account, contents[what].what, err)
		}
	})
	table := "| it cannot create a Secret | because |\n|---|---|\n"
	for _, line := range contents {
		table += fmt.Sprintf("| %s | %s |\n", line.what, line.why)
	}
	documents(t, map[string]string{"every account's Secrets": table})
}

// TestNoTokenBySecret: kube-controller-manager puts a token of another account into the Secrets of our accounts, and with the charts'
// policies there are no such Secrets.
func TestNoTokenBySecret(t *testing.T) {
	system.Only(t)
	t.Setenv(audit.DirectoryVariable, "")
	management, tenant, restrict := startWriters(t)
	type victim struct {
		*cluster
		writer
		account *account
	}
	var all []victim
	for side, writers := range map[*cluster][]writer{management: managementWriters, tenant: tenantWriters} {
		side.controllers(t)
		for _, writer := range writers {
			all = append(all, victim{side, writer, side.login(t, side.token(t, writer.home, writer.account))})
		}
	}
	for _, victim := range all {
		secret := in(victim.namespace, tokenOf("stolen"))
		// A Secret for an account that does not exist yet would be deleted.
		poll.Eventually(t, "there is a default account", func(ctx context.Context) error {
			return victim.Client.Get(ctx, types.NamespacedName{Namespace: victim.namespace, Name: "default"}, &corev1.ServiceAccount{})
		})
		if err := victim.account.client.Create(t.Context(), secret); err != nil {
			t.Fatalf("%s cannot write the Secret without the policy: %v", victim.writer.account, err)
		}
		poll.Eventually(t, victim.writer.account+" gets the token of another account without the policy", func(ctx context.Context) error {
			if err := victim.Client.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
				return err
			}
			if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
				return errors.New("it is empty")
			}
			return nil
		})
	}
	restrict()
	for _, victim := range all {
		err := victim.account.client.Create(t.Context(), in(victim.namespace, tokenOf("again")))
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s can still have a Secret filled: %v", victim.writer.account, err)
		}
		left := &corev1.Secret{}
		if err := victim.Client.Get(t.Context(),
			types.NamespacedName{Namespace: victim.namespace, Name: "again"}, left); !apierrors.IsNotFound(err) {
			t.Errorf("the Secret of %s exists: %v", victim.writer.account, err)
		}
	}
}

// controllers runs the part of kube-controller-manager that makes service accounts and their tokens.
func (c *cluster) controllers(t *testing.T) {
	t.Helper()
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, key, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, "kube-controller-manager", exec.CommandContext(t.Context(), binary(t, "kube-controller-manager", "make tools"),
		"--kubeconfig="+writeKubeconfig(t, c.Config), "--controllers=serviceaccount,serviceaccount-token", "--leader-elect=false",
		"--secure-port=0", "--service-account-private-key-file="+file))
}
