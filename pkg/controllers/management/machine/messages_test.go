// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// TestLongMessages: a message can be of any length, as tenants write names and properties. The API server takes no condition with a message
// of more than 32768 characters, and no event with a note of more than 1024, and then the reason would be lost.
func TestLongMessages(t *testing.T) {
	w := newFixture(t, 1)
	key, manager := w.machine("m", standAlone), w.start(w.client)
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	recorded := manager.recorder.(*events.FakeRecorder)
	for len(recorded.Events) > 0 {
		<-recorded.Events
	}
	v := &visit{machine: w.get(key)}
	v.changeStatus(func(status *v1alpha1.MachineStatus) {
		*status = nextStatus(v.machine, observation{phase: v1alpha1.MachineFailed, reason: v1alpha1.ReasonHostError,
			message: strings.Repeat("Fehler: ü ", 4000)}, metav1.Now())
	})
	if err := manager.flush(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(condition(w.get(key), v1alpha1.ConditionReady).Message, "Fehler") {
		t.Fatalf("the status is %+v", w.get(key).Status)
	}
	if note := <-recorded.Events; len(note) > conditions.MaxEventNote+len("Warning HostError ") {
		t.Errorf("an event of %d bytes", len(note))
	}
}
