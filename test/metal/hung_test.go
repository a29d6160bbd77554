// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

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
)

// excludeFromDrift keeps the node of a pod when the image changes.
func (w *stackFixture) excludeFromDrift(t *testing.T, name string) {
	t.Helper()
	pod, err := look[*corev1.Pod](w.journal, name)
	if err != nil {
		t.Fatal(err)
	}
	changed := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, karpv1.DoNotDisruptAnnotationKey, "true")
	if err := w.tenant.Client.Patch(t.Context(), changed, client.MergeFrom(pod)); err != nil {
		t.Fatalf("annotating pod %s with do-not-disrupt, %v", name, err)
	}
}

// hang stops a server's system while its power stays on, as a kernel that hangs does.
func (w *stackFixture) hang(t *testing.T, server string) {
	t.Helper()
	// The deadline counts from power-on, which was long ago: the server dies now.
	const moment = 0.001
	if err := w.Rack.Break(t.Context(), server, faults.Fault{Kind: faults.DiesAfter, Minutes: moment, Power: faults.PowerOn}); err != nil {
		t.Fatal(err)
	}
}

// untilNodeNotReady waits until the node of a pod is NotReady, and prints what the tenant sees. Only the Node shows it:
// the BMC, and so Metal3 and the Machine, report a server that is on.
func (w *stackFixture) untilNodeNotReady(t *testing.T, pod string) {
	t.Helper()
	name := w.nodeOf(t, pod)
	w.until(t, "node "+name+" to be NotReady", func(context.Context) error {
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
		t.Errorf("Machine %s is %s, want %s: only the Node shows that the server hangs",
			machine.Name, describeMachine(machine), v1alpha1.MachineJoined)
	}
	host, err := look[*bmov1alpha1.BareMetalHost](w.journal, machine.Status.HostRef.Name)
	if err != nil {
		t.Fatal(err)
	}
	if host.Status.ErrorType != "" || !host.Status.PoweredOn {
		t.Errorf("server %s is %s, want it on and without an error, as its BMC reports", host.Name, describeHost(host))
	}
	for _, object := range w.journal.list() {
		switch object.(type) {
		case *bmov1alpha1.BareMetalHost, *v1alpha1.Machine, *corev1.Node, *corev1.Pod:
			words, _ := describe(object)
			if n := object.GetName(); n == host.Name || n == machine.Name || n == name || n == pod {
				w.logf("    state of the hung server, %s: %s", key(object), words)
			}
		}
	}
}

// forceDelete deletes a pod whose kubelet cannot say that it has ended.
func (w *stackFixture) forceDelete(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	if err := w.tenant.Client.Delete(t.Context(), pod, &client.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
		t.Fatalf("deleting pod %s, %v", name, err)
	}
}

// diskFiles returns the files and directories on the disk of a server.
func (w *stackFixture) diskFiles(t *testing.T, server string) []string {
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

// checkErased fails if a file is left on the disk that the next user of the server could read.
func (w *stackFixture) checkErased(t *testing.T, server string) {
	t.Helper()
	if left := w.diskFiles(t, server); len(left) > 0 {
		t.Errorf("server %s was cleaned, and still has %v on its disk", server, left)
	}
	w.logf("the disk of server %s is erased", server)
}
