// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

var (
	before = v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, v1alpha1.NetworkHook)
	after  = v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook)
	words  = v1alpha1.HookKey(v1alpha1.HookMessagePrefix, v1alpha1.NetworkHook)
)

// switches are an endpoint that remembers what it was asked for and answers with an error.
type switches struct {
	asked  []string
	answer error
}

func (s *switches) Move(_ context.Context, move Move) error {
	s.asked = append(s.asked, move.Host.Name+" to "+describe(move.Network))
	return s.answer
}

// held makes a Machine and its server as the manager leaves them when a hook holds them.
func held(t *testing.T, phase v1alpha1.MachinePhase, reason string) (*v1alpha1.Machine, *bmov1alpha1.BareMetalHost) {
	t.Helper()
	namespace := environment.Namespace(t)
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "m", Annotations: map[string]string{before: "vlan:100", after: "vlan:100"},
	}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "any"}
	if err := environment.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	host := env.AvailableHost(namespace, "h", nil)
	host.Annotations = map[string]string{before: "vlan:100", after: "vlan:100"}
	host.Spec.ConsumerRef = &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: namespace, Name: "m", UID: machine.UID,
	}
	host = environment.CreateHost(t, host)
	machine.Status.Phase = phase
	machine.Status.HostRef = &v1alpha1.HostReference{Namespace: namespace, Name: "h", UID: host.UID}
	machine.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.Now(),
	}}
	if err := environment.Client.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	return machine, host
}

// switchedOff makes a server one whose release has begun, and provisioned what Metal3 says of it.
func switchedOff(_ *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) {
	host.Annotations[v1alpha1.ReleasingAnnotationKey] = ""
	host.Spec.Image = &bmov1alpha1.Image{URL: "http://images.example.com/os.qcow2"}
}

func provisioned(powered bool) func(*bmov1alpha1.BareMetalHost) {
	return func(host *bmov1alpha1.BareMetalHost) {
		host.Status.Provisioning.State, host.Status.PoweredOn = bmov1alpha1.StateProvisioned, powered
		host.Status.Provisioning.Image = *host.Spec.Image
	}
}

func setStatus(t *testing.T, host *bmov1alpha1.BareMetalHost, change func(*bmov1alpha1.BareMetalHost)) {
	t.Helper()
	if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
		t.Fatal(err)
	}
	change(host)
	if err := environment.Client.Status().Update(t.Context(), host); err != nil {
		t.Fatal(err)
	}
}

func TestReconcile(t *testing.T) {
	waiting := v1alpha1.ReasonWaitingForHook
	for name, tc := range map[string]struct {
		reason string
		phase  v1alpha1.MachinePhase
		why    string
		change func(*v1alpha1.Machine, *bmov1alpha1.BareMetalHost)
		// status of the server, if it is not clean.
		status func(*bmov1alpha1.BareMetalHost)
		answer error
		asked  []string
		left   map[string]string
		// holds are the hooks that are left on the server; both if unset.
		holds      map[string]string
		wantError  bool
		askedAgain bool
	}{
		"Attached": {reason: "the hook goes when the server is there", phase: v1alpha1.MachineClaimed, why: waiting,
			asked: []string{"h to network vlan:100"}, left: map[string]string{after: "vlan:100"}, holds: map[string]string{after: "vlan:100"}},
		"Moving": {reason: "the hook stays, and the condition can say why", phase: v1alpha1.MachineClaimed, why: waiting, answer: ErrMoving,
			askedAgain: true,
			asked:      []string{"h to network vlan:100"}, left: map[string]string{before: "vlan:100", after: "vlan:100", words: ErrMoving.Error()}},
		"Failed": {reason: "tried again, later and later", phase: v1alpha1.MachineClaimed, why: waiting, answer: errors.New("no switch"),
			wantError: true,
			asked:     []string{"h to network vlan:100"}, left: map[string]string{before: "vlan:100", after: "vlan:100", words: "no switch"}},
		"Returned": {reason: "the way back", phase: v1alpha1.MachineReleasing, why: waiting,
			asked: []string{"h to the parking lot"}, left: map[string]string{before: "vlan:100"}, holds: map[string]string{before: "vlan:100"}},
		"SwitchedOff": {reason: "it is moved before it is cleaned", phase: v1alpha1.MachineReleasing, why: waiting,
			change: switchedOff, status: provisioned(false),
			asked: []string{"h to the parking lot"}, left: map[string]string{before: "vlan:100"},
			holds: map[string]string{before: "vlan:100", v1alpha1.ReleasingAnnotationKey: ""}},
		"StillOn": {reason: "what its tenant has installed would run in the parking lot", phase: v1alpha1.MachineReleasing, why: waiting,
			change: switchedOff, status: provisioned(true), askedAgain: true,
			left:  map[string]string{before: "vlan:100", after: "vlan:100"},
			holds: map[string]string{before: "vlan:100", after: "vlan:100", v1alpha1.ReleasingAnnotationKey: ""}},
		"NotSwitchedOff": {reason: "that it is off may have been true before it was installed", phase: v1alpha1.MachineReleasing, why: waiting,
			change: func(machine *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) {
				switchedOff(machine, host)
				delete(host.Annotations, v1alpha1.ReleasingAnnotationKey)
			}, status: provisioned(false), askedAgain: true, left: map[string]string{before: "vlan:100", after: "vlan:100"}},
		"AnotherNetwork": {reason: "a tenant can write the Machine", phase: v1alpha1.MachineClaimed, why: waiting,
			change: func(machine *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				machine.Annotations[before] = "vlan:200"
			},
			asked: []string{"h to network vlan:100"}, left: map[string]string{after: "vlan:100"}, holds: map[string]string{after: "vlan:100"}},
		"NoHookOnMachine": {reason: "a tenant can write the Machine", phase: v1alpha1.MachineClaimed, why: waiting,
			change: func(machine *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) { machine.Annotations = nil },
			asked:  []string{"h to network vlan:100"}, holds: map[string]string{after: "vlan:100"}},
		"ReturnedWithoutHook": {reason: "a tenant can write the Machine", phase: v1alpha1.MachineReleasing, why: waiting,
			change: func(machine *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) { machine.Annotations = nil },
			asked:  []string{"h to the parking lot"}, holds: map[string]string{before: "vlan:100"}},
		"HookOfNoHost": {reason: "only the server says that it is to be moved", phase: v1alpha1.MachineClaimed, why: waiting,
			change: func(_ *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) {
				host.Annotations = map[string]string{after: "vlan:100"}
			},
			left: map[string]string{after: "vlan:100"}, holds: map[string]string{after: "vlan:100"}},
		"OtherName": {reason: "the identity alone is the tenant's to write", phase: v1alpha1.MachineClaimed, why: waiting,
			change: func(_ *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) { host.Spec.ConsumerRef.Name = "other" },
			left:   map[string]string{before: "vlan:100", after: "vlan:100"}},
		"NotWaiting": {reason: "the server may not be clean yet", phase: v1alpha1.MachineReleasing, why: v1alpha1.ReasonNetworkReady,
			left: map[string]string{before: "vlan:100", after: "vlan:100"}},
		"OtherConsumer": {reason: "the server of another consumer is not moved", phase: v1alpha1.MachineClaimed, why: waiting,
			change: func(_ *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) { host.Spec.ConsumerRef.UID = "other" },
			left:   map[string]string{before: "vlan:100", after: "vlan:100"}},
		"BadNetwork": {reason: "the hook was edited", phase: v1alpha1.MachineClaimed, why: waiting,
			change: func(_ *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) { host.Annotations[before] = "blue" },
			holds:  map[string]string{before: "blue", after: "vlan:100"},
			left: map[string]string{before: "vlan:100", after: "vlan:100", words: "annotation " + before +
				` of BareMetalHost *: "blue" is not a tenant network: write vlan:N, vni:N or id:NAME`}},
	} {
		t.Run(name, func(t *testing.T) {
			machine, host := held(t, tc.phase, tc.why)
			if tc.change != nil {
				tc.change(machine, host)
				for _, object := range []client.Object{machine, host} {
					if err := environment.Client.Update(t.Context(), object); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tc.status != nil {
				setStatus(t, host, tc.status)
			}
			endpoint := &switches{answer: tc.answer}
			c := NewController(environment.Client, environment.Client, endpoint, topology.Default())
			outcome, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(machine)})
			if (err != nil) != tc.wantError || (outcome.RequeueAfter > 0) != tc.askedAgain {
				t.Errorf("%s: error %v, again after %s", tc.reason, err, outcome.RequeueAfter)
			}
			if diff := cmp.Diff(tc.asked, endpoint.asked); diff != "" {
				t.Errorf("%s: asked (-want +got):\n%s", tc.reason, diff)
			}
			if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
				t.Fatal(err)
			}
			for key, text := range machine.Annotations {
				machine.Annotations[key] = strings.ReplaceAll(text, client.ObjectKeyFromObject(host).String(), "*")
			}
			if diff := cmp.Diff(tc.left, machine.Annotations, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: annotations (-want +got):\n%s", tc.reason, diff)
			}
			if tc.holds == nil {
				tc.holds = map[string]string{before: "vlan:100", after: "vlan:100"}
			}
			if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.holds, host.Annotations); diff != "" {
				t.Errorf("%s: annotations of the host (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestOrphans: the Machine is gone, and its server is still in the tenant's network.
func TestOrphans(t *testing.T) {
	machine, host := held(t, v1alpha1.MachineClaimed, v1alpha1.ReasonWaitingForHook)
	endpoint := &switches{}
	reconcile := func() map[string]string {
		t.Helper()
		c := orphans{NewController(environment.Client, environment.Client, endpoint, topology.Default())}
		if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(host)}); err != nil {
			t.Fatal(err)
		}
		if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
			t.Fatal(err)
		}
		return host.Annotations
	}
	if left := reconcile(); left[after] == "" || len(endpoint.asked) > 0 {
		t.Errorf("a server that has its Machine was moved: %v", endpoint.asked)
	}
	machine.Status.HostRef.Name = "another" // a crash has left it with two
	if err := environment.Client.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	if left := reconcile(); left[after] != "" || len(endpoint.asked) != 1 {
		t.Errorf("annotations %v: the hook of a server that its Machine does not have is left", left)
	}
	host.Annotations[after], endpoint.asked = "vlan:100", nil
	switchedOff(nil, host)
	if err := environment.Client.Update(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	if err := environment.Client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	setStatus(t, host, provisioned(true))
	if left := reconcile(); left[after] == "" || len(endpoint.asked) > 0 {
		t.Errorf("a server that is on was moved: %v", endpoint.asked)
	}
	setStatus(t, host, provisioned(false))
	if left := reconcile(); left[after] != "" {
		t.Errorf("annotations %v: the hook is left", left)
	}
	if diff := cmp.Diff([]string{"h to the parking lot"}, endpoint.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}
