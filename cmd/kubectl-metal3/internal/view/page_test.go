// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestFilter(t *testing.T) {
	server := view.Server{Metadata: view.Metadata{Namespace: "metal3-system", Name: "server-07"}, Rack: "r1", Zone: "hall-a",
		Types: []string{"cpu", "h100-8x"}, State: "Joined", Tenant: "acme/blue", Machine: "acme/default-x7f2k", Node: "node-7", Why: "is a node"}
	for name, tc := range map[string]struct {
		filter view.Filter
		want   bool
		reason string
	}{
		"all":           {view.Filter{}, true, "empty values select all"},
		"each":          {view.Filter{State: "joined", Type: "h100-8x", Tenant: "blue", Rack: "r1", Zone: "hall-a", Text: "X7F"}, true, "so"},
		"whole tenant":  {view.Filter{Tenant: "acme/blue"}, true, "a tenant may have its namespace in front"},
		"namespace":     {view.Filter{Tenant: "acme"}, false, "a namespace is no tenant"},
		"state":         {view.Filter{State: "Failed"}, false, "another state"},
		"type":          {view.Filter{Type: "h100"}, false, "a part of a type"},
		"rack":          {view.Filter{Rack: "r2"}, false, "another rack"},
		"zone":          {view.Filter{Zone: "hall-b"}, false, "another zone"},
		"text in node":  {view.Filter{Text: "node-7"}, true, "its node"},
		"text in name":  {view.Filter{Text: "metal3-system/SERVER"}, true, "its name, with the namespace"},
		"text nowhere":  {view.Filter{Text: "server-08"}, false, "in none"},
		"text of lines": {view.Filter{Text: "server-07 acme"}, false, "a text is in one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.filter.Has(server); got != tc.want {
				t.Errorf("%+v selects it: %t, want %t: %s", tc.filter, got, tc.want, tc.reason)
			}
		})
	}
}

func TestWaiting(t *testing.T) {
	snapshot := fleettest.New(500)
	all, left := view.New(snapshot).Waiting(100)
	kinds := map[string]int{}
	for _, waiters := range all {
		kinds[waiters.Kind] += len(waiters.Names)
	}
	// Machines that are nodes do not wait; one that has failed waits for somebody.
	if diff := cmp.Diff(map[string]int{"pod": 12, "machine": 45}, kinds); diff != "" || left != 0 {
		t.Errorf("these wait, and %d more (-want +got):\n%s", left, diff)
	}
	if first := all[0]; !slices.Equal(first.Names[:2], []string{"default/training-0", "default/training-1"}) || len(first.Names) != 8 ||
		first.Cause.Text != "pod default/training-0 is Pending" || first.Cause.Verdict != view.Wrong {
		t.Errorf("the pods of one job are %+v", first)
	}
	index := slices.IndexFunc(all, func(waiters view.Waiters) bool { return waiters.Kind == "machine" && waiters.Until != nil })
	if index < 0 || len(all[index].Names) != 1 || !all[index].Until.After(fleettest.Now) {
		t.Errorf("no Machine on its way says until when: %v", index)
	}
	if few, more := view.New(snapshot).Waiting(3); len(few) != 3 || more != 57-8-1-1 {
		t.Errorf("of three, %d are explained and %d more wait", len(few), more)
	}
	// A NodeClaim waits as long as its Machine.
	for _, waiters := range all {
		if name, ours := strings.CutPrefix(waiters.Names[0], "acme/"); ours && waiters.Until != nil {
			claimed := *snapshot
			tenant := *snapshot.Tenant
			tenant.NodeClaims = []karpv1.NodeClaim{{ObjectMeta: metav1.ObjectMeta{Name: name}}}
			claimed.Tenant = &tenant
			waits, _ := view.New(&claimed).Waiting(100)
			claim := slices.IndexFunc(waits, func(waiters view.Waiters) bool { return waiters.Kind == "nodeclaim" })
			if claim < 0 || !waits[claim].Until.Equal(waiters.Until) {
				t.Errorf("NodeClaim %s does not wait until %s", name, waiters.Until)
			}
			break
		}
	}
	// Machines without a server that wait for the same are together, also thousands of them.
	for i := range 1000 {
		machine := v1alpha1.Machine{}
		machine.Namespace, machine.Name = "acme", fmt.Sprintf("more-%d", i)
		machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "h100-8x"}
		snapshot.Management.Machines = append(snapshot.Management.Machines, machine)
	}
	if all, left := view.New(snapshot).Waiting(100); left != 0 || !slices.ContainsFunc(all, func(waiters view.Waiters) bool {
		return len(waiters.Names) == 1000
	}) {
		t.Errorf("%d are explained, and %d more wait", len(all), left)
	}
}

func TestTenants(t *testing.T) {
	snapshot := fleettest.New(60)
	fleet := view.New(snapshot)
	var servers, transit int64
	for _, tenant := range fleet.Tenants() {
		servers += tenant.Servers
		transit += tenant.InTransit
		if *tenant.Quota.Servers != 30 || tenant.Types["h100-8x"]*8+tenant.Types["a100-4x"]*4 != int32(*tenant.Accelerators) {
			t.Errorf("tenant %+v", tenant)
		}
	}
	var want int64
	for _, capacity := range fleet.Capacity() {
		transit -= int64(capacity.InTransit)
		for _, count := range capacity.Tenants {
			want += int64(count)
		}
	}
	if servers != want || transit != 0 {
		t.Errorf("tenants have %d servers, by types %d; in transit differ by %d", servers, want, transit)
	}
	tenant := fleet.Tenants()[0]
	tenant.Types = map[string]int32{"a100-4x": 2, "h100-8x": 3}
	tenant.Quota.NodeTypes = map[string]v1alpha1.ServerCount{"h100-8x": 4, "l40s": 5}
	if diff := cmp.Diff([]string{"a100-4x 2", "h100-8x 3 of 4", "l40s 0 of 5"}, tenant.ByType()); diff != "" {
		t.Errorf("what it has of each type, beside its quota (-want +got):\n%s", diff)
	}
	snapshot.Management.NodeTypes = nil
	for _, tenant := range view.New(snapshot).Tenants() {
		if tenant.Accelerators != nil {
			t.Errorf("a reader of no NodeTypes sees %d accelerators of %s", *tenant.Accelerators, tenant.Tenant)
		}
	}
}

func TestHardware(t *testing.T) {
	snapshot := fleettest.New(25)
	small := &snapshot.Management.Hosts[0]
	small.Status.HardwareDetails.CPU.Count = 64
	fleet := view.New(snapshot)
	want := view.Hardware{Types: []string{"h100-8x"}, Inspected: true, Lacks: map[string]string{"h100-8x": "cpu 64 of 96"},
		Parts: []view.HardwareRow{{"cpu", "64 threads, x86_64", []string{"96"}}, {"memory", "768Gi", []string{"768Gi"}},
			{"disks", "1 of 480 GB, 2 of 3840 GB", []string{""}}, {"network interfaces", "2", nil}, {"nvidia.com/gpu", "", []string{"8"}}}}
	if diff := cmp.Diff(want, fleet.Hardware(small)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	unknown := &snapshot.Management.Hosts[24]
	unknown.Status.HardwareDetails = nil
	if hardware := view.New(snapshot).Hardware(unknown); hardware.Inspected || hardware.Parts[0].Inspected != "" {
		t.Errorf("a server that was not inspected has %+v", hardware)
	}
}
