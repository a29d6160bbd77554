// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestGauge(t *testing.T) {
	joined := func(s *Snapshot) {
		withMachine("m1", "s1", v1alpha1.MachineJoined, func(m *v1alpha1.Machine) { m.Status.NodeName = "m1" })(s)
	}
	node := func(resources ...string) func(*Snapshot) {
		return func(s *Snapshot) {
			node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m1"}}
			node.Status.Allocatable = env.Resources(resources...)
			s.Tenant.Nodes = append(s.Tenant.Nodes, node)
		}
	}
	runs := func(gpus string, phase corev1.PodPhase) func(*Snapshot) {
		return withPod(func(pod *corev1.Pod) {
			pod.Spec.NodeName, pod.Status.Phase = "m1", phase
			pod.Spec.Containers[0].Resources.Requests = env.Resources("nvidia.com/gpu", gpus, "cpu", "6")
		})
	}
	for name, tc := range map[string]struct {
		reason   string
		snapshot *Snapshot
		want     Gauge
		none     bool
	}{
		"free": {reason: "nothing is in use", snapshot: fixture(withHost("s1", nil)), none: true},
		"being installed": {reason: "the step of all",
			snapshot: fixture(withMachine("m1", "s1", v1alpha1.MachineProvisioning, func(m *v1alpha1.Machine) {
				m.Status.Progress = &v1alpha1.MachineProgress{Step: 3, Steps: 5, Description: "writing image"}
			})), want: Gauge{"writing image", 3, 5}},
		"in use": {reason: "pods that have ended do not count",
			snapshot: fixture(joined, node("cpu", "94", "nvidia.com/gpu", "8"), runs("2", corev1.PodRunning), runs("3", corev1.PodPending),
				runs("1", corev1.PodSucceeded), withPod(nil)), want: Gauge{"nvidia.com/gpu", 5, 8}},
		"without accelerators": {reason: "its CPUs", snapshot: fixture(joined, node("cpu", "94", "nvidia.com/gpu", "0"),
			runs("0", corev1.PodRunning)), want: Gauge{"cpu", 6, 94}},
		"no node": {reason: "it has gone from the cluster", snapshot: fixture(joined), none: true},
		"another tenant's": {reason: "a node of the same name there is another", none: true,
			snapshot: fixture(joined, node("cpu", "94"), func(s *Snapshot) { s.Tenant.UID = "another" })},
		"no tenant": {reason: "its pods were not read", none: true, snapshot: fixture(joined, func(s *Snapshot) { s.Tenant = nil })},
		"another's": {reason: "of a Machine that was not read", none: true,
			snapshot: fixture(joined, func(s *Snapshot) { s.Management.Machines = nil })},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := New(tc.snapshot)
			got, has := fleet.Gauge(fleet.Servers()[0])
			if diff := cmp.Diff(tc.want, got); diff != "" && !tc.none || has == tc.none {
				t.Errorf("%s: got one: %v (-want +got):\n%s", tc.reason, has, diff)
			}
		})
	}
}

func TestUnscheduled(t *testing.T) {
	named := func(name string, age time.Duration, change func(*corev1.Pod)) func(*Snapshot) {
		return withPod(func(pod *corev1.Pod) {
			pod.Name, pod.CreationTimestamp = name, metav1.NewTime(time.Unix(0, 0).Add(-age))
			if change != nil {
				change(pod)
			}
		})
	}
	snapshot := fixture(named("young", time.Minute, nil), named("old", time.Hour, nil), named("b", time.Minute, nil),
		named("runs", time.Hour, func(pod *corev1.Pod) { pod.Spec.NodeName = "n" }),
		named("refused", time.Hour, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }),
		named("deleted", time.Hour, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }))
	var got []string
	for _, pod := range New(snapshot).Unscheduled() {
		got = append(got, pod.Name)
	}
	if diff := cmp.Diff([]string{"old", "b", "young"}, got); diff != "" {
		t.Errorf("the oldest first (-want +got):\n%s", diff)
	}
	snapshot.Tenant = nil
	if pods := New(snapshot).Unscheduled(); pods != nil {
		t.Errorf("there are pods without a tenant: %v", pods)
	}
}

func TestVerdict(t *testing.T) {
	fleet := New(fixture(withHost("s1", nil), withHost("s2", func(host *bmov1alpha1.BareMetalHost) {
		host.Annotations = map[string]string{v1alpha1.QuarantinedAnnotationKey: ""}
	}), withMachine("m1", "s3", v1alpha1.MachineProvisioning, nil)))
	var got []Verdict
	for _, server := range fleet.Servers() {
		got = append(got, fleet.Verdict(server))
	}
	if diff := cmp.Diff([]Verdict{Good, Wrong, Waiting}, got); diff != "" {
		t.Errorf("free, quarantined, being installed (-want +got):\n%s", diff)
	}
}
