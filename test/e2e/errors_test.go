// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// A server fails while its image is written. Its type says nothing about errors, so the Machine stays, in Metal3's own
// words, and says what to do. The platform team then says Replace: the claim goes, the server is quarantined, and the pod
// runs on the other server of the type. When that one turns to error with the node up, nothing is done to the node; it
// and its NodeClaim say what is wrong.
func TestErrorsHoldAndReplace(t *testing.T) {
	system.Only(t)
	w := enter(t, flaky)
	fails := w.faulty(t, demoFails, "flaky", faults.ImageWriteFails)
	w.createFaultyPool(t, "flaky", func(*v1alpha1.HardwareProfile) {}, fails, "spare")
	w.createPodOn(t, "waiting", "flaky", resources("cpu", "4", "memory", "8Gi"))
	w.eventually(t, "the NodeClaim of NodePool flaky says what is wrong with server "+fails+" and what to do",
		w.claimHasCondition("flaky", v1alpha1.ReasonHostError, "server metal3-system/"+fails,
			"provisioning error", "Metal3 could not install its image", "repair the server, or delete the Machine"))
	if annotation, err := w.quarantine(t.Context(), fails); err != nil || annotation != "" {
		t.Errorf("the server is quarantined (%q, error %v), although onError is not Replace", annotation, err)
	}
	held, err := w.machines(t.Context())
	if err != nil || len(held) != 1 || held[0].Status.Phase != v1alpha1.MachineFailed {
		t.Fatalf("Machines %+v, error %v; want the one, Failed", held, err)
	}

	provider := &v1alpha1.NodeProvider{}
	if err := w.management.Get(t.Context(), client.ObjectKey{Name: "flaky"}, provider); err != nil {
		t.Fatal(err)
	}
	provider.Spec.Metal3.NodeTypes[0].OnError = v1alpha1.OnErrorReplace
	if err := w.management.Update(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "an event on NodePool flaky says that server "+fails+" is replaced", w.hasEvent("NodePool", "flaky", "ServerGivenUp",
		"NodeClaim "+held[0].Name+" is deleted", "because its server is in error", "Metal3 could not install its image"))
	w.untilRuns(t, "waiting")
	machine := w.machineOf(t, "waiting")
	if machine.Status.HostRef.Name != "spare" {
		t.Errorf("the pod runs on %s, want spare", machine.Status.HostRef.Name)
	}
	annotation, err := w.quarantine(t.Context(), fails)
	if err != nil || !strings.HasPrefix(annotation, `{"reason":"HostError","since":"`) {
		t.Errorf("the server is quarantined with %q, error %v", annotation, err)
	}

	// Its BMC does not answer any more. (Metal3 is paused, or it would not take our word for it.)
	w.editHost(t, "spare", func(host *bmov1alpha1.BareMetalHost) {
		host.Annotations[bmov1alpha1.PausedAnnotation] = ""
	})
	t.Cleanup(func() {
		w.failHost(t, "spare", "", "")
		w.editHost(t, "spare", func(host *bmov1alpha1.BareMetalHost) { delete(host.Annotations, bmov1alpha1.PausedAnnotation) })
	})
	w.failHost(t, "spare", bmov1alpha1.PowerManagementError, "the BMC does not answer")
	w.eventually(t, "the NodeClaim of NodePool flaky says that the BMC does not answer",
		w.claimHasCondition("flaky", v1alpha1.ReasonHostError, "power management error"))
	w.eventually(t, "Node "+machine.Status.NodeName+" says that the BMC does not answer",
		w.nodeHasCondition(machine.Status.NodeName, corev1.ConditionFalse, "power management error"))
	w.eventually(t, "an event on Node "+machine.Status.NodeName+" says that the BMC does not answer",
		w.hasEvent("Node", machine.Status.NodeName, v1alpha1.ReasonHostError, "power management error"))
	if missing, err := w.runs("waiting")(t.Context()); missing != "" || err != nil {
		t.Errorf("the pod is not left alone: %s, %v", missing, err)
	}
	w.failHost(t, "spare", "", "")
	w.eventually(t, "Node "+machine.Status.NodeName+" says that its server is well",
		w.nodeHasCondition(machine.Status.NodeName, corev1.ConditionTrue))
}

func (w *fixture) nodeHasCondition(node string, is corev1.ConditionStatus, parts ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		got := &corev1.Node{}
		if err := w.tenant.Get(ctx, client.ObjectKey{Name: node}, got); err != nil {
			return "", err
		}
		for _, condition := range got.Status.Conditions {
			if condition.Type == v1alpha1.ConditionServerReady && condition.Status == is && containsAll(condition.Message, parts...) == "" {
				return "", nil
			}
		}
		return fmt.Sprintf("its conditions are %+v", got.Status.Conditions), nil
	}
}

func (w *fixture) editHost(t *testing.T, name string, change func(*bmov1alpha1.BareMetalHost)) {
	t.Helper()
	host := &bmov1alpha1.BareMetalHost{}
	if err := w.management.Get(context.Background(), client.ObjectKey{Namespace: hostNamespace, Name: name}, host); err != nil {
		t.Fatal(err)
	}
	before := host.DeepCopy()
	if host.Annotations == nil {
		host.Annotations = map[string]string{}
	}
	change(host)
	if err := w.management.Patch(context.Background(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// failHost writes an error into the status of a host, as Metal3 does, or takes it off.
func (w *fixture) failHost(t *testing.T, name string, kind bmov1alpha1.ErrorType, message string) {
	t.Helper()
	host := &bmov1alpha1.BareMetalHost{}
	if err := w.management.Get(context.Background(), client.ObjectKey{Namespace: hostNamespace, Name: name}, host); err != nil {
		t.Fatal(err)
	}
	before := host.DeepCopy()
	host.Status.ErrorType, host.Status.ErrorMessage, host.Status.OperationalStatus = kind, message, bmov1alpha1.OperationalStatusOK
	if kind != "" {
		host.Status.OperationalStatus = bmov1alpha1.OperationalStatusError
	}
	if err := w.management.Status().Patch(context.Background(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// unquarantine does what an operator does with a server that works.
func (w *fixture) unquarantine(t *testing.T, server string) {
	t.Helper()
	w.editHost(t, server, func(host *bmov1alpha1.BareMetalHost) { delete(host.Annotations, v1alpha1.QuarantinedAnnotationKey) })
}
