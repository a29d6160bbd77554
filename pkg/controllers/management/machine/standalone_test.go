// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestWithoutTenant: a Machine that is made by hand, without a tenant, gets user data without a join, and says in its
// status where each of its properties comes from.
func TestWithoutTenant(t *testing.T) {
	w := newFixture(t, 1)
	w.create(&v1alpha1.SSHKey{ObjectMeta: metaName("key-" + w.metal3), Spec: v1alpha1.SSHKeySpec{PublicKey: publicKey}})
	w.create(&v1alpha1.MachineConfigTemplate{ObjectMeta: metaName("template-" + w.metal3), Spec: v1alpha1.MachineConfigTemplateSpec{
		CloudInitTemplate: "#cloud-config\nhostname: {{ .Values.NodeClaim.Name }}\nfqdn: {{ .Values.BareMetalHost.Name }}.example.com\n",
	}})
	w.typeProperty("rack-height", "42")
	key := w.machine("by-hand", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Properties = map[string]string{
			v1alpha1.PropertySSHKeys: "key-" + w.metal3, v1alpha1.PropertyUserDataTemplate: "template-" + w.metal3,
			"example.com/team": "vision", "rack-height": "48",
		}
	})
	manager := w.start(w.client)
	running := func() *process { return manager }
	w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	machine := w.get(key)
	if ready := condition(machine, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %+v", ready)
	}
	secret := &corev1.Secret{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.metal3, Name: w.hosts()[0].Spec.UserData.Name}, secret); err != nil {
		t.Fatal(err)
	}
	userData := string(secret.Data[v1alpha1.UserDataSecretKey])
	for _, part := range []string{"hostname: by-hand", "fqdn: server-00.example.com", publicKey} {
		if !strings.Contains(userData, part) {
			t.Errorf("user data does not hold %q:\n%s", part, userData)
		}
	}
	if strings.Contains(userData, "kubeadm") || w.hosts()[0].Spec.NetworkData != nil {
		t.Errorf("it joins something, or has network data:\n%s", userData)
	}
	if got := machine.Status.NodeLabels["example.com/team"]; got != "vision" {
		t.Errorf("the node has label example.com/team=%q, want that of the Machine's property", got)
	}
	got := map[string]string{}
	for _, property := range machine.Status.Properties {
		got[property.Key] = property.Value + " of " + property.Source
	}
	me, image := "Machine "+key.String(), "OSImage "+w.osImage
	want := map[string]string{
		"rack-height":                     "48 of " + me,
		"example.com/team":                "vision of " + me,
		v1alpha1.PropertyOSImage:          w.osImage + " of NodeType " + w.nodeType,
		v1alpha1.PropertyImageURL:         "http://images.example.com/os.qcow2 of " + image,
		v1alpha1.PropertyImageChecksum:    checksum + " of " + image,
		v1alpha1.PropertySSHKeys:          "key-" + w.metal3 + " of " + me,
		v1alpha1.PropertyUserDataTemplate: "template-" + w.metal3 + " of " + me,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status.properties (-want +got):\n%s", diff)
	}
	if err := w.client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	w.until("gone", running, func() bool { return w.get(key) == nil })
	w.checkNothingLeft()
}

// TestNodeLabels: a Machine's own properties are labels, too, unless the type or the host has the label. If a property is there in both
// spellings with two values, our key counts.
func TestNodeLabels(t *testing.T) {
	got := nodeLabels(map[string]string{"rack": "r1", "rack-height": "42"}, map[string]string{
		"rack-height": "48", "example.com/team": "vision", "example.com/teams": "a,b", v1alpha1.PropertyNetworkCIDR: "10.0.0.1/24",
		v1alpha1.PropertyOSImage: "ubuntu", v1alpha1.ReferenceKey(v1alpha1.PropertyOSImage): "debian"})
	want := map[string]string{"rack": "r1", "rack-height": "42", "example.com/team": "vision",
		v1alpha1.PropertyOSImage: "ubuntu", v1alpha1.ReferenceKey(v1alpha1.PropertyOSImage): "ubuntu"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// TestNothingToBootWith: a Machine without any user data gets none, and no Secret.
func TestNothingToBootWith(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", standAlone)
	manager := w.start(w.client)
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	if len(w.secrets()) > 0 || w.hosts()[0].Spec.UserData != nil {
		t.Errorf("Secrets %v, user data %v", w.secrets(), w.hosts()[0].Spec.UserData)
	}
}

// TestAddresses: the pool has two addresses for three Machines; the third says so, and gets one when one is free. The
// host has its own DHCP annotations back afterwards.
func TestAddresses(t *testing.T) {
	w := newRichFixture(t, 3)
	update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
		tenant.Spec.Network = nil // the servers are not moved
	})
	nodeType := &v1alpha1.NodeType{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.nodeType}, nodeType); err != nil {
		t.Fatal(err)
	}
	w.typeProperty(v1alpha1.PropertyNetworkCIDR, strings.Replace(nodeType.Spec.Properties[v1alpha1.PropertyNetworkCIDR], "/29", "/30", 1))
	for _, host := range w.hosts() {
		w.annotateHost(host.Name, v1alpha1.GatewayAnnotationKey, "192.0.2.1")
	}
	manager := w.start(w.client)
	running := func() *process { return manager }
	first := w.machine("first", standAlone)
	w.until("provisioned", running, func() bool { return w.get(first).Status.Phase == v1alpha1.MachineProvisioned })
	second := w.machine("second", standAlone)
	w.until("held", running, func() bool {
		return condition(w.get(second), v1alpha1.ConditionReady).Reason == v1alpha1.ReasonNoAddress
	})
	if message := condition(w.get(second), v1alpha1.ConditionReady).Message; !strings.Contains(message, "exhausted") {
		t.Errorf("message %q", message)
	}
	if host := w.get(second).Status.HostRef; host != nil {
		t.Errorf("host %s is tied up by a Machine that cannot use it", host.Name)
	}
	for _, host := range w.hosts() {
		if host.Name == w.get(first).Status.HostRef.Name && host.Annotations[v1alpha1.GatewayAnnotationKey] == "192.0.2.1" {
			t.Error("a DHCP server would give the server its old gateway")
		}
	}
	if err := w.client.Delete(t.Context(), w.get(first)); err != nil {
		t.Fatal(err)
	}
	w.until("provisioned", running, func() bool { return w.get(second).Status.Phase == v1alpha1.MachineProvisioned })
	if err := w.client.Delete(t.Context(), w.get(second)); err != nil {
		t.Fatal(err)
	}
	w.until("gone", running, func() bool { return w.get(second) == nil })
	if len(w.addresses()) > 0 {
		t.Errorf("addresses %v are left", w.addresses())
	}
	for _, host := range w.hosts() {
		if diff := cmp.Diff(map[string]string{v1alpha1.GatewayAnnotationKey: "192.0.2.1"}, host.Annotations); diff != "" {
			t.Errorf("annotations of host %s (-want +got):\n%s", host.Name, diff)
		}
	}
}

// TestHostStates: the Machine reports each state of Metal3, in words of ours.
func TestHostStates(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		phase  v1alpha1.MachinePhase
		change func(*fixture)
		want   string
		says   string
	}{
		"PausedWhileInstalling": {reason: "it makes no progress, and the message has the reason", phase: v1alpha1.MachineProvisioning,
			want:   v1alpha1.ReasonProvisioning,
			change: func(w *fixture) { w.annotateHost("server-00", bmov1alpha1.PausedAnnotation, "x") }, says: bmov1alpha1.PausedAnnotation},
		"DetachedWhileInstalling": {reason: "Metal3 does nothing on it", phase: v1alpha1.MachineProvisioning, want: v1alpha1.ReasonProvisioning,
			change: func(w *fixture) { w.annotateHost("server-00", bmov1alpha1.DetachedAnnotation, "x") }, says: bmov1alpha1.DetachedAnnotation},
		"ImageCannotBeWritten": {reason: "which operation has failed, and how often", phase: v1alpha1.MachineProvisioning,
			want: v1alpha1.ReasonHostError, change: func(w *fixture) {
				w.host("server-00", func(host *bmov1alpha1.BareMetalHost) {
					host.Status.ErrorType, host.Status.ErrorMessage, host.Status.ErrorCount = bmov1alpha1.ProvisioningError, "disk is too small", 3
				})
			}, says: "server-00: provisioning error: Metal3 could not install its image"},
		"HostDeleting": {reason: "the server is on its way out", phase: v1alpha1.MachineProvisioned, want: v1alpha1.ReasonHostDeleting,
			change: func(w *fixture) {
				for _, host := range w.hosts() {
					host.Finalizers = []string{bmov1alpha1.BareMetalHostFinalizer}
					if err := w.client.Update(w.t.Context(), &host); err != nil {
						w.t.Fatal(err)
					}
					if err := w.client.Delete(w.t.Context(), &host); err != nil {
						w.t.Fatal(err)
					}
				}
			}, says: "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			key := w.machine("m", standAlone)
			manager := w.start(w.client)
			w.until("there", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == tc.phase })
			tc.change(w)
			manager.round()
			ready := condition(w.get(key), v1alpha1.ConditionReady)
			if ready.Reason != tc.want || !strings.Contains(ready.Message, tc.says) {
				t.Errorf("%s: %s: %q; want %s and %q", tc.reason, ready.Reason, ready.Message, tc.want, tc.says)
			}
		})
	}
}
