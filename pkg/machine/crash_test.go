// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// cycle takes one Machine through its whole life, from the wish for a server to the server back in the pool. now is
// asked for the process that is running before everything that is done.
func cycle(w *world, now func() *process) {
	w.t.Helper()
	key := w.machine("m", nil)
	phase := func(want v1alpha1.MachinePhase, reason string) func() bool {
		return func() bool {
			machine := w.get(key)
			return machine.Status.Phase == want && condition(machine, v1alpha1.ConditionReady).Reason == reason
		}
	}
	w.until("claimed", now, phase(v1alpha1.MachineClaimed, v1alpha1.ReasonWaitingForBootstrapData))
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant, Name: "user-data"},
		Data:       map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config")},
	})
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Bootstrap.DataSecretName = "user-data" })
	w.until("provisioned", now, phase(v1alpha1.MachineProvisioned, v1alpha1.ReasonWaitingForNode))
	checkProvisioned(w, key)
	w.edit(key, func(machine *v1alpha1.Machine) {
		machine.Annotations = map[string]string{v1alpha1.NodeNameAnnotationKey: "node"}
	})
	w.until("joined", now, phase(v1alpha1.MachineJoined, v1alpha1.ReasonJoined))
	for _, secret := range w.secrets() {
		if data := secret.Data[v1alpha1.UserDataSecretKey]; len(data) > 0 {
			w.t.Errorf("user data outlives its use: Secret %s holds %q", secret.Name, data)
		}
	}
	if err := w.client.Delete(w.t.Context(), w.get(key)); err != nil {
		w.t.Fatal(err)
	}
	w.until("gone", now, func() bool { return w.get(key) == nil })
}

// checkProvisioned checks what Metal3 has been told.
func checkProvisioned(w *world, key types.NamespacedName) {
	w.t.Helper()
	machine, mine := w.get(key), 0
	for _, host := range w.hosts() {
		if host.Spec.ConsumerRef == nil {
			continue
		}
		mine++
		if !ownsHost(ownerOf(machine), &host) || host.Name != machine.Status.HostRef.Name {
			w.t.Errorf("host %s has consumer %v, Machine %s has host %v", host.Name, host.Spec.ConsumerRef, machine.Name, machine.Status.HostRef)
		}
		if host.Spec.Image == nil || host.Spec.Image.URL != "http://images.example.com/os.qcow2" || !host.Spec.Online {
			w.t.Errorf("host %s: image %v, online %v", host.Name, host.Spec.Image, host.Spec.Online)
		}
		secret := &corev1.Secret{}
		if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.metal3, Name: host.Spec.UserData.Name}, secret); err != nil {
			w.t.Errorf("user data of host %s: %v", host.Name, err)
		}
		if got := string(secret.Data[v1alpha1.UserDataSecretKey]); got != "#cloud-config" {
			w.t.Errorf("user data of host %s: %q", host.Name, got)
		}
		if want := v1alpha1.ProviderID(w.metal3, host.Name, machine.Name); machine.Status.ProviderID != want {
			w.t.Errorf("providerID %q, want %q", machine.Status.ProviderID, want)
		}
	}
	if mine != 1 {
		w.t.Errorf("%d hosts are claimed, want 1", mine)
	}
}

func TestEveryWriteMayGoWrong(t *testing.T) {
	total := countWrites(t)
	for _, kind := range []fault{crash, conflict, refused, answerLost} {
		t.Run(string(kind), func(t *testing.T) {
			first := 1
			if kind == crash {
				first = 0
			}
			for at := first; at <= total; at++ {
				t.Run(fmt.Sprintf("Write%02d", at), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, 2)
					connection := &faulty{kind: kind, at: at}
					running := w.start(connection.connect(t))
					cycle(w, func() *process {
						if connection.dead {
							connection = &faulty{}
							running = w.start(connection.connect(t))
						}
						return running
					})
					w.checkNothingLeft()
				})
			}
			t.Logf("%s: %d points tried, at each of the %d writes of a cycle", kind, total-first+1, total)
		})
	}
}

// countWrites runs an undisturbed cycle, which needs no sweep to leave nothing behind.
func countWrites(t *testing.T) int {
	t.Helper()
	w := newWorld(t, 2)
	connection := &faulty{}
	running := w.start(connection.connect(t))
	running.sweeps = false
	cycle(w, func() *process { return running })
	w.checkNothingLeft()
	for n, name := range connection.names {
		t.Logf("write %2d: %s", n+1, name)
	}
	if connection.writes < 10 {
		t.Fatalf("a cycle has %d writes; the test does not see them all", connection.writes)
	}
	return connection.writes
}
