// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/plain"
)

// leaveAlone has the node of a pod not be replaced for having another image than the next one.
func (w *world) leaveAlone(t *testing.T, name string) {
	t.Helper()
	pod, err := look[*corev1.Pod](w.journal, name)
	if err != nil {
		t.Fatal(err)
	}
	changed := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, karpv1.DoNotDisruptAnnotationKey, "true")
	if err := w.tenant.Client.Patch(t.Context(), changed, client.MergeFrom(pod)); err != nil {
		t.Fatalf("having pod %s be left alone, %v", name, err)
	}
}

// hang has a server die at once, with its power on, as a system does whose kernel hangs.
func (w *world) hang(t *testing.T, server string) {
	t.Helper()
	// A moment after it was told, for it was switched on long ago.
	const moment = 0.001
	if err := w.Rack.Break(t.Context(), server, faults.Fault{Kind: faults.DiesAfter, Minutes: moment, Power: faults.PowerOn}); err != nil {
		t.Fatal(err)
	}
}

// untilNodeIsLost waits until the tenant can see that the server of a pod has died, and shows what there is to see. Only the
// Node tells: to the BMC, and so to Metal3 and to the Machine, the server is on.
func (w *world) untilNodeIsLost(t *testing.T, pod string) {
	t.Helper()
	name := w.nodeOf(t, pod)
	w.until(t, "node "+name+" to be lost", func(context.Context) error {
		node, err := look[*corev1.Node](w.journal, name)
		if err != nil {
			return err
		}
		if err := nodeIsReady(node); err == nil {
			return fmt.Errorf("it is %s", describeNode(node))
		}
		return nil
	})
	machine := w.machineOf(t, name)
	if machine.Status.Phase != v1alpha1.MachineJoined {
		t.Errorf("Machine %s is %s, want %s: nobody has told it anything", machine.Name, plain.Machine(machine), v1alpha1.MachineJoined)
	}
	host, err := look[*bmov1alpha1.BareMetalHost](w.journal, machine.Status.HostRef.Name)
	if err != nil {
		t.Fatal(err)
	}
	if host.Status.ErrorType != "" || !host.Status.PoweredOn {
		t.Errorf("server %s is %s, want it to be on and well: its BMC says so", host.Name, plain.Host(host))
	}
	for _, object := range w.journal.list() {
		switch object.(type) {
		case *bmov1alpha1.BareMetalHost, *v1alpha1.Machine, *corev1.Node, *corev1.Pod:
			words, _ := describe(object)
			if n := object.GetName(); n == host.Name || n == machine.Name || n == name || n == pod {
				w.journal.say("    seen of the dead server, %s: %s", key(object), words)
			}
		}
	}
}

// forget deletes a pod whose kubelet cannot say that it has ended.
func (w *world) forget(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	if err := w.tenant.Client.Delete(t.Context(), pod, &client.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
		t.Fatalf("deleting pod %s, %v", name, err)
	}
}

// onDisk are the files and directories that the disk of a server consists of.
func (w *world) onDisk(t *testing.T, server string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.dir, "servers", server))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if entry.Name() != disk.ConsoleFile {
			names = append(names, entry.Name())
		}
	}
	return names
}

// checkErased looks for what the last user of a server could have left for the next one.
func (w *world) checkErased(t *testing.T, server string) {
	t.Helper()
	if left := w.onDisk(t, server); len(left) > 0 {
		t.Errorf("server %s was cleaned, and still has %v on its disk", server, left)
	}
	w.journal.say("nothing of its last user is on the disk of server %s", server)
}
