// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
)

// ReadUsage adds to the snapshot the record of who had which server when. The name host may have its namespace in
// front; an empty name means all hosts. Read leaves the record out: in a large fleet it is far larger than everything
// else.
func (s *Snapshot) ReadUsage(ctx context.Context, management client.Reader, host string) error {
	var scope Scope
	if namespace, name, qualified := strings.Cut(host, "/"); qualified {
		scope.Hosts, host = namespace, name
	}
	if host != "" {
		management = named{management, host}
	}
	return s.read(ctx, kindOf(managementCluster, v1alpha1.Group, "hostusages",
		func() client.ObjectList { return &v1alpha1.HostUsageList{} },
		func(s *Snapshot) *[]v1alpha1.HostUsage { return &s.Management.HostUsages }, nothingElse[v1alpha1.HostUsage]).listIn(hosts),
		management, scope)
}

// ReadHistory returns who had a host and when, the first use first. The host has its namespace in front. The error is
// one sentence.
func ReadHistory(ctx context.Context, management client.Reader, host string) ([]Use, error) {
	s := NewSnapshot(metav1.Time{})
	if err := s.ReadUsage(ctx, management, host); err != nil {
		return nil, err
	}
	if len(s.Missing) > 0 {
		return nil, errors.New(s.Missing[0].String())
	}
	s.Management.HostUsages = slices.DeleteFunc(s.Management.HostUsages,
		func(record v1alpha1.HostUsage) bool { return nameOf(&record) != host })
	if len(s.Management.HostUsages) == 0 {
		return nil, nil
	}
	return usesOf(&s.Management.HostUsages[0]), nil
}

// named is a reader that lists only objects of one name.
type named struct {
	client.Reader
	name string
}

// List implements client.Reader.
func (n named) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return n.Reader.List(ctx, list, append(options, client.MatchingFields{metav1.ObjectNameField: n.name})...)
}

// Use is one claim of a Machine on a server, from the claim until the return of the server.
type Use struct {
	// Server is the namespace and name of the host.
	Server string `json:"server"`
	// HostUID is the UID of the host at that time: another host of the same name may be other hardware.
	HostUID types.UID `json:"hostUID,omitempty"`
	// Tenant is the namespace and name of the TenantCluster that was charged for the Machine; empty for none.
	Tenant string `json:"tenant,omitempty"`
	// Machine is the namespace and name of the Machine; for several uses, only the namespace.
	Machine  string `json:"machine"`
	NodeType string `json:"nodeType,omitempty"`
	// Cost is the cost of the NodeType when it was chosen.
	Cost  *int64      `json:"cost,omitempty"`
	Start metav1.Time `json:"start"`
	// End is nil while the use lasts.
	End *metav1.Time `json:"end,omitempty"`
	// Folded is how many uses this entry sums up, and Hours their total time; 0 for a single use.
	Folded int64   `json:"folded,omitempty"`
	Hours  float64 `json:"hours,omitempty"`
}

func useOf(record *v1alpha1.HostUsage, use *v1alpha1.HostUse) Use {
	result := Use{
		Server: record.Namespace + "/" + record.Name, HostUID: use.HostUID, Machine: use.Machine.Namespace + "/" + use.Machine.Name,
		NodeType: use.NodeType, Cost: use.Cost, Start: metav1.NewTime(use.Start.Time),
	}
	if use.TenantCluster != "" {
		result.Tenant = use.Machine.Namespace + "/" + use.TenantCluster
	}
	if use.End != nil {
		result.End = &metav1.Time{Time: use.End.Time}
	}
	return result
}

// History returns who had a host and when, the first use first. The name may have its namespace in front, and the
// host need not exist any more. The result is empty if there is no record, or ReadUsage has not read it.
func (f *Fleet) History(host string) ([]Use, error) {
	records := f.snapshot.Management.HostUsages
	record, err := find("host", host, records)
	if record == nil {
		if _, unknown := f.Host(host); unknown == nil {
			return nil, nil
		}
		return nil, err
	}
	return usesOf(record), nil
}

func usesOf(record *v1alpha1.HostUsage) []Use {
	uses := make([]Use, 0, len(record.Spec.Uses)+len(record.Spec.Folded))
	for i := range record.Spec.Folded {
		uses = append(uses, foldedOf(record, &record.Spec.Folded[i]))
	}
	for i := range record.Spec.Uses {
		uses = append(uses, useOf(record, &record.Spec.Uses[i]))
	}
	slices.SortStableFunc(uses, func(a, b Use) int { return a.Start.Compare(b.Start.Time) })
	return uses
}

func foldedOf(record *v1alpha1.HostUsage, folded *v1alpha1.FoldedUses) Use {
	use := useOf(record, &v1alpha1.HostUse{Machine: v1alpha1.MachineReference{Namespace: folded.Namespace}, NodeType: folded.NodeType,
		TenantCluster: folded.TenantCluster, Start: folded.Start, End: &folded.End})
	use.Machine, use.Folded, use.Hours = folded.Namespace, folded.Count, folded.Duration().Hours()
	return use
}

// UsageBy are the values that a report can group by.
var UsageBy = []string{"tenant", "type"}

// UsageRow is how much a tenant, or all tenants of a NodeType, used the servers.
type UsageRow struct {
	From metav1.Time `json:"from"`
	To   metav1.Time `json:"to"`
	// Tenant is the namespace and name of a TenantCluster; empty in a report by type, and for Machines of no
	// TenantCluster.
	Tenant   string `json:"tenant,omitempty"`
	NodeType string `json:"nodeType,omitempty"`
	// Uses is how many claims overlap the period, and Servers how many hosts they were on.
	Uses    int `json:"uses"`
	Servers int `json:"servers"`
	// Hours is the sum over all servers.
	Hours float64 `json:"hours"`
	// Cost is the sum of the hours, each times the cost of its NodeType when it was chosen.
	Cost float64 `json:"cost"`
}

// Usage is the use of the servers in a period.
type Usage struct {
	Rows []UsageRow
	// Total is the sum of all rows.
	Total UsageRow
	// Notes say what the record lacks.
	Notes []string
}

// Report sums up the use of the servers in [from, to), grouped by a value of UsageBy. It counts the Machines of a
// namespace, or of all if that is empty. A use that has not ended counts until now.
func (f *Fleet) Report(from, to time.Time, groupBy, namespace string) Usage {
	report := Usage{Rows: []UsageRow{}, Total: UsageRow{From: metav1.NewTime(from), To: metav1.NewTime(to)}}
	rows, servers := map[string]*UsageRow{}, map[string]sets.Set[string]{}
	var begins, removed time.Time
	var withoutCost, estimated, moved int64
	total := sets.New[string]()
	count := func(entry Use, uses int64, lasted time.Duration, cost *float64) {
		key, row := entry.Tenant, UsageRow{From: report.Total.From, To: report.Total.To, Tenant: entry.Tenant}
		if groupBy == "type" {
			key, row.Tenant, row.NodeType = entry.NodeType, "", entry.NodeType
		}
		if rows[key] == nil {
			rows[key], servers[key] = &row, sets.New[string]()
		}
		if cost == nil {
			withoutCost += uses
		}
		for _, sum := range []*UsageRow{rows[key], &report.Total} {
			sum.Uses += int(uses)
			sum.Hours += lasted.Hours()
			sum.Cost += ptr.Deref(cost, 0)
		}
		servers[key].Insert(entry.Server)
		total.Insert(entry.Server)
	}
	for i := range f.snapshot.Management.HostUsages {
		record := &f.snapshot.Management.HostUsages[i]
		if until := record.Spec.RemovedUntil; until != nil && until.After(from) {
			removed = latest(removed, until.Time)
		}
		for n := range record.Spec.Uses {
			use := &record.Spec.Uses[n]
			if begins.IsZero() || use.Start.Time.Before(begins) {
				begins = use.Start.Time
			}
			lasted := usage.Lasted(use, from, to, f.Now())
			if lasted == 0 || namespace != "" && use.Machine.Namespace != namespace {
				continue
			}
			if use.Claimed != nil {
				moved++
			}
			var cost *float64
			if use.Cost != nil {
				cost = ptr.To(float64(*use.Cost) * lasted.Seconds() / 3600)
			}
			count(useOf(record, use), 1, lasted, cost)
		}
		for n := range record.Spec.Folded {
			folded := &record.Spec.Folded[n]
			if begins.IsZero() || folded.Start.Time.Before(begins) {
				begins = folded.Start.Time
			}
			part := usage.FoldedWithin(folded, from, to)
			if part == 0 || namespace != "" && folded.Namespace != namespace {
				continue
			}
			var cost *float64
			if folded.Cost != nil {
				cost = ptr.To(folded.Cost.AsApproximateFloat64() * part)
			}
			lasted := folded.Duration()
			if part < 1 {
				lasted = time.Duration(part * float64(lasted))
				estimated += folded.Count
			}
			count(foldedOf(record, folded), folded.Count, lasted, cost)
		}
	}
	for key, row := range rows {
		row.Servers = servers[key].Len()
		report.Rows = append(report.Rows, *row)
	}
	slices.SortFunc(report.Rows, func(a, b UsageRow) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.NodeType, b.NodeType))
	})
	report.Total.Servers = total.Len()
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case !removed.IsZero():
		report.Notes = append(report.Notes,
			fmt.Sprintf("uses that ended at %s or earlier have been removed from the record, and are not "+
				"counted: --usage-retention of the manager says how long they are kept", stamp(removed)))
	case begins.IsZero():
		report.Notes = append(report.Notes, "no use of a server is recorded")
	case begins.After(from):
		report.Notes = append(report.Notes, fmt.Sprintf("the first use that is recorded began at %s", stamp(begins)))
	}
	if estimated > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("of some days, months or years only the sums of the uses are recorded, and the period "+
			"begins or ends within one: its part of them (%d uses) is an estimate", estimated))
	}
	if moved > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("the clock of the manager was set back: some uses (%d) are recorded at the end of the "+
			"one before, with the length that they had", moved))
	}
	if withoutCost > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("the cost is not recorded of uses (%d), and is counted as 0", withoutCost))
	}
	return report
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pastUses returns the ended uses of a host, as steps.
func (f *Fleet) pastUses(host string) []Step {
	uses, err := f.History(host)
	if err != nil {
		return nil // of two hosts of this name, only one has been found
	}
	var steps []Step
	for _, use := range uses {
		if use.End == nil {
			continue
		}
		note := "Machine " + use.Machine
		if use.Folded > 0 {
			note = fmt.Sprintf("%d times, %s in all, by Machines of namespace %s", use.Folded,
				time.Duration(use.Hours*float64(time.Hour)).Round(time.Second), use.Machine)
		}
		if use.Tenant != "" {
			note += " of TenantCluster " + use.Tenant
		}
		if use.NodeType != "" {
			note += ", as NodeType " + use.NodeType
		}
		steps = append(steps, Step{Name: "was used", Start: use.Start, End: use.End, Note: note})
	}
	return steps
}
