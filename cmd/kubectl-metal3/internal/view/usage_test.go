// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

var year = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func recordOf(host string, uses ...v1alpha1.HostUse) v1alpha1.HostUsage {
	return v1alpha1.HostUsage{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: host}, Spec: v1alpha1.HostUsageSpec{Uses: uses}}
}

// useBy is a use by a tenant from an hour until another one, or without an end.
func useBy(tenant string, from, to float64) v1alpha1.HostUse {
	timeAt := func(hour float64) metav1.MicroTime {
		return usage.Time(year.Add(time.Duration(hour * float64(time.Hour))))
	}
	use := v1alpha1.HostUse{Machine: v1alpha1.MachineReference{Namespace: tenant, Name: "m"}, TenantCluster: tenant,
		NodeType: "type-" + tenant, Cost: ptr.To(int64(10)), Start: timeAt(from)}
	if to > 0 {
		use.End = ptr.To(timeAt(to))
	}
	return use
}

func recorded(now float64, records ...v1alpha1.HostUsage) *Fleet {
	s := NewSnapshot(metav1.NewTime(year.Add(time.Duration(now * float64(time.Hour)))))
	s.Management.HostUsages = records
	return New(s)
}

func TestReport(t *testing.T) {
	removed := recordOf("c", useBy("red", 50, 60))
	removed.Spec.RemovedUntil = ptr.To(usage.Time(year.Add(40 * time.Hour)))
	withoutCost := useBy("red", 5, 6)
	withoutCost.Cost = nil
	alone := useBy("lab", 1, 3)
	alone.TenantCluster = ""
	folded := recordOf("a", useBy("red", 5, 6))
	folded.Spec.Folded = []v1alpha1.FoldedUses{{Namespace: "red", TenantCluster: "red", NodeType: "type-red", Count: 7,
		Start: usage.Time(year.Add(time.Hour)), End: usage.Time(year.Add(5 * time.Hour)), Microseconds: (2 * time.Hour).Microseconds(),
		Cost: ptr.To(resource.MustParse("20"))}}
	unpriced := *folded.DeepCopy()
	unpriced.Spec.Folded[0].Cost = nil
	moved := recordOf("a", useBy("red", 5, 6))
	moved.Spec.Uses[0].Claimed = ptr.To(usage.Time(year))
	singleHost := func(uses ...v1alpha1.HostUse) []v1alpha1.HostUsage {
		return []v1alpha1.HostUsage{recordOf("a", uses...)}
	}
	for name, tc := range map[string]struct {
		reason             string
		records            []v1alpha1.HostUsage
		from, to           int
		groupBy, namespace string
		want, notes        string
	}{
		"Whole": {"all of it", singleHost(useBy("red", 1, 3), useBy("blue", 3, 8)), 0, 100, "tenant", "",
			"blue/blue 1/1 5h 50, red/red 1/1 2h 20",
			"began at 2026-01-01T01"},
		"HalfOpen": {"what begins at the end is not in it", singleHost(useBy("red", 1, 3), useBy("blue", 3, 8)), 1, 3, "tenant", "",
			"red/red 1/1 2h 20", ""},
		"Part":  {"only what is in the period", singleHost(useBy("red", 1, 30)), 10, 20, "tenant", "", "red/red 1/1 10h 100", ""},
		"Lasts": {"until now, which is hour 100", singleHost(useBy("red", 90, 0)), 95, 300, "tenant", "", "red/red 1/1 5h 50", ""},
		"Servers": {"a server counts once", append(singleHost(useBy("red", 1, 2), useBy("red", 3, 4)), recordOf("b", useBy("red", 1, 2))),
			1, 9,
			"tenant", "", "red/red 3/2 3h 30", ""},
		"Type": {"by NodeType", singleHost(useBy("red", 1, 2), useBy("blue", 3, 5)), 1, 9, "type", "",
			"type-blue 1/1 2h 20, type-red 1/1 1h 10", ""},
		"Namespace": {"of one namespace", singleHost(useBy("red", 1, 2), useBy("blue", 3, 5)), 1, 9, "tenant", "blue",
			"blue/blue 1/1 2h 20", ""},
		"NoTenant": {"a Machine of no TenantCluster", singleHost(alone), 1, 3, "tenant", "", " 1/1 2h 20", ""},
		"Removed": {"uses were removed", []v1alpha1.HostUsage{removed}, 30, 70, "tenant", "", "red/red 1/1 10h 100",
			"ended at 2026-01-02T16"},
		"Before": {"they were removed, but of another time", []v1alpha1.HostUsage{removed}, 50, 70, "tenant", "",
			"red/red 1/1 10h 100", ""},
		"Nothing": {"there is no record", nil, 0, 10, "tenant", "", "", "no use of a server is recorded"},
		"NoCost": {"nothing is known of its cost", singleHost(withoutCost), 5, 9, "tenant", "", "red/red 1/1 1h 0",
			"the cost is not recorded"},
		"Folded": {"the sum counts with the others", []v1alpha1.HostUsage{folded}, 1, 9, "tenant", "", "red/red 8/1 3h 30", ""},
		"FoldedPart": {"how much of it is in the period is not known", []v1alpha1.HostUsage{folded}, 2, 5, "tenant", "",
			"red/red 7/1 1.5h 15", "its part of them (7 uses) is an estimate"},
		"FoldedElsewhere": {"the period has nothing of it", []v1alpha1.HostUsage{folded}, 5, 9, "tenant", "", "red/red 1/1 1h 10", ""},
		"FoldedOthers":    {"they are of another namespace", []v1alpha1.HostUsage{folded}, 1, 9, "type", "blue", "", ""},
		"FoldedNoCost": {"nothing is known of its cost", []v1alpha1.HostUsage{unpriced}, 1, 5, "type", "", "type-red 7/1 2h 0",
			"the cost is not recorded of uses (7)"},
		"SetBack": {"the clock was set", []v1alpha1.HostUsage{moved}, 5, 9, "tenant", "", "red/red 1/1 1h 10",
			"the clock of the manager was set back"},
	} {
		t.Run(name, func(t *testing.T) {
			timeAt := func(hour int) time.Time { return year.Add(time.Duration(hour) * time.Hour) }
			report := recorded(100, tc.records...).Report(timeAt(tc.from), timeAt(tc.to), tc.groupBy, tc.namespace)
			var rows []string
			for _, row := range report.Rows {
				rows = append(rows, fmt.Sprintf("%s %d/%d %vh %v", row.Tenant+row.NodeType, row.Uses, row.Servers, row.Hours, row.Cost))
			}
			if got := strings.Join(rows, ", "); got != tc.want {
				t.Errorf("%s: the report is %q, want %q", tc.reason, got, tc.want)
			}
			if notes := strings.Join(report.Notes, "; "); !strings.Contains(notes, tc.notes) || (notes == "") != (tc.notes == "") {
				t.Errorf("%s: it notes %q, want %q", tc.reason, notes, tc.notes)
			}
		})
	}
}

// TestReportsOfPeriodsSum: reports of periods that meet sum to that of the whole, by tenant and by type, and the total of a report is
// what the servers were used for.
func TestReportsOfPeriodsSum(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		var records []v1alpha1.HostUsage
		used := 0.0
		for server := range 1 + random.IntN(8) {
			record, hour := recordOf(fmt.Sprint("server-", server)), 0.0
			for hour < 500 {
				start := hour + float64(random.IntN(90))/4
				end := start + float64(1+random.IntN(200))/4
				record.Spec.Uses = append(record.Spec.Uses, useBy([]string{"red", "blue", "green"}[random.IntN(3)], start, end))
				used, hour = used+end-start, end
			}
			records = append(records, record)
		}
		fleet := recorded(1000, records...)
		for _, groupBy := range UsageBy {
			sum, cut := 0.0, 0
			for cut < 900 {
				next := cut + 1 + random.IntN(300)
				sum += fleet.Report(year.Add(time.Duration(cut)*time.Hour), year.Add(time.Duration(next)*time.Hour), groupBy, "").Total.Hours
				cut = next
			}
			report, rows, cost := fleet.Report(year, year.Add(time.Duration(cut)*time.Hour), groupBy, ""), 0.0, 0.0
			for _, row := range report.Rows {
				rows, cost = rows+row.Hours, cost+row.Cost
			}
			for what, hours := range map[string]float64{"periods": sum, "rows": rows, "cost": cost / 10, "total": report.Total.Hours} {
				if math.Abs(hours-used) > 1e-6 {
					t.Fatalf("fleet %d by %s: %s sum to %v h, and the servers were used for %v h", seed, groupBy, what, hours, used)
				}
			}
		}
	}
}

func TestHistory(t *testing.T) {
	fleet := recorded(100, recordOf("gone", useBy("red", 1, 3), useBy("blue", 4, 0)))
	fleet.snapshot.Management.Hosts = append(fleet.snapshot.Management.Hosts, *env.AvailableHost("metal3", "new", nil))
	for name, tc := range map[string]struct {
		reason, host, want, err string
	}{
		"Gone":    {"the record outlives the host", "gone", "red/red until 03:00, blue/blue", ""},
		"Named":   {"with its namespace", "metal3/gone", "red/red until 03:00, blue/blue", ""},
		"Unused":  {"no Machine has had it", "new", "", ""},
		"Unknown": {"there is neither", "typo", "", `host "typo" was not found`},
	} {
		uses, err := fleet.History(tc.host)
		var got []string
		for _, use := range uses {
			text := use.Tenant
			if use.End != nil {
				text += use.End.Format(" until 15:04")
			}
			got = append(got, text)
		}
		if (err != nil) != (tc.err != "") || err != nil && err.Error() != tc.err || strings.Join(got, ", ") != tc.want {
			t.Errorf("%s: %s: %q, %v", name, tc.reason, got, err)
		}
	}
}

// TestReadHistory: it is of the host of that namespace, and a right that is missing is named.
func TestReadHistory(t *testing.T) {
	mine, other := recordOf("a", useBy("red", 1, 2)), recordOf("a", useBy("blue", 1, 2))
	other.Namespace = "elsewhere"
	forbidden := false
	cluster := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if forbidden {
				return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.Group, Resource: "hostusages"}, "", nil)
			}
			list.(*v1alpha1.HostUsageList).Items = []v1alpha1.HostUsage{other, mine}
			return nil
		},
	})
	uses, err := ReadHistory(t.Context(), cluster, "metal3/a")
	if err != nil || len(uses) != 1 || uses[0].Tenant != "red/red" {
		t.Errorf("%+v, %v", uses, err)
	}
	if uses, err := ReadHistory(t.Context(), cluster, "metal3/b"); err != nil || uses != nil {
		t.Errorf("of a host without a record: %+v, %v", uses, err)
	}
	forbidden = true
	if _, err := ReadHistory(t.Context(), cluster, "metal3/a"); err == nil || !strings.Contains(err.Error(),
		`resources ["hostusages"], verbs [list]`) {
		t.Errorf("without the right: %v", err)
	}
}

// TestReadUsage: of one host, no other record is asked for.
func TestReadUsage(t *testing.T) {
	for host, want := range map[string]string{"": "", "server-01": "metadata.name=server-01",
		"metal3/server-01": "metadata.name=server-01"} {
		asked := ""
		cluster := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).Build(), interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) error {
				all := &client.ListOptions{}
				all.ApplyOptions(options)
				if all.FieldSelector != nil {
					asked = all.FieldSelector.String()
				}
				return nil
			},
		})
		if err := NewSnapshot(metav1.Now()).ReadUsage(t.Context(), cluster, host); err != nil || asked != want {
			t.Errorf("host %q: it asks for %q, %v; want %q", host, asked, err, want)
		}
	}
}
