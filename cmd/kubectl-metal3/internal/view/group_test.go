// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/gangs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

// withGroup adds two pods of one PodGroup, one Job and one JobSet.
func withGroup(namespace string, running int) func(*Snapshot) {
	return func(s *Snapshot) {
		for n := range 2 {
			withPod(func(pod *corev1.Pod) {
				pod.Namespace, pod.Name, pod.UID = namespace, fmt.Sprint("train-", n), types.UID(fmt.Sprint(namespace, n))
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("train")}
				pod.Labels = map[string]string{gangs.JobSetLabelKey: "trains"}
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train-job", Controller: ptr.To(true)}}
				if n < running {
					pod.Spec.NodeName, pod.Status.Phase = "m1", corev1.PodRunning
				}
			})(s)
		}
	}
}

// withEvent adds an event on the first of these pods, so many minutes ago.
func withEvent(ago int, reason, message string) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Tenant.Events = append(s.Tenant.Events, corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "train-0", UID: "default0"}, Reason: reason,
			Message: message, LastTimestamp: metav1.NewTime(s.Time.Add(-time.Duration(ago) * time.Minute)),
		})
	}
}

// withServerFor adds a NodeClaim that is marked with a gang, made so many minutes ago.
func withServerFor(gang string, ago int) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Tenant.NodeClaims = append(s.Tenant.NodeClaims, karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "m1",
			CreationTimestamp: metav1.NewTime(s.Time.Add(-time.Duration(ago) * time.Minute)),
			Annotations:       map[string]string{v1alpha1.GangsAnnotationKey: fmt.Sprintf(`[{"name":%q}]`, gang)}}})
	}
}

// TestExplainGroup: a group is explained by what the provider says of its pods, or by the servers that are marked with its gang.
func TestExplainGroup(t *testing.T) {
	const (
		none   = "[Waiting] PodGroup default/train: 0 of its 2 pods have a node"
		short  = "no rack has capacity for all 2 pods of the gang: r1 has capacity for 1"
		before = "\n  [Waiting] NodeClaim m1\n    [Waiting] Machine acme/m1 is Provisioning: what the manager says"
	)
	for name, tc := range map[string]struct {
		reason     string
		kind, name string
		snapshot   *Snapshot
		want       string
	}{
		"short": {"the last event is what holds", "podgroup", "train", fixture(withGroup("default", 0),
			withEvent(9, "GangIncomplete", "1 of the 2 pods of the gang exist"), withEvent(2, "InsufficientDomainCapacity", short)),
			"[Wrong] PodGroup default/train: 0 of its 2 pods have a node\n  [Wrong] the provider says, 2m0s ago: " +
				`"InsufficientDomainCapacity: ` + short + `"`},
		"incomplete": {"its pods come by themselves", "job", "default/train-job", fixture(withGroup("default", 0),
			withEvent(1, "GangIncomplete", "2 of the 4 pods of the gang exist")),
			"[Waiting] Job default/train-job: 0 of its 2 pods have a node\n  [Waiting] the provider says, 1m0s ago: " +
				`"GangIncomplete: 2 of the 4 pods of the gang exist"`},
		"servers": {"the event is from before they were planned", "podgroup", "train", fixture(withGroup("default", 0),
			withEvent(9, "InsufficientDomainCapacity", short), withMachine("m1", "s1", v1alpha1.MachineProvisioning, nil),
			withServerFor("default/PodGroup train", 3), withServerFor("default/PodGroup other", 3)), none + before},
		"no word yet": {"the first pod is explained", "jobset", "trains", fixture(withGroup("default", 1), withHost("s1", nil)),
			"[Waiting] JobSet default/trains: 1 of its 2 pods have a node\n  [Waiting] pod default/train-1 is Pending\n" +
				"    [OK] NodePool default can have a node for it\n" +
				"    [] NodeType h100 fits by its resources and labels, and has a free server: whether Karpenter takes it, the events of the pod say"},
		"runs": {"what was said before does not matter", "podgroup", "train", fixture(withGroup("default", 2),
			withEvent(2, "InsufficientDomainCapacity", short)), "[OK] PodGroup default/train: 2 of its 2 pods have a node"},
	} {
		t.Run(name, func(t *testing.T) {
			cause, err := New(tc.snapshot).Explain(tc.kind, tc.name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, outline(cause, "")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	for name, want := range map[string]string{
		"other": `PodGroup "other" was not found: no pod of it that has not ended is in the tenant cluster`,
		"train": `there are 2 of the name "train", in the namespaces default, ml: name it as NAMESPACE/train`,
	} {
		if _, err := New(fixture(withGroup("default", 0), withGroup("ml", 0))).Explain("podgroup", name); err == nil || err.Error() != want {
			t.Errorf("PodGroup %s: got %v, want %s", name, err, want)
		}
	}
}

// TestReadEvents: of the events of a tenant, those of the provider on pods without a server are read. Pods keep what says which gang they
// belong to.
func TestReadEvents(t *testing.T) {
	event := func(name, kind, reason string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Reason: reason,
			InvolvedObject: corev1.ObjectReference{Kind: kind}}
	}
	pod := planning.Pod("train-0", []string{"cpu", "1"}, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1alpha1.GangMinCountAnnotationKey: "4", "token": secret}
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("train")}
	})
	cluster := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(pod, event("ours", "Pod", "GangIncomplete"),
		event("kubelet", "Pod", "Pulled"), event("pool", "NodePool", "NoCapacityType")).Build()
	s, err := Read(t.Context(), cluster, []client.Reader{cluster}, Scope{}, metav1.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ReadEvents(t.Context(), []client.Reader{cluster}, Scope{}); err != nil {
		t.Fatal(err)
	}
	if events := s.DeepCopy().Tenant.Events; len(events) != 1 || events[0].Name != "ours" {
		t.Errorf("read %v, want the event that is ours", events)
	}
	got := s.Tenant.Pods[0]
	if diff := cmp.Diff(map[string]string{v1alpha1.GangMinCountAnnotationKey: "4"}, got.Annotations); diff != "" ||
		GroupOf("podgroup", &got) != "train" {
		t.Errorf("the pod is of PodGroup %q; its annotations (-want +got):\n%s", GroupOf("podgroup", &got), diff)
	}
}
