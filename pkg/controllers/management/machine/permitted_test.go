// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// permit sets what the tenant may set itself; nil for the defaults.
func (w *fixture) permit(properties *v1alpha1.TenantProperties) {
	w.t.Helper()
	tenant := &v1alpha1.TenantCluster{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.tenant, Name: "tenant"}, tenant); err != nil {
		w.t.Fatal(err)
	}
	tenant.Spec.TenantProperties = properties
	if err := w.client.Update(w.t.Context(), tenant); err != nil {
		w.t.Fatal(err)
	}
}

// TestForeignTemplateAndImage: the names of another tenant's template, image and key get no server, and the messages do not tell
// which of them exist.
func TestForeignTemplateAndImage(t *testing.T) {
	w := newFixture(t, 1)
	w.permit(nil)
	foreign := "foreign-" + w.metal3
	w.create(&v1alpha1.MachineConfigTemplate{ObjectMeta: metaName(foreign), Spec: v1alpha1.MachineConfigTemplateSpec{
		CloudInitTemplate: "#cloud-config\nwrite_files: [{path: /etc/registry, content: password-of-globex}]\n"}})
	w.create(&v1alpha1.SSHKey{ObjectMeta: metaName(foreign), Spec: v1alpha1.SSHKeySpec{PublicKey: publicKey}})
	w.create(&v1alpha1.OSImage{ObjectMeta: metaName(foreign), Spec: v1alpha1.OSImageSpec{Properties: map[string]string{
		v1alpha1.PropertyImageURL: "https://globex:s3cret@images.example.com/weights.qcow2", v1alpha1.PropertyImageChecksum: checksum}}})
	manager := w.start(w.client)
	running := func() *process { return manager }
	for i, property := range []string{v1alpha1.PropertyUserDataTemplate, v1alpha1.PropertyNetworkDataTemplate, v1alpha1.PropertySSHKeys,
		v1alpha1.PropertyOSImage} {
		messages := map[string]string{}
		for _, name := range []string{foreign, "missing-" + w.metal3} {
			key := w.machine(strings.Split(name, "-")[0]+"-"+string(rune('a'+i)), func(machine *v1alpha1.Machine) {
				machine.Spec.Properties = map[string]string{property: name}
			})
			w.until("refused", running, func() bool {
				return condition(w.get(key), v1alpha1.ConditionReady).Reason == v1alpha1.ReasonInvalidSpec
			})
			machine := w.get(key)
			if machine.Status.HostRef != nil || len(machine.Status.Properties) > 0 {
				t.Errorf("%s=%s: got server %v, properties %v", property, name, machine.Status.HostRef, machine.Status.Properties)
			}
			message := condition(machine, v1alpha1.ConditionReady).Message
			messages[strings.NewReplacer(name, "NAME", key.Name, "MACHINE").Replace(message)] = message
		}
		if len(messages) != 1 {
			t.Errorf("%s: the messages tell which name exists: %v", property, messages)
		}
	}
	if host := w.hosts()[0]; host.Spec.ConsumerRef != nil || host.Spec.UserData != nil || host.Spec.Image != nil {
		t.Errorf("the server has consumer %v, user data %v, image %v", host.Spec.ConsumerRef, host.Spec.UserData, host.Spec.Image)
	}
}

// TestPropertiesEditedAfterClaim: a tenant that writes a foreign name once its Machine has a server has it neither installed nor told
// whether it exists. What was permitted when the server was chosen stays permitted.
func TestPropertiesEditedAfterClaim(t *testing.T) {
	w := newFixture(t, 1)
	pool := "pool-" + w.metal3
	w.create(&v1alpha1.SSHKey{ObjectMeta: metaName(pool), Spec: v1alpha1.SSHKeySpec{PublicKey: publicKey}})
	w.permit(&v1alpha1.TenantProperties{SSHKeys: []string{pool}})
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		machine.Spec.Properties = map[string]string{v1alpha1.PropertySSHKeys: pool}
		machine.Spec.Bootstrap.DataSecretName = "join"
	})
	manager := w.start(w.client)
	running := func() *process { return manager }
	reason := func() metav1.Condition { return condition(w.get(key), v1alpha1.ConditionReady) }
	w.until("claimed", running, func() bool { return reason().Reason == v1alpha1.ReasonWaitingForBootstrapData })
	w.edit(key, func(machine *v1alpha1.Machine) {
		machine.Spec.Properties[v1alpha1.PropertyUserDataTemplate] = "foreign"
	})
	w.until("refused", running, func() bool { return reason().Reason == v1alpha1.ReasonInvalidSpec })
	if message := reason().Message; !strings.Contains(message, "is not among what the tenant may name") {
		t.Errorf("got %s", message)
	}
	// Not even a Machine whose node could not join is installed with it.
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Labels = map[string]string{"not a label": ""} })
	w.userData("join")
	for range 5 {
		manager.round()
	}
	if got := reason(); got.Reason != v1alpha1.ReasonInvalidSpec || !strings.Contains(got.Message, "is not among what the tenant may name") {
		t.Errorf("got %s: %s", got.Reason, got.Message)
	}
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Labels = nil })
	w.permit(nil)
	w.edit(key, func(machine *v1alpha1.Machine) { delete(machine.Spec.Properties, v1alpha1.PropertyUserDataTemplate) })
	w.until("installed", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
}

// TestImageHosts: an image of a host that the NodeProvider does not list is not fetched.
func TestImageHosts(t *testing.T) {
	w := newFixture(t, 1)
	provider := &v1alpha1.NodeProvider{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "provider-" + w.metal3}, provider); err != nil {
		t.Fatal(err)
	}
	provider.Spec.ImageHosts = []string{"mirror.example.com"}
	if err := w.client.Update(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	key := w.machine("m", nil)
	manager := w.start(w.client)
	w.until("refused", func() *process { return manager }, func() bool {
		return condition(w.get(key), v1alpha1.ConditionReady).Reason == v1alpha1.ReasonInvalidSpec
	})
	message := condition(w.get(key), v1alpha1.ConditionReady).Message
	if !strings.Contains(message, "is on host images.example.com, which is not among spec.imageHosts of NodeProvider "+provider.Name) {
		t.Errorf("got %s", message)
	}
}
