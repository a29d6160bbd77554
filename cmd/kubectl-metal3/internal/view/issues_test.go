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
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestMachineRemedies: the remedy of a Machine that gets no further is the command that is of use, and not one that names it.
func TestMachineRemedies(t *testing.T) {
	const deletes = "kubectl delete machines.karpenter.metal3.io -n acme a"
	for name, tc := range map[string]struct {
		reason string
		ready  string
		change func(*v1alpha1.Machine, *bmov1alpha1.BareMetalHost)
		want   string
		says   string
	}{
		"HostError": {reason: "Metal3 knows what is wrong, and the Machine does not have it", ready: v1alpha1.ReasonHostError,
			says:   `. Metal3 says of its server: "no power"`,
			change: func(_ *v1alpha1.Machine, host *bmov1alpha1.BareMetalHost) { host.Status.ErrorMessage = "no power" },
			want:   "Metal3 tries again by itself; what it says is in: kubectl describe baremetalhost -n metal3 server-01"},
		"HostLost": {reason: "nothing brings it back", ready: v1alpha1.ReasonHostLost, want: deletes},
		"GivenUp": {reason: "it does not go on", ready: v1alpha1.ReasonDeadlineExceeded, want: deletes,
			change: func(machine *v1alpha1.Machine, _ *bmov1alpha1.BareMetalHost) {
				machine.Status.Conditions = append(machine.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionGivenUp,
					Status: metav1.ConditionTrue})
			}},
		"Unknown": {reason: "its explanation has no command", ready: v1alpha1.ReasonTooManyGivenUp,
			want: "kubectl metal3 explain machine acme/a"},
	} {
		t.Run(name, func(t *testing.T) {
			host := env.AvailableHost("metal3", "server-01", nil)
			machine := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "a"}}
			machine.Status.Phase = v1alpha1.MachineFailed
			machine.Status.HostRef = &v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name}
			conditions.SetReady(&machine.Status.Conditions,
				metav1.Condition{Status: metav1.ConditionFalse, Reason: tc.ready, Message: "is wrong"}, 1, metav1.NewTime(time.Unix(100, 0)))
			if tc.change != nil {
				tc.change(&machine, host)
			}
			s := &Snapshot{Time: metav1.NewTime(time.Unix(100, 0))}
			s.Management.Hosts, s.Management.Machines = []bmov1alpha1.BareMetalHost{*host}, []v1alpha1.Machine{machine}
			issues := New(s).Issues()
			if want := (Issue{Critical, "Machine acme/a", "is wrong" + tc.says, tc.want}); len(issues) == 0 || issues[0] != want {
				t.Errorf("%s: got %+v, want %+v", tc.reason, issues, want)
			}
		})
	}
}

// TestStalledIssues: an object of each kind that gets no further before someone acts is an issue, by the condition that all kinds have,
// with all that it says. One that waits is none.
func TestStalledIssues(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		ready  metav1.Condition
		want   []Issue
	}{
		"stalled": {
			reason: "someone has to act",
			ready:  conditions.Sum(metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidSpec, Message: "is wrong"}),
			want: []Issue{
				{Critical, "NodeProvider metal3-provider", "is wrong", "kubectl describe nodeproviders.karpenter.metal3.io metal3-provider"},
				{Critical, "MetalNodeClass default", "is wrong",
					"kubectl describe metalnodeclasses.karpenter.metal3.io default, in the tenant cluster"},
				{Critical, "NodeType h100", "is wrong", "kubectl metal3 explain nodetype h100"},
				{Critical, "Machine acme/a", "is wrong", "kubectl metal3 explain machine acme/a"},
				{Warning, "TenantCluster acme/acme", "is wrong", "kubectl describe tenantclusters.karpenter.metal3.io -n acme acme"},
			},
		},
		"waits": {
			reason: "it gets further by itself",
			ready: metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonProvisioning,
				Message: "waits"},
			want: []Issue{{Warning, "NodeType h100", "no server matches its selector",
				"label BareMetalHosts as its spec.bareMetalHosts.selector says"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.NewTime(time.Unix(100, 0))
			s := &Snapshot{Time: now, Tenant: &Tenant{}}
			provider := v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal3-provider", UID: "metal3-provider"}}
			nodeType := v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100", OwnerReferences: env.MadeBy("metal3-provider")}}
			nodeType.Spec.ProviderRef.Name = provider.Name
			nodeType.Spec.BareMetalHosts = env.HostsWith(map[string]string{"type": "h100"})
			tenant := v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
			machine := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "a"}}
			machine.Status.Phase = v1alpha1.MachineProvisioning
			class := v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			for _, all := range []*[]metav1.Condition{&provider.Status.Conditions, &nodeType.Status.Conditions, &tenant.Status.Conditions,
				&machine.Status.Conditions} {
				conditions.SetReady(all, tc.ready, 1, now)
			}
			conditions.SetReady(&class.Status.Conditions, tc.ready, 1, now)
			s.Management = Management{NodeProviders: []v1alpha1.NodeProvider{provider}, NodeTypes: []v1alpha1.NodeType{nodeType},
				TenantClusters: []v1alpha1.TenantCluster{tenant}, Machines: []v1alpha1.Machine{machine}}
			s.Tenant.NodeClasses = []v1alpha1.MetalNodeClass{class}
			if diff := cmp.Diff(tc.want, New(s).Issues()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A MetalNodeClass waits for its NodeProvider. If its name is wrong, it waits for ever.
func TestClassWithoutProvider(t *testing.T) {
	now := metav1.NewTime(time.Unix(100, 0))
	class := v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	conditions.SetReady(&class.Status.Conditions, metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonProviderNotFound,
		Message: "it does not exist"}, 1, now)
	issues := New(&Snapshot{Time: now, Tenant: &Tenant{NodeClasses: []v1alpha1.MetalNodeClass{class}}}).Issues()
	want := []Issue{{Warning, "MetalNodeClass default", "it does not exist",
		"kubectl describe metalnodeclasses.karpenter.metal3.io default, in the tenant cluster"}}
	if diff := cmp.Diff(want, issues); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A TenantCluster whose provider writes nothing is worse than one with a wrong pool.
func TestBlockedTenantIssue(t *testing.T) {
	now := metav1.NewTime(time.Unix(100, 0))
	tenant := v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
	blocked := metav1.Condition{Type: v1alpha1.ConditionKubeconfigAccepted, Status: metav1.ConditionFalse, Reason: "Refused",
		Message: "is refused"}
	tenant.Status.Conditions = []metav1.Condition{blocked}
	conditions.SetReady(&tenant.Status.Conditions, conditions.Sum(blocked), 1, now)
	issues := New(&Snapshot{Time: now, Management: Management{TenantClusters: []v1alpha1.TenantCluster{tenant}}}).Issues()
	want := []Issue{{Critical, "TenantCluster acme/acme", "is refused", "kubectl describe tenantclusters.karpenter.metal3.io -n acme acme"}}
	if diff := cmp.Diff(want, issues); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNeverInitialized: Karpenter waits without a limit for a node whose GPUs no device plugin advertises, and holds the server.
func TestNeverInitialized(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*Snapshot)
		want   []Issue
	}{
		"Long": {"nobody mends it", waitsForGPU(11 * time.Minute), []Issue{{Warning, "NodeClaim m1", "its node registered 11m0s ago, is not " +
			"initialized, and holds its server: \"ResourceNotRegistered: Resource 'nvidia.com/gpu' was requested but not registered\"",
			"kubectl describe nodeclaim m1, in the tenant cluster"}}},
		"Young": {"drivers take a while", waitsForGPU(9 * time.Minute), nil},
		"Going": {"the server goes back", func(s *Snapshot) {
			waitsForGPU(time.Hour)(s)
			s.Tenant.NodeClaims[0].DeletionTimestamp = &s.Time
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Snapshot{Time: metav1.NewTime(time.Unix(10000, 0)), Tenant: &Tenant{NodeClaims: []karpv1.NodeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "m1"}}}}}
			tc.change(s)
			if diff := cmp.Diff(tc.want, New(s).Issues()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRegisteredAnew: a server that runs a Machine's node, perhaps, under another name is an issue, which the Machine does not show.
func TestRegisteredAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(host *bmov1alpha1.BareMetalHost)
		want   bool
	}{
		"OtherName": {reason: "neither its Machine nor the pool gets it", want: true},
		"Emptied":   {reason: "the manager releases it", change: func(host *bmov1alpha1.BareMetalHost) { host.Spec.Image = nil }},
		"Replaced": {reason: "its Machine is another one of that name, and the manager releases it",
			change: func(host *bmov1alpha1.BareMetalHost) { host.Spec.ConsumerRef.UID = "before" }},
		"Foreign": {reason: "Cluster API's",
			change: func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.ConsumerRef.APIVersion = "infrastructure.cluster.x-k8s.io/v1beta1"
			}},
	} {
		t.Run(name, func(t *testing.T) {
			f := New(fixture(withMachine("m1", "s1", v1alpha1.MachineJoined, nil), withHost("s9", func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.Image = &bmov1alpha1.Image{URL: "http://images.example.com/os.qcow2"}
				host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "acme",
					Name: "m1", UID: "m1"}
				if tc.change != nil {
					tc.change(host)
				}
			})))
			var want []Issue
			if tc.want {
				want = []Issue{{Warning, "BareMetalHost metal3/s9", "names Machine acme/m1 as its consumer, which has another server, and has an " +
					"image: it was registered anew and may run the Machine's node, so it is neither switched off nor cleaned",
					"once nothing runs on it: kubectl delete machines.karpenter.metal3.io -n acme m1"}}
			}
			if diff := cmp.Diff(want, f.Issues()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
