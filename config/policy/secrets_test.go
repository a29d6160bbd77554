// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

const (
	// renamedUser is a manager whose account has a name of its own.
	renamedUser = "system:serviceaccount:platform:servers"
	uid         = "0b0ab04f-9c5e-4b0c-8f0e-3f8d1c1f2a77"
)

// secret is one of the type, with the label of a Machine.
func secret(namespace, name string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{v1alpha1.MachineUIDLabelKey: uid}}, Type: kind}
}

// userData is what the manager writes, and join what the provider does.
func userData(namespace string) *corev1.Secret {
	return secret(namespace, "m-"+uid[:8]+"-user-data", corev1.SecretTypeOpaque)
}

func join(namespace string) *corev1.Secret {
	joinSecret := secret(namespace, "m-0123abcd-join", corev1.SecretTypeOpaque)
	joinSecret.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: uid,
		Controller: ptr.To(true)}}
	return joinSecret
}

// issued is a join with a token, and a text that is longer than an empty one.
func issued(namespace string) *corev1.Secret {
	return changed(join(namespace), func(secret *corev1.Secret) {
		secret.Data = map[string][]byte{v1alpha1.UserDataSecretKey: make([]byte, 300), "token": []byte("abcdef.0123456789abcdef")}
	})
}

func token() *corev1.Secret {
	minted, err := bootstrap.ParseToken("abcdef.0123456789abcdef")
	if err != nil {
		panic(err)
	}
	machine := v1alpha1.MachineReference{Namespace: "acme", Name: "m", UID: uid}
	return bootstrap.TokenSecret(machine, v1alpha1.JoinVCluster, minted, time.Now().Add(time.Hour))
}

// certificates are what the manager writes for the webhook.
func certificates() *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "karpenter-metal3-webhook-certs"},
		Type: corev1.SecretTypeTLS}
	secret.Data = map[string][]byte{corev1.TLSCertKey: {}, corev1.TLSPrivateKeyKey: {}}
	return secret
}

// changed is a Secret with a change.
func changed(secret *corev1.Secret, change func(*corev1.Secret)) *corev1.Secret {
	change(secret)
	return secret
}

// TestSecrets: with its own rights, each account can write the Secrets that it is for, and no other: above all none that Kubernetes would
// fill with the token of another account.
func TestSecrets(t *testing.T) {
	const hosts = "metal3-system"
	namespace := environment.Namespace(t)
	hostNamespace(t, hosts)
	environment.Grant(t, namespace, "provider-management.yaml", "manager.yaml", "provider-tenant.yaml")
	environment.Grant(t, metav1.NamespaceDefault, "manager-webhook.yaml")
	renamed := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: hosts, Name: "renamed"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "karpenter-metal3-manager-hosts"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: renamedUser}}}
	environment.Give(t, renamed)
	management, err := load("secrets.yaml", Options{Renamed: map[string]string{renamedUser: ManagerUser}}.functions())
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := Tenant(ProviderUser, "acme")
	if err != nil {
		t.Fatal(err)
	}
	const annotated = "kubernetes.io/service-account.name"
	toToken := func(secret *corev1.Secret) {
		secret.Type, secret.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{annotated: "default"}
	}
	annotate := func(secret *corev1.Secret) { secret.Annotations = map[string]string{annotated: "default"} }
	unlabel := func(secret *corev1.Secret) { secret.Labels = nil }
	foreign := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeOpaque}
	}
	disowned := func(secret *corev1.Secret) { secret.OwnerReferences = nil }
	group := func(secret *corev1.Secret) { secret.Data["auth-extra-groups"] = []byte("system:bootstrappers:admins") }
	endless := func(secret *corev1.Secret) { delete(secret.Data, "expiration") }
	system := metav1.NamespaceSystem
	cases := map[string]struct {
		reason string
		user   string
		before *corev1.Secret // nil: after is created
		after  *corev1.Secret // nil: before is deleted
		refuse string
	}{
		"ManagerWrites":  {reason: "user data", user: ManagerUser, after: userData(hosts)},
		"ManagerBlanks":  {reason: "user data", user: ManagerUser, before: userData(hosts), after: changed(userData(hosts), fill)},
		"ManagerDeletes": {reason: "user data", user: ManagerUser, before: userData(hosts)},
		"ManagerToken": {reason: "another account", user: ManagerUser, after: changed(userData(hosts), toToken),
			refuse: "would get the token of another account"},
		"ManagerAnnotates": {reason: "another account", user: ManagerUser, before: userData(hosts), after: changed(userData(hosts), annotate),
			refuse: "would get the token of another account"},
		"ManagerForeignName": {reason: "a BMC's", user: ManagerUser, after: secret(hosts, "bmc", corev1.SecretTypeOpaque), refuse: "-user-data"},
		"ManagerOtherMachine": {reason: "no name of the Machine's", user: ManagerUser,
			after:  secret(hosts, "m-user-data", corev1.SecretTypeOpaque),
			refuse: "-user-data"},
		"ManagerUnlabelled": {reason: "no Machine's", user: ManagerUser, after: changed(userData(hosts), unlabel), refuse: "machine-uid"},
		"ManagerType": {reason: "a registry's", user: ManagerUser, after: changed(userData(hosts), func(secret *corev1.Secret) {
			secret.Type = "example.com/other"
		}), refuse: "Opaque"},
		"ManagerTakesBMC": {reason: "it would be its own from then on", user: ManagerUser, before: foreign(hosts, "m-"+uid[:8]+"-user-data"),
			after: userData(hosts), refuse: "machine-uid"},
		"ManagerDeletesBMC": {reason: "the server would be lost to Metal3", user: ManagerUser, before: foreign(hosts, "bmc"),
			refuse: "-user-data"},
		"RenamedWrites": {reason: "user data, as any manager", user: renamedUser, after: userData(hosts)},
		"RenamedToken": {reason: "another name gives no more", user: renamedUser, after: changed(userData(hosts), toToken),
			refuse: "would get the token of another account"},
		"RenamedForeignName": {reason: "a BMC's", user: renamedUser, after: secret(hosts, "bmc", corev1.SecretTypeOpaque), refuse: "-user-data"},

		"ProviderWrites": {reason: "the join", user: ProviderUser, after: join(namespace)},
		"ProviderWritesMuch": {reason: "a join of a node with 64 long labels and 32 taints", user: ProviderUser,
			after: changed(join(namespace), func(secret *corev1.Secret) {
				secret.Data = map[string][]byte{v1alpha1.UserDataSecretKey: longJoin(t)}
			})},
		"ProviderFills": {reason: "as much as a join may have", user: ProviderUser,
			after: changed(join(namespace), func(secret *corev1.Secret) {
				secret.Data = map[string][]byte{v1alpha1.UserDataSecretKey: make([]byte, 64<<10-200), "token": make([]byte, 23)}
			})},
		"ProviderHoards": {reason: "etcd is shared", user: ProviderUser, after: changed(join(namespace), func(secret *corev1.Secret) {
			secret.Data = map[string][]byte{v1alpha1.UserDataSecretKey: make([]byte, 64<<10)}
		}), refuse: "at most 64 KiB"},
		"ProviderHoardsKeys": {reason: "etcd is shared", user: ProviderUser, after: changed(join(namespace), func(secret *corev1.Secret) {
			secret.Data = map[string][]byte{"a": make([]byte, 32<<10), "b": make([]byte, 32<<10)}
		}), refuse: "at most 64 KiB"},
		"ProviderChanges": {reason: "each revision stays until etcd is compacted", user: ProviderUser, before: issued(namespace),
			after:  changed(issued(namespace), func(secret *corev1.Secret) { secret.Data["token"] = []byte("another") }),
			refuse: "may empty a Secret, once"},
		"ProviderShortens": {reason: "as often as it has bytes", user: ProviderUser, before: issued(namespace),
			after:  changed(issued(namespace), func(secret *corev1.Secret) { delete(secret.Data, "token") }),
			refuse: "may empty a Secret, once"},
		"ProviderEmptiesAgain": {reason: "each revision stays until etcd is compacted", user: ProviderUser,
			before: changed(join(namespace), fill), after: changed(join(namespace), func(secret *corev1.Secret) { secret.Data = nil }),
			refuse: "may empty a Secret, once"},
		"ProviderLabels": {reason: "each revision stays until etcd is compacted", user: ProviderUser, before: issued(namespace),
			after:  changed(issued(namespace), func(secret *corev1.Secret) { secret.Labels["x"] = "y" }),
			refuse: "may empty a Secret, once"},
		"ProviderRevokes": {reason: "the join", user: ProviderUser, before: issued(namespace), after: changed(join(namespace), fill)},
		"ProviderToken": {reason: "another account", user: ProviderUser, after: changed(join(namespace), toToken),
			refuse: "would get the token of another account"},
		"ProviderAnnotates": {reason: "another account", user: ProviderUser, before: issued(namespace),
			after:  changed(issued(namespace), annotate),
			refuse: "would get the token of another account"},
		"ProviderForeignName": {reason: "the tenant's kubeconfig", user: ProviderUser,
			after: changed(join(namespace), func(secret *corev1.Secret) { secret.Name = "acme-kubeconfig" }), refuse: "end in -join"},
		"ProviderOwner": {reason: "it would stay for ever", user: ProviderUser, after: changed(join(namespace), disowned),
			refuse: "as their owner"},
		"ProviderTakesOther": {reason: "another's of that name", user: ProviderUser, before: foreign(namespace, "m-0123abcd-join"),
			after:  join(namespace),
			refuse: "machine-uid"},

		"TenantWrites":  {reason: "a join token", user: ProviderUser, after: token()},
		"TenantRenews":  {reason: "a join token", user: ProviderUser, before: token(), after: changed(token(), later)},
		"TenantDeletes": {reason: "a join token", user: ProviderUser, before: token()},
		"TenantToken": {reason: "an administrator's", user: ProviderUser, after: changed(secret(system, "x", ""), toToken),
			refuse: "join tokens alone"},
		"TenantNamedToken": {reason: "an administrator's", user: ProviderUser,
			after: changed(secret(system, "bootstrap-token-abcdef", ""), toToken), refuse: "join tokens alone"},
		"TenantOpaque": {reason: "any other", user: ProviderUser, after: secret(system, "bootstrap-token-abcdef", ""),
			refuse: "join tokens alone"},
		"TenantGroup": {reason: "more than joining", user: ProviderUser, after: changed(token(), group), refuse: "auth-extra-groups"},
		"TenantRegroups": {reason: "more than joining", user: ProviderUser, before: token(), after: changed(token(), group),
			refuse: "auth-extra-groups"},
		"TenantEndless": {reason: "it would stay valid", user: ProviderUser, before: token(), after: changed(token(), endless),
			refuse: "expiration"},
		"TenantEmptyExpiration": {reason: "Kubernetes takes it for none", user: ProviderUser, before: token(),
			after: changed(token(), func(secret *corev1.Secret) {
				delete(secret.Data, "expiration")
				secret.StringData = map[string]string{"expiration": ""}
			}), refuse: "expiration"},
		"TenantUnnamed": {reason: "nobody would delete it", user: ProviderUser,
			after: changed(token(), func(secret *corev1.Secret) { secret.Annotations = nil }), refuse: "must name its Machine"},
		"TenantUnnames": {reason: "nobody would delete it", user: ProviderUser, before: token(),
			after:  changed(token(), func(secret *corev1.Secret) { secret.Annotations[v1alpha1.MachineAnnotationKey] = "acme/" }),
			refuse: "must name its Machine"},
		"TenantOtherNamespace": {reason: "another provider would have to delete it", user: ProviderUser,
			after:  changed(token(), func(secret *corev1.Secret) { secret.Annotations[v1alpha1.MachineAnnotationKey] = "globex/m" }),
			refuse: "must name its Machine"},
		"TenantForeign": {reason: "a token of the tenant's own", user: ProviderUser, before: changed(token(), unlabel), after: token(),
			refuse: "join tokens alone"},
		"TenantDeletesForeign": {reason: "the tenant's own", user: ProviderUser, before: foreign(system, "tenants-own"),
			refuse: "join tokens alone"},

		"ManagerWritesCertificates": {reason: "the webhook's", user: ManagerUser, after: certificates()},
		"ManagerRenewsCertificates": {reason: "the webhook's", user: ManagerUser, before: certificates(), after: changed(certificates(), fill)},
		"ManagerTokenBesideWebhook": {reason: "another account", user: ManagerUser,
			after: changed(secret(metav1.NamespaceDefault, "x", ""), toToken), refuse: "would get the token of another account"},
		"ManagerBesideWebhook": {reason: "nothing else", user: ManagerUser, after: foreign(metav1.NamespaceDefault, "x"),
			refuse: "the certificates of the webhook"},
		"ManagerCertificatesType": {reason: "as it makes them", user: ManagerUser,
			after:  foreign(metav1.NamespaceDefault, "karpenter-metal3-webhook-certs"),
			refuse: "the certificates of the webhook"},
		"ManagerTakesCertificates": {reason: "a Secret of another type is another's", user: ManagerUser,
			before: foreign(metav1.NamespaceDefault, "karpenter-metal3-webhook-certs"),
			after:  changed(foreign(metav1.NamespaceDefault, "karpenter-metal3-webhook-certs"), fill),
			refuse: "the certificates of the webhook"},
	}
	attempt := func(t *testing.T, user string, before, after *corev1.Secret) error {
		t.Helper()
		c, ctx := environment.As(t, user), t.Context()
		if before == nil {
			return c.Create(ctx, after.DeepCopy(), client.DryRunAll)
		}
		was := before.DeepCopy()
		if err := environment.Client.Create(ctx, was); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := environment.Client.Delete(ctx, was); err != nil {
				t.Error(err)
			}
		}()
		if after == nil {
			return c.Delete(ctx, was.DeepCopy(), client.DryRunAll)
		}
		wanted := after.DeepCopy()
		wanted.ResourceVersion, wanted.UID = was.ResourceVersion, was.UID
		if user == ManagerUser && was.Namespace == hosts { // it patches
			return c.Patch(ctx, wanted, client.MergeFrom(was), client.DryRunAll)
		}
		return c.Update(ctx, wanted, client.DryRunAll)
	}
	inForce := []func() error{
		func() error { return attempt(t, cases["ManagerToken"].user, nil, cases["ManagerToken"].after) },
		func() error { return attempt(t, cases["TenantToken"].user, nil, cases["TenantToken"].after) },
	}
	withoutPolicies(t, inForce...)
	// Without the policies the rights are enough for each of them.
	for name, tc := range cases {
		if err := attempt(t, tc.user, tc.before, tc.after); err != nil {
			t.Errorf("%s: without the policy there is nothing to refuse: %v", name, err)
		}
	}
	enforce(t, append(management, tenant...), inForce...)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			judge(t, tc.reason, attempt(t, tc.user, tc.before, tc.after), tc.refuse == "", tc.refuse)
		})
	}
	// Everyone else writes what RBAC lets them.
	if err := environment.Client.Create(t.Context(), changed(secret(system, "x", ""), toToken), client.DryRunAll); err != nil {
		t.Errorf("the policies hold for an administrator: %v", err)
	}
}

// longJoin is the join of a node with as many labels as a Machine may have, and longer ones than people write.
func longJoin(t *testing.T) []byte {
	t.Helper()
	minted, err := bootstrap.ParseToken("abcdef.0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	long := bootstrap.Join{NodeName: strings.Repeat("n", 63), ProviderID: "metal3://metal3-system/server-00001/" + strings.Repeat("n", 63),
		APIServerEndpoint: "tenant.example.com:6443", CACertHashes: []string{"sha256:" + strings.Repeat("0", 64)}, Token: minted,
		KubernetesVersion: "v1.36", Mode: v1alpha1.JoinKubeadm, Labels: map[string]string{}, KubeletArgs: map[string]string{"max-pods": "200"}}
	for n := range 64 {
		long.Labels[fmt.Sprintf("label-%02d.example.com/%s", n, strings.Repeat("x", 60))] = strings.Repeat("y", 63)
	}
	for n := range 32 {
		long.Taints = append(long.Taints, corev1.Taint{Key: fmt.Sprintf("taint-%02d.example.com/%s", n, strings.Repeat("x", 60)),
			Value: strings.Repeat("y", 63), Effect: corev1.TaintEffectNoSchedule})
	}
	userData, err := bootstrap.JoinUserData(long)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the join of a node with many long labels and taints has %d bytes", len(userData))
	return userData
}

func fill(secret *corev1.Secret) {
	if secret.Type == corev1.SecretTypeTLS {
		secret.Data[corev1.TLSCertKey] = []byte("later")
		return
	}
	secret.Data = map[string][]byte{v1alpha1.UserDataSecretKey: []byte("later")}
}

func later(secret *corev1.Secret) {
	secret.Data["expiration"] = []byte(time.Now().Add(2 * time.Hour).UTC().Format(time.RFC3339))
}
