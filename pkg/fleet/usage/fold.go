// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// MaxBytes is the length of a record as JSON beyond which more of its uses are folded. Each server has one record
	// and each claim can write it twice, so this bounds what a fleet keeps in etcd and what a claim adds
	// (BenchmarkStorage). With usual names, it holds some 50 single uses, or 70 sums.
	MaxBytes = 16 << 10
	// ShortUse is the length below which uses are folded at once. No server can be installed that fast.
	ShortUse = time.Minute
)

// periods return the beginning of the day, month or year of a time. Uses are folded within a period, shorter periods
// first, so the sums of a report from period to period are exact. A use in two periods is folded in a longer one.
var periods = []func(time.Time) time.Time{
	func(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC) },
	func(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC) },
	func(t time.Time) time.Time { return time.Date(t.Year(), time.January, 1, 0, 0, 0, 0, time.UTC) },
}

// entry is a single use, or the sum of folded uses.
type entry struct {
	v1alpha1.FoldedUses
	// use is nil for a folded entry.
	use   *v1alpha1.HostUse
	bytes int
}

// group identifies the entries that can be folded into one.
type group struct {
	namespace, tenantCluster, nodeType string
	priced                             bool
	period                             time.Time
}

// in returns the group of an entry for a period, and reports false if the entry spans two periods.
func (e *entry) in(begin func(time.Time) time.Time) (group, bool) {
	period, last := begin(e.Start.UTC()), e.End.UTC()
	if last.After(e.Start.Time) {
		last = last.Add(-time.Microsecond) // the end is not part of a use
	}
	return group{e.Namespace, e.TenantCluster, e.NodeType, e.Cost != nil, period}, begin(last).Equal(period)
}

// fold adds up the short uses, and then others until the record fits MaxBytes. It starts with the namespace that takes
// most of the record, and there with the oldest uses. So a tenant with many uses does not get the uses of another
// tenant folded. The number of entries that cannot be folded depends only on the tenants, types and years, whatever the
// tenants do. The last use is never folded, because its claim may stand.
func fold(record *v1alpha1.HostUsageSpec) {
	if len(record.Uses) == 0 {
		return
	}
	last := record.Uses[len(record.Uses)-1]
	entries := make([]entry, 0, len(record.Uses)+len(record.Folded))
	for _, folded := range record.Folded {
		entries = append(entries, entry{FoldedUses: folded, bytes: sizeOf(folded)})
	}
	for i := range record.Uses[:len(record.Uses)-1] {
		entries = append(entries, entryOf(&record.Uses[i])) // it has ended, or a person has edited the record
	}
	before := len(entries)
	for _, short := range slices.Clone(entries) {
		if key, within := short.in(periods[0]); within && short.use != nil && short.Duration() < ShortUse {
			entries = merge(entries, periods[0], key, func(e *entry) bool { return e.use == nil || e.Duration() < ShortUse })
		}
	}
	for sum(entries)+sizeOf(last) > MaxBytes {
		begin, key, found := next(entries)
		if !found {
			break
		}
		entries = merge(entries, begin, key, func(*entry) bool { return true })
	}
	if len(entries) == before {
		return
	}
	record.Uses, record.Folded = nil, nil
	for i := range entries {
		if entries[i].use != nil {
			record.Uses = append(record.Uses, *entries[i].use)
		} else {
			record.Folded = append(record.Folded, entries[i].FoldedUses)
		}
	}
	record.Uses = append(record.Uses, last)
	slices.SortStableFunc(record.Folded, func(a, b v1alpha1.FoldedUses) int { return a.End.Compare(b.End.Time) })
}

// next returns the group to fold next.
func next(entries []entry) (begin func(time.Time) time.Time, key group, found bool) {
	sizes := map[string]int{}
	for i := range entries {
		sizes[entries[i].Namespace] += entries[i].bytes
	}
	for _, namespace := range slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	}) {
		for _, begin := range periods {
			counts := map[group]int{}
			for i := range entries {
				candidate, within := entries[i].in(begin)
				if !within || candidate.namespace != namespace {
					continue
				}
				if counts[candidate]++; counts[candidate] == 2 && (!found || candidate.period.Before(key.period)) {
					key, found = candidate, true
				}
			}
			if found {
				return begin, key, true
			}
		}
	}
	return nil, group{}, false
}

// merge folds the entries of a group into one, if there are several.
func merge(entries []entry, begin func(time.Time) time.Time, key group, which func(*entry) bool) []entry {
	var merged *entry
	count := 0
	rest := make([]entry, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		if own, within := e.in(begin); !within || own != key || !which(e) {
			rest = append(rest, *e)
			continue
		}
		if count++; merged == nil {
			merged = e
			continue
		}
		merged = &entry{FoldedUses: add(merged.FoldedUses, e.FoldedUses)}
	}
	if count < 2 {
		return entries
	}
	merged.bytes = sizeOf(merged.FoldedUses)
	return append(rest, *merged)
}

// add returns the sum of two entries of a group.
func add(a, b v1alpha1.FoldedUses) v1alpha1.FoldedUses {
	a.Count, a.Microseconds = a.Count+b.Count, a.Microseconds+b.Microseconds
	if b.Start.Before(&a.Start) {
		a.Start = b.Start
	}
	if a.End.Before(&b.End) {
		a.End = b.End
	}
	if a.Cost != nil {
		cost := a.Cost.DeepCopy()
		cost.Add(*b.Cost)
		a.Cost = &cost
	}
	return a
}

func entryOf(use *v1alpha1.HostUse) entry {
	e := entry{use: use, bytes: sizeOf(*use), FoldedUses: v1alpha1.FoldedUses{
		Namespace: use.Machine.Namespace, TenantCluster: use.TenantCluster, NodeType: use.NodeType,
		Count: 1, Start: use.Start, End: ptr.Deref(use.End, use.Start),
	}}
	e.Microseconds = e.End.Sub(e.Start.Time).Microseconds()
	if use.Cost != nil {
		e.Cost = ptr.To(resource.MustParse(strconv.FormatFloat(float64(*use.Cost)*e.Duration().Hours(), 'f', 6, 64)))
	}
	return e
}

func sum(entries []entry) (bytes int) {
	for i := range entries {
		bytes += entries[i].bytes
	}
	return bytes
}

// Bytes returns the length of a record as JSON.
func Bytes(record v1alpha1.HostUsageSpec) int { return sizeOf(record) }

// sizeOf returns the length of an entry in the record, including its comma.
func sizeOf(entry any) int {
	text, _ := json.Marshal(entry) // cannot fail for these fields
	return len(text) + 1
}
