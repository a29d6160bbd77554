// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

const (
	silenceMessage    = "the tenant's provider has not been heard of since 2026-01-02T14:50:00Z by its clock: it is down"
	silence           = `"` + silenceMessage + `"`
	unansweredMessage = "the manager has not answered for 6m0s: Machine acme/m1 waits for it. It is down, hangs, or is late"
	unansweredText    = unansweredMessage + " -> " + managerRemedy
)

// silentProvider has the manager say that it does not hear of the provider any more.
func silentProvider(s *Snapshot) {
	conditions.SetReady(&s.Management.TenantClusters[0].Status.Conditions, metav1.Condition{Status: metav1.ConditionUnknown,
		Reason: v1alpha1.ReasonProviderSilent, Message: silenceMessage}, 1, s.Time)
}

// unansweredMachine adds a Machine that is six minutes old and has no status but the default of its kind.
func unansweredMachine(s *Snapshot) {
	machine := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "m1", Generation: 1,
		CreationTimestamp: metav1.NewTime(s.Time.Add(-6 * time.Minute))}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "h100"}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "acme"}
	machine.Status.ObservedGeneration = -1
	s.Management.Machines = append(s.Management.Machines, machine)
}

// TestStoppedIssues: a program that does nothing is the first issue, and is there once.
func TestStoppedIssues(t *testing.T) {
	const remedy = "kubectl describe tenantclusters.karpenter.metal3.io -n acme acme"
	silent := Issue{Critical, "TenantCluster acme/acme", silenceMessage, remedy}
	for name, tc := range map[string]struct {
		reason  string
		changes []func(*Snapshot)
		want    []Issue
	}{
		"Provider": {"its tenant gets no servers, whatever the clock of this program shows", []func(*Snapshot){silentProvider}, []Issue{silent}},
		"Manager": {"a new Machine has no answer", []func(*Snapshot){unansweredMachine}, []Issue{
			{Critical, "manager", unansweredMessage, managerRemedy},
			{Warning, "Machine acme/m1", "", "kubectl metal3 explain machine acme/m1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture(append(tc.changes, withHost("s1", nil))...)
			if diff := cmp.Diff(tc.want, New(s).Issues()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestUnanswered(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason           string
		machines, tenant []asked
		want             string
	}{
		"None":     {reason: "nobody asks anything"},
		"Answered": {reason: "it is old and waits for a server", machines: []asked{{created: time.Hour, generation: 1, observed: 1}}},
		"New":      {reason: "the manager has a minute", machines: []asked{{created: time.Minute, generation: 1, observed: -1}}},
		"Oldest": {reason: "it is down for as long as the first has waited", machines: []asked{
			{created: 2 * time.Minute, generation: 1, observed: -1}, {created: 3 * time.Minute, generation: 1, observed: -1},
			{created: time.Hour, generation: 1, observed: 1}}, want: "3m0s: Machine acme/m1"},
		"Tenant": {reason: "it is the first object after an installation", tenant: []asked{{created: 2 * time.Minute, generation: 1,
			observed: -1}}, want: "2m0s: TenantCluster acme/m0"},
		"Deleted": {reason: "the server is not given back", machines: []asked{{created: time.Hour, deleted: 2 * time.Minute, generation: 2,
			observed: 1, finalizer: v1alpha1.MachineFinalizer}}, want: "2m0s: Machine acme/m0"},
		"Releasing": {reason: "the manager is at it", machines: []asked{{created: time.Hour, deleted: 2 * time.Minute, generation: 2,
			observed: 2, finalizer: v1alpha1.MachineFinalizer}}},
		"Held": {reason: "the server is back, and another program holds the Machine", machines: []asked{{created: time.Hour,
			deleted: 2 * time.Minute, generation: 2, observed: 1, finalizer: "example.com/backup"}}},
		"Changed": {reason: "when a spec was changed is not known", machines: []asked{{created: time.Hour, generation: 2, observed: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Management{}
			for i, object := range tc.machines {
				m.Machines = append(m.Machines, v1alpha1.Machine{ObjectMeta: object.metadata(now, i),
					Status: v1alpha1.MachineStatus{ObservedGeneration: object.observed}})
			}
			for i, object := range tc.tenant {
				m.TenantClusters = append(m.TenantClusters, v1alpha1.TenantCluster{ObjectMeta: object.metadata(now, i),
					Status: v1alpha1.TenantClusterStatus{ObservedGeneration: object.observed}})
			}
			want := ""
			if tc.want != "" {
				want = "the manager has not answered for " + tc.want + " waits for it. It is down, hangs, or is late"
			}
			if got := unanswered(m, now).Text; got != want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, want)
			}
		})
	}
}

// asked is an object of which the manager is asked something. Times are ago, and 0 is not deleted.
type asked struct {
	created, deleted     time.Duration
	generation, observed int64
	finalizer            string
}

func (a asked) metadata(now time.Time, index int) metav1.ObjectMeta {
	metadata := metav1.ObjectMeta{Namespace: "acme", Name: fmt.Sprint("m", index), Generation: a.generation, Finalizers: []string{a.finalizer},
		CreationTimestamp: metav1.NewTime(now.Add(-a.created))}
	if a.deleted > 0 {
		metadata.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(-a.deleted)))
	}
	return metadata
}
