// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
)

// provisionedPair is a Machine and its host at their best; a case changes what it is about.
func provisionedPair() (*v1alpha1.Machine, *bmov1alpha1.BareMetalHost) {
	image := bmov1alpha1.Image{URL: "http://x/y.qcow2"}
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenant", Name: "m", UID: "machine-uid", Finalizers: []string{v1alpha1.MachineFinalizer},
		Annotations: map[string]string{},
	}}
	machine.Spec.Node = &v1alpha1.MachineNode{Name: "node"}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "tenant"}
	machine.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3", Name: "h", UID: "host-uid"}
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: "type"}
	machine.Status.ProviderID = "metal3://metal3/h/m"
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "h", UID: "host-uid"}}
	host.Spec.ConsumerRef = hosts.OwnerOf(machine).ConsumerRef()
	host.Spec.Image, host.Status.Provisioning.Image = &image, image
	host.Status.Provisioning.State = bmov1alpha1.StateProvisioned
	return machine, host
}

// formerUID is that of a Machine before it was restored.
const formerUID = "0f0e0d0c-1111-2222-3333-444455556666"

func TestStateOf(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		reason string
		change func(*v1alpha1.Machine, *bmov1alpha1.BareMetalHost)
		noHost bool
		want   state
	}{
		"Joined": {reason: "all done", want: joined},
		"NotRegistered": {reason: "no node yet", want: provisioned,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) { m.Spec.Node = nil }},
		"StandAlone": {reason: "it has no cluster to join", want: provisioned,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) { m.Spec.TenantClusterRef = nil }},
		"Installing": {reason: "Metal3 is not done, although the node has registered already", want: provisioning,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
				h.Status.Provisioning.State = bmov1alpha1.StateProvisioning
			}},
		"AnotherImage": {reason: "provisioned, but with what was there before", want: provisioning,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
				h.Status.Provisioning.Image.URL = "http://x/old"
			}},
		"RestoredWithoutStatus": {reason: "its server may name it, under the UID that it had", want: restored,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				m.Annotations[v1alpha1.ClaimUIDAnnotationKey] = formerUID
				m.Status = v1alpha1.MachineStatus{}
			}},
		"RestoredWithStatus": {reason: "the status names the host that was", want: restored,
			change: func(m *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
				m.Annotations[v1alpha1.ClaimUIDAnnotationKey] = formerUID
				h.Spec.ConsumerRef.UID = formerUID
				h.UID = "another"
			}},
		"RestoredWithoutNodeType": {reason: "the host says as which type it was claimed", want: restored,
			change: func(m *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
				m.Annotations[v1alpha1.ClaimUIDAnnotationKey] = formerUID
				h.Spec.ConsumerRef.UID = formerUID
				m.Status.NodeTypeRef = nil
			}},
		"RestoredLongAgo": {reason: "it has found its server", want: joined, change: func(m *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
			m.Annotations[v1alpha1.ClaimUIDAnnotationKey] = formerUID
			h.Spec.ConsumerRef.UID = formerUID
		}},
		"RestoredAndLost": {reason: "another Machine has its server", want: hostLost,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				m.Annotations[v1alpha1.ClaimUIDAnnotationKey] = formerUID
			}},
		"SwitchOff": {reason: "the spec wants it off", want: switching, change: func(m *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
			h.Spec.Online, m.Spec.Power = true, &v1alpha1.MachinePower{State: v1alpha1.PowerOff}
		}},
		"MayNotBeOff": {reason: "Metal3 refuses to switch it off", want: joined, change: func(m *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
			h.Spec.Online, h.Spec.DisablePowerOff, m.Spec.Power = true, true, &v1alpha1.MachinePower{State: v1alpha1.PowerOff}
		}},
		"Reboot": {reason: "a reboot is requested", want: switching, change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
			m.Annotations[v1alpha1.RebootAnnotationKey] = ""
		}},
		"RebootOfNothing": {reason: "a server that is to be off has nothing to reboot", want: joined,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				m.Annotations[v1alpha1.RebootAnnotationKey] = ""
				m.Spec.Power = &v1alpha1.MachinePower{State: v1alpha1.PowerOff}
			}},
		"RebootBeforeInstalled": {reason: "a reboot would break the installation", want: provisioning,
			change: func(m *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
				m.Annotations[v1alpha1.RebootAnnotationKey] = ""
				h.Status.Provisioning.State = bmov1alpha1.StateProvisioning
			}},
		"Held": {reason: "a hook keeps it from being installed", want: waitingForHooks,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
				h.Spec.Image = nil
				h.Annotations = map[string]string{v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, "x"): ""}
			}},
		"HeldTooLate": {reason: "what is being installed cannot be held any more", want: joined,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
				h.Annotations = map[string]string{v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, "x"): ""}
			}},
		"HostDeleting": {reason: "what runs on it is as good as gone", want: errored,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) { h.DeletionTimestamp = &now }},
		"NoImage": {reason: "claimed and nothing else", want: claimed,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) { h.Spec.Image = nil }},
		"ImageTakenOff": {reason: "it must not be installed a second time", want: hostLost,
			change: func(m *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
				h.Spec.Image = nil
				m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProvisioned, Status: metav1.ConditionTrue}}
			}},
		"Chosen": {reason: "the claim on the host is not known to be there", want: claiming,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) { m.Status.ProviderID = "" }},
		"NotChosen": {reason: "nothing has happened", want: pending,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) { m.Status = v1alpha1.MachineStatus{} }},
		"Interrupted": {reason: "a host was chosen, and may be claimed", want: interrupted,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				m.SetChosenHost(*m.Status.HostRef, "type")
				m.Status = v1alpha1.MachineStatus{}
			}},
		"Unreadable": {reason: "which host was chosen is unknown, and it may be claimed", want: interrupted,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				m.Annotations[v1alpha1.ChosenHostAnnotationKey] = "x"
				m.Status = v1alpha1.MachineStatus{}
			}},
		"New": {reason: "it gets the finalizer with the choice", want: pending,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				m.Finalizers, m.Status = nil, v1alpha1.MachineStatus{}
			}},
		"NoFinalizer": {reason: "the finalizer was removed by hand from a Machine that has a server", want: unprotected,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) { m.Finalizers = nil }},
		"Deleted": {reason: "deletion wins over everything", want: releasing,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) { m.DeletionTimestamp = &now }},
		"DeletedAndDone": {reason: "others may have finalizers as well", want: gone,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) { m.DeletionTimestamp, m.Finalizers = &now, nil }},
		"BeingReleased": {reason: "another Machine of its identity was deleted, and nothing switches the server on again", want: hostLost,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) {
				h.Annotations = map[string]string{v1alpha1.ReleasingAnnotationKey: ""}
			}},
		"HostGone": {reason: "the host does not exist", want: hostLost, noHost: true},
		"HostMadeAnew": {reason: "a host of the same name is another host", want: hostLost,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) { h.UID = "other" }},
		"HostTaken": {reason: "a Machine of the same name is another Machine", want: hostLost,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) { h.Spec.ConsumerRef.UID = "other" }},
		"GivenUp": {reason: "it stays given up, even if the server recovers", want: gaveUp, noHost: true,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionGivenUp, Status: metav1.ConditionTrue}}
			}},
		"GivenUpAndDeleted": {reason: "its server goes back all the same", want: releasing,
			change: func(m *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				m.DeletionTimestamp = &now
				m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionGivenUp, Status: metav1.ConditionTrue}}
			}},
		"HostInError": {reason: "Metal3 says so", want: errored,
			change: func(_ *v1alpha1.Machine, h *bmov1alpha1.BareMetalHost) { h.Status.ErrorMessage = "no power" }},
	} {
		t.Run(name, func(t *testing.T) {
			machine, host := provisionedPair()
			if tc.change != nil {
				tc.change(machine, host)
			}
			if tc.noHost {
				host = nil
			}
			if got := stateOf(machine, host); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestEveryStateHasAHandler(t *testing.T) {
	handlers := New(Dependencies{}).handlers
	for _, s := range []state{gone, unprotected, restored, interrupted, pending, claiming, waitingForHooks, claimed, provisioning, switching,
		provisioned, joined, errored, hostLost, gaveUp, releasing} {
		if handlers[s] == nil {
			t.Errorf("state %s has no handler", s)
		}
	}
}

func TestUnclean(t *testing.T) {
	deprovisions := func(h *bmov1alpha1.BareMetalHost) {
		h.Status.Provisioning.State = bmov1alpha1.StateDeprovisioning
		h.Status.OperationHistory.Deprovision.Start = metav1.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	}
	for name, tc := range map[string]struct {
		reason string
		change func(*bmov1alpha1.BareMetalHost)
		want   string
		stuck  bool
	}{
		"Clean": {reason: "as Metal3 leaves it"},
		"Ready": {reason: "what old versions call available",
			change: func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StateReady }},
		"Deprovisioning": {reason: "under way, and since when", want: "server metal3/h is deprovisioning since 2026-01-02T15:04:05Z: it stays " +
			"claimed until Metal3 has removed its image and cleaned it, and its state is available", change: deprovisions},
		"NotBegun": {reason: "Metal3 has not looked at the spec yet, and the time is that of the installation", want: "is provisioned: it stays",
			change: func(h *bmov1alpha1.BareMetalHost) {
				deprovisions(h)
				h.Status.Provisioning.State = bmov1alpha1.StateProvisioned
			}},
		"Unmeasured": {reason: "the time of an earlier release would be wrong", want: "is deprovisioning: it stays",
			change: func(h *bmov1alpha1.BareMetalHost) {
				deprovisions(h)
				h.Status.OperationHistory.Deprovision.End = h.Status.OperationHistory.Deprovision.Start
			}},
		"ImageLeft": {reason: "Metal3 has not looked at the spec yet", want: "still has an image",
			change: func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.Image.URL = "x" }},
		"PoweredOn": {reason: "still running", want: "being powered off",
			change: func(h *bmov1alpha1.BareMetalHost) { h.Status.PoweredOn = true }},
		"NeverOff": {reason: "a server that may not be powered off stays on in the pool",
			change: func(h *bmov1alpha1.BareMetalHost) { h.Status.PoweredOn, h.Spec.DisablePowerOff = true, true }},
		"Error": {reason: "it cannot be cleaned, and an operator sees what it waits for", stuck: true,
			want: "metal3 h); its state is deprovisioning since 2026-01-02T15:04:05Z. The server stays claimed until Metal3 has cleaned it",
			change: func(h *bmov1alpha1.BareMetalHost) {
				deprovisions(h)
				h.Status.ErrorMessage = "cleaning failed"
			}},
		"Paused": {reason: "Metal3 does not look at it", want: "baremetalhost.metal3.io/paused", stuck: true,
			change: func(h *bmov1alpha1.BareMetalHost) {
				h.Annotations = map[string]string{bmov1alpha1.PausedAnnotation: ""}
			}},
		"Servicing": {reason: "an operation is in flight", want: "is servicing, and its state is available",
			change: func(h *bmov1alpha1.BareMetalHost) {
				h.Status.OperationalStatus = bmov1alpha1.OperationalStatusServicing
			}},
	} {
		t.Run(name, func(t *testing.T) {
			host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "h"}}
			host.Status.Provisioning.State = bmov1alpha1.StateAvailable
			if tc.change != nil {
				tc.change(host)
			}
			got, stuck := hosts.WhyUnclean(host)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || stuck != tc.stuck {
				t.Errorf("%s: got %q, stuck %v; want %q, stuck %v", tc.reason, got, stuck, tc.want, tc.stuck)
			}
		})
	}
}

func TestConsumerOf(t *testing.T) {
	good := hosts.Owner{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "m"}, UID: "u"}.ConsumerRef
	for name, tc := range map[string]struct {
		reason    string
		reference func() *corev1.ObjectReference
		want      bool
	}{
		"Ours":       {"what a claim writes", good, true},
		"NoConsumer": {"a free host", func() *corev1.ObjectReference { return nil }, false},
		"NoUID": {"written by a person; it is not ours to take away", func() *corev1.ObjectReference { r := good(); r.UID = ""; return r },
			false},
		"ClusterAPI": {"a Machine of another group",
			func() *corev1.ObjectReference { r := good(); r.APIVersion = "cluster.x-k8s.io/v1beta1"; return r }, false},
		"OtherKind": {"another kind of our group", func() *corev1.ObjectReference { r := good(); r.Kind = "NodeType"; return r }, false},
		"OtherVersion": {"a later version of our API",
			func() *corev1.ObjectReference { r := good(); r.APIVersion = v1alpha1.Group + "/v1"; return r }, true},
	} {
		t.Run(name, func(t *testing.T) {
			host := &bmov1alpha1.BareMetalHost{}
			host.Spec.ConsumerRef = tc.reference()
			if _, got := hosts.ConsumerOf(host); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestUserDataName(t *testing.T) {
	o := hosts.Owner{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "gpu-x7f2k"}, UID: "0123456789abcdef"}
	if got, want := hosts.UserDataName(o), "gpu-x7f2k-01234567-user-data"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	o.Name = strings.Repeat("a", 234) + "." + strings.Repeat("b", 18)
	if got := hosts.UserDataName(o); len(got) > hosts.MaxNameLength || strings.Contains(got, ".-") {
		t.Errorf("%d characters: %q is not the name of an object", len(got), got)
	}
	if got := labelValue(strings.Repeat("a", 62) + ".b"); len(got) > maxLabelLength || strings.HasSuffix(got, ".") {
		t.Errorf("%q is not the value of a label", got)
	}
}
