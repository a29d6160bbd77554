// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/tools/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestImageCredentialsHidden: a tenant reads the status of its Machines and their events, and no OSImages.
func TestImageCredentialsHidden(t *testing.T) {
	w := newFixture(t, 1)
	image := &v1alpha1.OSImage{ObjectMeta: metaName("private-" + w.metal3)}
	image.Spec.Properties = map[string]string{
		v1alpha1.PropertyImageURL:      "https://robot:hunter2@images.example.com/os.qcow2?X-Amz-Signature=5ec4e7",
		v1alpha1.PropertyImageChecksum: checksum,
	}
	w.create(image)
	key, manager := w.machine("m", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: image.Name}
	}), w.start(w.client)
	seen := ""
	w.until("provisioned", func() *process { return manager }, func() bool {
		seen += fmt.Sprint(w.get(key).Status)
		return w.get(key).Status.Phase == v1alpha1.MachineProvisioned
	})
	for recorded := manager.recorder.(*events.FakeRecorder); len(recorded.Events) > 0; {
		seen += <-recorded.Events
	}
	if !strings.Contains(seen, "images.example.com/os.qcow2") {
		t.Error("no event has the image")
	}
	for _, secret := range []string{"hunter2", "5ec4e7"} {
		if strings.Contains(seen, secret) {
			t.Errorf("%q is shown", secret)
		}
	}
	if got := w.hosts()[0].Spec.Image.URL; got != image.Spec.Properties[v1alpha1.PropertyImageURL] {
		t.Errorf("Metal3 is told %q", got)
	}
}
