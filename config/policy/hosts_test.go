// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestHosts: the manager installs, switches, claims and releases the servers of Machines, and writes nothing else on any server: neither
// where a BMC is, nor who else has the server. TestFaultsOnAPIServer of the machine controller tries all of its writes.
func TestHosts(t *testing.T) {
	const hosts, other = "metal3-system", "other-hosts"
	hostNamespace(t, hosts)
	hostNamespace(t, other)
	environment.Grant(t, environment.Namespace(t), "manager.yaml")
	renamed := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: hosts, Name: "renamed-hosts"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "karpenter-metal3-manager-hosts"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: renamedUser}}}
	environment.Give(t, renamed)
	type host = bmov1alpha1.BareMetalHost
	consumer := func(apiVersion, kind string) *corev1.ObjectReference {
		return &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: "acme", Name: "m", UID: uid}
	}
	machine := consumer(v1alpha1.GroupVersion.String(), "Machine")
	data := func(namespace, name string) *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: namespace, Name: name}
	}
	claimed := func(h *host) { h.Spec.ConsumerRef = machine }
	foreign := func(h *host) {
		h.Spec.ConsumerRef = consumer("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3Machine")
	}
	configured := func(h *host) {
		claimed(h)
		h.Spec.NetworkData, h.Spec.UserData = data("operators", "net"), data("operators", "user")
	}
	replaced := func(h *host) {
		h.Annotations[v1alpha1.SavedNetworkDataAnnotationKey] = "operators/net"
		h.Annotations[v1alpha1.SavedUserDataAnnotationKey] = "operators/user"
		h.Spec.NetworkData, h.Spec.UserData = data(hosts, "m-0b0ab04f-user-data"), data(hosts, "m-0b0ab04f-user-data")
	}
	annotated := func(key, value string) func(*host) { return func(h *host) { h.Annotations[key] = value } }
	cases := map[string]struct {
		reason         string
		user           string // empty: the manager
		before, change func(*host)
		refuse         string // empty: admitted
	}{
		"Claim": {reason: "a free server", change: func(h *host) {
			claimed(h)
			h.Annotations[v1alpha1.ClaimAnnotationKey] = "{}"
			h.Annotations[v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook)] = "vlan:1"
		}},
		"Install": {reason: "in one write", before: configured, change: func(h *host) {
			h.Spec.Image = &bmov1alpha1.Image{URL: "http://images.example.com/os.qcow2"}
			h.Spec.Online = true
			replaced(h)
			h.Annotations[v1alpha1.LastTenantAnnotationKey], h.Annotations[v1alpha1.IPAddressAnnotationKey] = "acme", "192.168.0.2/24"
		}},
		"Restore": {reason: "what an operator had there", before: func(h *host) { claimed(h); replaced(h) }, change: func(h *host) {
			h.Spec.NetworkData, h.Spec.UserData = data("operators", "net"), data("operators", "user")
			delete(h.Annotations, v1alpha1.SavedNetworkDataAnnotationKey)
			delete(h.Annotations, v1alpha1.SavedUserDataAnnotationKey)
		}},
		"Reboot":  {reason: "for a Machine", before: claimed, change: annotated(bmov1alpha1.RebootAnnotationPrefix, "{}")},
		"Release": {reason: "to the pool", before: claimed, change: func(h *host) { h.Spec.ConsumerRef = nil }},
		"Renamed": {reason: "any name of the manager's", user: renamedUser, change: claimed},
		"RenamedBMC": {reason: "another name gives no more", user: renamedUser, before: claimed,
			change: func(h *host) { h.Spec.BMC.Address = "redfish://198.51.100.66" }, refuse: "spec: bmc would change"},
		"Address": {reason: "Metal3 would send the BMC's password there", before: claimed,
			change: func(h *host) { h.Spec.BMC.Address = "redfish://198.51.100.66" }, refuse: "spec: bmc would change"},
		"Verification": {reason: "the password would be read on the way", before: claimed,
			change: func(h *host) { h.Spec.BMC.DisableCertificateVerification = true }, refuse: "spec: bmc would change"},
		"Credentials": {reason: "of another server", before: claimed, change: func(h *host) { h.Spec.BMC.CredentialsName = "other" },
			refuse: "spec: bmc would change"},
		"Cleaning": {reason: "the next tenant would find the data", before: claimed,
			change: func(h *host) { h.Spec.AutomatedCleaningMode = bmov1alpha1.CleaningModeDisabled }, refuse: "spec: automatedCleaningMode"},
		"BootMAC": {reason: "another server", before: claimed, change: func(h *host) { h.Spec.BootMACAddress = "00:00:5e:00:00:66" },
			refuse: "spec: bootMACAddress"},
		"MetaData": {reason: "an operator's", before: claimed, change: func(h *host) { h.Spec.MetaData = data(hosts, "x-user-data") },
			refuse: "spec: metaData"},
		"Foreign": {reason: "Cluster API's server", before: foreign, change: func(h *host) { h.Spec.ConsumerRef = nil },
			refuse: "that a Machine"},
		"TakeForeign": {reason: "Cluster API's server", before: foreign, change: claimed, refuse: "that a Machine"},
		"GiveAway":    {reason: "only Machines get servers of the manager", before: claimed, change: foreign, refuse: "that a Machine"},
		"SwitchForeign": {reason: "Cluster API's server", before: foreign, change: func(h *host) { h.Spec.Online = true },
			refuse: "that a Machine"},
		"RebootFree": {reason: "no Machine's", change: annotated(bmov1alpha1.RebootAnnotationPrefix, "{}"), refuse: "that a Machine"},
		"UserData": {reason: "any Secret of the cluster, on a server", before: claimed,
			change: func(h *host) { h.Spec.UserData = data("kube-system", "x-user-data") }, refuse: "…-user-data that it writes"},
		"UserDataName": {reason: "a BMC's credentials, on a server", before: claimed,
			change: func(h *host) { h.Spec.UserData = data(hosts, "bmc") }, refuse: "…-user-data that it writes"},
		"NetworkData": {reason: "Cluster API's bootstrap data, on a server", before: claimed,
			change: func(h *host) { h.Spec.NetworkData = data("capi", "bootstrap") }, refuse: "…-user-data that it writes"},
		"SavedNetworkData": {reason: "the first of two writes to that", before: claimed,
			change: annotated(v1alpha1.SavedNetworkDataAnnotationKey, "capi/bootstrap"), refuse: "has had there, and no other"},
		"SavedUserData": {reason: "the same of user data", before: configured,
			change: annotated(v1alpha1.SavedUserDataAnnotationKey, "operators/net"), refuse: "has had there, and no other"},
		"RestoreCrossed": {reason: "network data has no secrets, and user data may", before: func(h *host) { claimed(h); replaced(h) },
			change: func(h *host) { h.Spec.NetworkData = data("operators", "user") }, refuse: "…-user-data that it writes"},
		"Pause": {reason: "an operator's", before: claimed, change: annotated(bmov1alpha1.PausedAnnotation, ""),
			refuse: "metadata: " + bmov1alpha1.PausedAnnotation},
		"Inspect": {reason: "an operator's", before: claimed, change: annotated(bmov1alpha1.InspectAnnotationPrefix, "disabled"),
			refuse: "metadata: " + bmov1alpha1.InspectAnnotationPrefix},
		"Unpause": {reason: "an operator's", before: func(h *host) { claimed(h); h.Annotations[bmov1alpha1.PausedAnnotation] = "" },
			change: func(h *host) { delete(h.Annotations, bmov1alpha1.PausedAnnotation) }, refuse: "metadata: " + bmov1alpha1.PausedAnnotation},
		"Label": {reason: "what type it is", before: claimed, change: func(h *host) { h.Labels = map[string]string{"kind": "x"} },
			refuse: "metadata: labels"},
		"Finalizer": {reason: "Metal3's", before: func(h *host) { claimed(h); h.Finalizers = []string{bmov1alpha1.BareMetalHostFinalizer} },
			change: func(h *host) { h.Finalizers = nil }, refuse: "metadata: finalizers"},
		"Owner": {reason: "its deletion would be the server's", before: claimed, change: func(h *host) {
			h.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "x", UID: uid}}
		}, refuse: "metadata: ownerReferences"},
	}
	attempt := func(t *testing.T, namespace, user string, prepare, change func(*host)) error {
		t.Helper()
		if user == "" {
			user = ManagerUser
		}
		before := &host{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "server-", Annotations: map[string]string{}}}
		before.Spec.BMC = bmov1alpha1.BMCDetails{Address: "redfish://192.0.2.1", CredentialsName: "bmc"}
		if prepare != nil {
			prepare(before)
		}
		if err := environment.Client.Create(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		if before.Annotations == nil {
			before.Annotations = map[string]string{}
		}
		after := before.DeepCopy()
		change(after)
		return environment.As(t, user).Patch(t.Context(), after, client.MergeFrom(before), client.DryRunAll)
	}
	pauses := func() error { return attempt(t, hosts, "", cases["Pause"].before, cases["Pause"].change) }
	withoutPolicies(t, pauses)
	for name, tc := range cases {
		if err := attempt(t, hosts, tc.user, tc.before, tc.change); err != nil {
			t.Errorf("%s: without the policy there is nothing to refuse: %v", name, err)
		}
	}
	policies, err := load("hosts.yaml", Options{Renamed: map[string]string{renamedUser: ManagerUser}}.functions())
	if err != nil {
		t.Fatal(err)
	}
	enforce(t, policies, pauses)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			judge(t, tc.reason, attempt(t, hosts, tc.user, tc.before, tc.change), tc.refuse == "", tc.refuse, "karpenter-metal3-hosts")
		})
	}
	if err := attempt(t, other, "", nil, claimed); !apierrors.IsForbidden(err) {
		t.Errorf("the manager claims servers in a namespace that it is not given: %v", err)
	}
}
