// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// plainScheduler is the configuration of a kube-scheduler with its defaults.
const plainScheduler = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

// Of three pods with the same needs, a second kube-scheduler has marked one Unschedulable. That one alone gets a server, to which that
// scheduler binds it. The others are told apart: one names a scheduler that does not run, and one has a gate.
func TestOtherScheduler(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	other := w.startScheduler(t, "other", []byte(plainScheduler))
	eightGPUs := resources("cpu", "4", gpu, "8")
	w.createPods(t, "unseen", 1, eightGPUs, func(pod *corev1.Pod) { pod.Spec.SchedulerName = "absent" })
	w.createPods(t, "gated", 1, eightGPUs, func(pod *corev1.Pod) {
		pod.Spec.SchedulerName, pod.Spec.SchedulingGates = other, []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
	})
	w.createPods(t, "seen", 1, eightGPUs, func(pod *corev1.Pod) { pod.Spec.SchedulerName = other })
	w.untilRuns(t, "seen-0")
	w.eventually(t, "the scheduler "+other+" has bound pod seen-0", w.boundBy("seen-0", other))
	if claims, err := w.nodeClaims(t.Context()); err != nil || len(claims) != 1 {
		t.Errorf("there are %d NodeClaims, error %v; want that of pod seen-0 alone", len(claims), err)
	}
	w.says(t, 1, []string{`no scheduler has looked at it: it names the scheduler "absent"`}, "explain", "pod", w.group.namespace+"/unseen-0")
	w.says(t, 1, []string{"the scheduling gate example.com/queue holds it"}, "explain", "pod", w.group.namespace+"/gated-0")
}

// boundBy is a condition: the event of the pod's binding is of that scheduler.
func (w *fixture) boundBy(pod, scheduler string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		events := &corev1.EventList{}
		if err := w.tenant.List(ctx, events, client.InNamespace(w.group.namespace)); err != nil {
			return "", err
		}
		var from []string
		for _, event := range events.Items {
			if event.InvolvedObject.Name != pod || event.Reason != "Scheduled" {
				continue
			}
			if event.ReportingController == scheduler {
				return "", nil
			}
			from = append(from, event.ReportingController)
		}
		return fmt.Sprintf("events of its binding are from %q", from), nil
	}
}
