// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantcluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

var silentReady = conditionOf(v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonProviderSilent, 2)

const yes, no = metav1.ConditionTrue, metav1.ConditionFalse

func conditionOf(kind string, status metav1.ConditionStatus, reason string, generation int64) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "message of " + kind, ObservedGeneration: generation}
}

func TestReadyOf(t *testing.T) {
	identified := conditionOf(v1alpha1.ConditionClusterIdentified, yes, v1alpha1.ReasonIdentified, 2)
	for name, tc := range map[string]struct {
		reason               string
		pools, sync, deleted bool
		conditions           []metav1.Condition
		silent               bool
		status               metav1.ConditionStatus
		want, says           string
	}{
		"New": {reason: "its provider has not reported", status: metav1.ConditionUnknown, want: v1alpha1.ReasonNotReported,
			says: v1alpha1.ConditionClusterIdentified},
		"Identified": {reason: "a tenant makes its own pools", conditions: []metav1.Condition{identified}, status: yes,
			want: v1alpha1.ReasonIdentified},
		"AnotherCluster": {reason: "the provider writes nothing", status: no, want: v1alpha1.ReasonAnotherCluster,
			conditions: []metav1.Condition{conditionOf(v1alpha1.ConditionClusterIdentified, no, v1alpha1.ReasonAnotherCluster, 2)}},
		"PoolsNotReported": {reason: "nothing is known of the pools", pools: true, conditions: []metav1.Condition{identified},
			status: metav1.ConditionUnknown, want: v1alpha1.ReasonNotReported, says: v1alpha1.ConditionPoolsSynced},
		"PoolsOfBefore": {reason: "the pools of an earlier spec say nothing", pools: true, status: metav1.ConditionUnknown,
			want: v1alpha1.ReasonNotReported, says: v1alpha1.ConditionPoolsSynced,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionPoolsSynced, yes, v1alpha1.ReasonSynced, 1)}},
		"PoolsSynced": {reason: "all are true", pools: true, status: yes, want: v1alpha1.ReasonIdentified,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionPoolsSynced, yes, v1alpha1.ReasonSynced, 2)}},
		"PoolsInvalid": {reason: "the spec is wrong", pools: true, status: no, want: v1alpha1.ReasonInvalidPools,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionPoolsSynced, no, v1alpha1.ReasonInvalidPools, 2)}},
		"PoolsHeld": {reason: "an operator has to confirm that the last pools go", status: no, want: v1alpha1.ReasonReleasesServers,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionPoolsSynced, no, v1alpha1.ReasonReleasesServers, 2)}},
		"KubeconfigRefused": {reason: "a refusal counts although the spec has changed since", status: no,
			want:       v1alpha1.ReasonKubeconfigRefused,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionKubeconfigAccepted, no, v1alpha1.ReasonKubeconfigRefused, 1)}},
		"KubeconfigAccepted": {reason: "an acceptance is not asked for anew", status: yes, want: v1alpha1.ReasonIdentified,
			conditions: []metav1.Condition{identified,
				conditionOf(v1alpha1.ConditionKubeconfigAccepted, yes, v1alpha1.ReasonKubeconfigAccepted, 1)}},
		"CollectionHeld": {reason: "an operator has to look, which is more urgent than to wait for the pools", pools: true, status: no,
			want:       v1alpha1.ReasonTooManyMachines,
			says:       v1alpha1.ConditionPoolsSynced,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionCollectionAllowed, no, v1alpha1.ReasonTooManyMachines, 1)}},
		"SyncFails": {reason: "the sync is part of the spec", sync: true, status: no, want: v1alpha1.ReasonNoDeviceClasses,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionDRASynced, no, v1alpha1.ReasonNoDeviceClasses, 2)}},
		"SyncDisabled": {reason: "nothing is to be synced", status: yes, want: v1alpha1.ReasonIdentified,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionDRASynced, no, v1alpha1.ReasonSyncDisabled, 2)}},
		"SyncNeedless": {reason: "in one cluster there is nothing to sync", sync: true, status: yes, want: v1alpha1.ReasonIdentified,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionDRASynced, no, v1alpha1.ReasonSameCluster, 2)}},
		"HeardAgain": {reason: "what the manager wrote before says nothing", status: yes, want: v1alpha1.ReasonIdentified,
			conditions: []metav1.Condition{identified, silentReady}},
		"Silent": {reason: "whatever its provider has said before, nobody does it now", conditions: []metav1.Condition{identified},
			silent: true, status: metav1.ConditionUnknown, want: v1alpha1.ReasonProviderSilent, says: "2026-01-02T14:57:00Z"},
		"SilentAndNotReported": {reason: "a wait for a provider that is down does not end by itself", pools: true,
			conditions: []metav1.Condition{identified}, silent: true, status: metav1.ConditionUnknown,
			want: v1alpha1.ReasonProviderSilent, says: v1alpha1.ConditionPoolsSynced},
		"SilentAndRefused": {reason: "what is known to keep it from renewing is more precise", silent: true, status: no,
			want:       v1alpha1.ReasonKubeconfigRefused,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionKubeconfigAccepted, no, v1alpha1.ReasonKubeconfigRefused, 1)}},
		"DeletedAndSilent": {reason: "its provider may be uninstalled once the nodes are drained", deleted: true,
			status: no, want: v1alpha1.ReasonReturningServers,
			conditions: []metav1.Condition{identified, silentReady,
				conditionOf(v1alpha1.ConditionServersReturned, no, v1alpha1.ReasonReturningServers, 2)}},
		"Deleted": {reason: "its servers are on their way back", deleted: true, pools: true, status: no, want: v1alpha1.ReasonReturningServers,
			conditions: []metav1.Condition{identified, conditionOf(v1alpha1.ConditionServersReturned, no, v1alpha1.ReasonReturningServers, 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Name: "blue", Generation: 2}}
			tenant.Status.Conditions = tc.conditions
			tenant.Spec.Sync.ToHost.ResourceClaims.Enabled = tc.sync
			if tc.pools {
				tenant.Spec.PrivateNodes = &v1alpha1.PrivateNodes{}
			}
			if tc.deleted {
				tenant.DeletionTimestamp = ptr.To(metav1.Now())
			}
			tenant.Status.ProviderRenewTime = ptr.To(metav1.Date(2026, 1, 2, 14, 57, 0, 0, time.UTC))
			ready := readyOf(tenant, tc.silent)
			if ready.Status != tc.status || ready.Reason != tc.want || !strings.Contains(ready.Message, tc.says) {
				t.Errorf("%s: got %+v, want %s, %s, %q", tc.reason, ready, tc.status, tc.want, tc.says)
			}
		})
	}
}

// TestRenewalIsNoChange: the renewals of all tenants, of which there is one in a second or more, lead to no work.
func TestRenewalIsNoChange(t *testing.T) {
	minute := func(minute int) *metav1.Time { return ptr.To(metav1.Date(2026, 1, 2, 15, minute, 0, 0, time.UTC)) }
	for name, tc := range map[string]struct {
		reason      string
		ready       metav1.ConditionStatus
		before, now *metav1.Time
		generation  int64
		want        bool
	}{
		"Renewed": {reason: "nothing is different", ready: yes, before: minute(1), now: minute(2), generation: 1},
		"First":   {reason: "from now on the next one is due", ready: yes, now: minute(2), generation: 1, want: true},
		"NotReady": {reason: "its provider may be back", ready: metav1.ConditionUnknown, before: minute(1), now: minute(2), generation: 1,
			want: true},
		"Spec": {reason: "something else is different", ready: yes, before: minute(1), now: minute(2), generation: 2, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := func(version string, generation int64, renewed *metav1.Time) *v1alpha1.TenantCluster {
				tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Generation: generation}}
				tenant.Status.ProviderRenewTime = renewed
				tenant.Status.Conditions = []metav1.Condition{conditionOf(v1alpha1.ConditionReady, tc.ready, "x", 1)}
				return tenant
			}
			changed := kube.Changed(withoutRenewal).Update(event.UpdateEvent{
				ObjectOld: tenant("1", 1, tc.before), ObjectNew: tenant("2", tc.generation, tc.now)})
			if changed != tc.want {
				t.Errorf("%s: got %v", tc.reason, changed)
			}
		})
	}
}

// TestRenewalIsHeard: a renewal that leads to no work counts from when it came, so that a provider which falls silent is noticed in time.
func TestRenewalIsHeard(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC))
	c := NewController(nil, nil, events.NewFakeRecorder(1), clk)
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	for minute := range 3 {
		clk.SetTime(clk.Now().Add(time.Minute))
		tenant.Status.ProviderRenewTime = ptr.To(metav1.Date(2020, 1, 1, 0, minute, 0, 0, time.UTC))
		c.announce().Update(t.Context(), event.UpdateEvent{ObjectOld: tenant, ObjectNew: tenant}, nil)
	}
	clk.SetTime(clk.Now().Add(time.Minute))
	if left := c.silentIn(tenant); left != 2*time.Minute {
		t.Errorf("it counts as silent in %v, want 2m: it has renewed a minute ago", left)
	}
}

func TestRolloutOf(t *testing.T) {
	joined, ready := conditionOf(v1alpha1.ConditionJoined, yes, "x", 1), conditionOf(v1alpha1.ConditionReady, yes, "x", 1)
	machine := func(tenant string, deleted bool, conditions ...metav1.Condition) v1alpha1.Machine {
		machine := v1alpha1.Machine{}
		if tenant != "" {
			machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: tenant}
		}
		if deleted {
			machine.DeletionTimestamp = ptr.To(metav1.Now())
		}
		machine.Status.Conditions = conditions
		return machine
	}
	got := rolloutOf("blue", []v1alpha1.Machine{
		machine("blue", false, joined, ready, conditionOf(v1alpha1.ConditionDrifted, no, "x", 1)),
		machine("blue", false, joined, ready, conditionOf(v1alpha1.ConditionDrifted, yes, "x", 1)), // to be replaced, and works
		machine("blue", false, joined, conditionOf(v1alpha1.ConditionReady, no, "x", 1)),           // up to date, and broken
		machine("blue", false),               // waits for a server
		machine("blue", true, joined, ready), // is being given back
		machine("red", false, joined, ready),
		machine("", false, ready), // stands alone
	})
	want := &v1alpha1.RolloutStatus{Total: 5, UpToDate: 2, Unavailable: 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
