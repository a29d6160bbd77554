// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/client-go/tools/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// TestLongMessages: what Metal3 says of an error can be of any length. The API server takes no condition with a message
// of more than 32768 characters, and no event with a note of more than 1024, and then the error would be lost.
func TestLongMessages(t *testing.T) {
	w := newFixture(t, 1)
	key, manager := w.machine("m", standAlone), w.start(w.client)
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	w.host("server-00", func(host *bmov1alpha1.BareMetalHost) {
		host.Status.OperationalStatus, host.Status.ErrorType = bmov1alpha1.OperationalStatusError, bmov1alpha1.PowerManagementError
		host.Status.ErrorMessage = strings.Repeat("Fehler: ü ", 4000)
	})
	recorded := manager.recorder.(*events.FakeRecorder)
	for len(recorded.Events) > 0 {
		<-recorded.Events
	}
	manager.round()
	machine := w.get(key)
	if machine.Status.Phase != v1alpha1.MachineFailed || !strings.Contains(condition(machine, v1alpha1.ConditionReady).Message, "Fehler") {
		t.Fatalf("phase %s", machine.Status.Phase)
	}
	if note := <-recorded.Events; len(note) > conditions.MaxEventNote+len("Warning HostError ") {
		t.Errorf("an event of %d bytes", len(note))
	}
}
