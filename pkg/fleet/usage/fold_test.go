// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const day = 24 * time.Hour

// counted is what a use is counted for.
type counted struct{ namespace, tenantCluster, nodeType string }

// sums are those of a period.
type sums struct {
	count    int64
	duration time.Duration
	cost     float64
}

// used sums up what a record says of a period. It fails the test if folded uses are partly in the period.
func used(t *testing.T, record v1alpha1.HostUsageSpec, from, to time.Time) map[counted]sums {
	t.Helper()
	all := map[counted]sums{}
	for i := range record.Uses {
		use := &record.Uses[i]
		if lasted := Lasted(use, from, to, to); lasted > 0 {
			user := counted{use.Machine.Namespace, use.TenantCluster, use.NodeType}
			sum := all[user]
			all[user] = sums{sum.count + 1, sum.duration + lasted, sum.cost + float64(ptr.Deref(use.Cost, 0))*lasted.Hours()}
		}
	}
	for i := range record.Folded {
		folded := &record.Folded[i]
		switch FoldedWithin(folded, from, to) {
		case 0:
		case 1:
			user := counted{folded.Namespace, folded.TenantCluster, folded.NodeType}
			sum := all[user]
			if folded.Cost != nil {
				sum.cost += folded.Cost.AsApproximateFloat64()
			}
			all[user] = sums{sum.count + folded.Count, sum.duration + folded.Duration(), sum.cost}
		default:
			t.Fatalf("%+v is partly in the period from %s to %s", folded, from, to)
		}
	}
	return all
}

// tenantsUse is a history of one server: who had it next, for how long, and how long it is idle before.
type tenantsUse func(random *rand.Rand) (user counted, idle, length time.Duration)

// playFolded plays a history through Next, as the manager does, and returns the record, and all uses as they were.
func playFolded(
	random *rand.Rand, history tenantsUse, until time.Duration, name string,
) (record, all v1alpha1.HostUsageSpec, now time.Time) {
	now = begin2026.Add(time.Duration(random.IntN(86400)) * time.Second)
	for n := 0; now.Sub(begin2026) < until; n++ {
		user, idle, length := history(random)
		now = now.Add(idle)
		use := v1alpha1.HostUse{HostUID: "0e4d2a52-7ab4-4f8c-9a52-3f6e5f7a2b10", Start: Time(now), TenantCluster: user.tenantCluster,
			NodeType: user.nodeType, Machine: v1alpha1.MachineReference{Namespace: user.namespace, Name: name,
				UID: types.UID(fmt.Sprintf("0e4d2a52-7ab4-4f8c-9a52-%012d", n))}}
		if random.IntN(10) > 0 {
			use.Cost = ptr.To(int64(82496 + random.IntN(100)))
		}
		now = now.Add(length)
		record = Next(record, Observation{At: now, Claim: &use, Ending: true}, ever)
		use.End = ptr.To(Time(now))
		all.Uses = append(all.Uses, use)
	}
	return record, all, now
}

// TestFoldedSums: whatever tenants do with a server, the sums of each tenant and type are those of its uses, for each period that begins
// and ends with a day, or with a month if the record has become too long for days. Nothing is removed, and the record is short.
func TestFoldedSums(t *testing.T) {
	tenants := func(tenants, nodeTypes, length int) func(*rand.Rand) counted {
		return func(random *rand.Rand) counted {
			pad := func(name string) string { return name + strings.Repeat("x", max(0, length-len(name))) }
			user := counted{namespace: fmt.Sprint("tenant-", random.IntN(tenants)), nodeType: pad(fmt.Sprint("type-", random.IntN(nodeTypes)))}
			if random.IntN(8) > 0 {
				user.tenantCluster = pad("cluster")
			}
			return user
		}
	}
	seconds := func(random *rand.Rand, most int) time.Duration { return time.Duration(random.IntN(most)) * time.Second }
	for name, tc := range map[string]struct {
		reason string
		user   func(*rand.Rand) counted
		most   int // seconds of a use
		days   int
		name   string
		period func(time.Time) time.Time
		folded bool
	}{
		"Rare":   {"each use is told", tenants(4, 2, 0), 14 * 86400, 90, "default-x7f2k", periods[0], false},
		"Usual":  {"some uses a day", tenants(1, 1, 0), 4 * 3600, 18, "default-x7f2k", periods[0], true},
		"Busy":   {"much is folded by day", tenants(1, 1, 0), 3600, 10, "default-x7f2k", periods[0], true},
		"Churn":  {"claims that are given up at once", tenants(2, 1, 0), 60, 2, strings.Repeat("n", 63), periods[0], true},
		"Mixed":  {"few of each on a day, so that months are folded", tenants(3, 2, 0), 6 * 3600, 90, "default-x7f2k", periods[1], true},
		"Longer": {"names as long as they may be", tenants(1, 1, 253), 2 * 3600, 60, strings.Repeat("n", 253), periods[1], true},
		"Years":  {"a retention of years", tenants(3, 2, 0), 2 * 86400, 3 * 365, "default-x7f2k", periods[2], true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2) {
				random := rand.New(rand.NewPCG(seed, 7))
				record, all, now := playFolded(random, func(random *rand.Rand) (counted, time.Duration, time.Duration) {
					return tc.user(random), seconds(random, 1+tc.most/4), time.Second + seconds(random, tc.most)
				}, time.Duration(tc.days)*day, tc.name)
				text, err := json.Marshal(record)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d uses: %d and %d folded, %d bytes", len(all.Uses), len(record.Uses), len(record.Folded), len(text))
				if len(text) > MaxBytes+1024 || (len(record.Folded) > 0) != tc.folded || record.RemovedUntil != nil {
					t.Fatalf("%s: %d bytes, %d folded, removed until %v", tc.reason, len(text), len(record.Folded), record.RemovedUntil)
				}
				cuts := []time.Time{tc.period(begin2026)}
				for cut := begin2026; cut.Before(now); {
					cut = cut.Add(time.Duration(1+random.IntN(tc.days)) * day)
					cuts = append(cuts, tc.period(cut))
				}
				cuts = append(cuts, periods[2](now.AddDate(1, 0, 0)))
				for i := range cuts[1:] {
					check := func(from, to time.Time) {
						got, want := used(t, record, from, to), used(t, all, from, to)
						for user, sum := range want {
							if got := got[user]; got.count != sum.count || got.duration != sum.duration || math.Abs(got.cost-sum.cost) > 1e-3 {
								t.Fatalf("%s: from %s to %s the record has %+v of %+v, want %+v", tc.reason, from, to, got, user, sum)
							}
						}
						if len(got) != len(want) {
							t.Fatalf("%s: from %s to %s the record has %v, want %v", tc.reason, from, to, got, want)
						}
					}
					check(cuts[i], cuts[i+1])
					check(cuts[0], cuts[i+1])
				}
			}
		})
	}
}

// TestNobodyFoldsTheUsesOfOthers: a tenant claims a server thousands of times. The uses of the others are told one by one, as before.
func TestNobodyFoldsTheUsesOfOthers(t *testing.T) {
	for name, length := range map[string]time.Duration{"Short": ShortUse - time.Second, "Longer": ShortUse + time.Second} {
		t.Run(name, func(t *testing.T) {
			record, now := v1alpha1.HostUsageSpec{}, begin2026
			use := func(namespace string, n int, length time.Duration) {
				use := v1alpha1.HostUse{Start: Time(now), TenantCluster: namespace, NodeType: "gpu", Machine: v1alpha1.MachineReference{
					Namespace: namespace, Name: strings.Repeat("m", 57), UID: types.UID(fmt.Sprintf("0e4d2a52-7ab4-4f8c-9a52-%012d", n))}}
				now = now.Add(length)
				record = Next(record, Observation{At: now, Claim: &use, Ending: true}, 90*day)
			}
			const billed = 20
			for n := range billed {
				use("billed", n, 30*time.Minute)
			}
			largest := 0
			for n := range 2000 {
				use("greedy", billed+n, length)
				text, _ := json.Marshal(record)
				largest = max(largest, len(text))
			}
			told := 0
			for _, use := range record.Uses {
				if use.Machine.Namespace == "billed" {
					told++
				}
			}
			t.Logf("%d uses, %d folded, at most %d bytes", len(record.Uses), len(record.Folded), largest)
			if length < ShortUse && largest > 8<<10 {
				t.Errorf("short uses take %d bytes", largest)
			}
			if told != billed || record.RemovedUntil != nil || largest > MaxBytes+1024 {
				t.Errorf("%d of %d uses are told, removed until %v, at most %d bytes", told, billed, record.RemovedUntil, largest)
			}
			sum := used(t, record, begin2026, begin2026.AddDate(0, 0, 30))[counted{"greedy", "greedy", "gpu"}]
			if sum.count != 2000 || sum.duration != 2000*length {
				t.Errorf("of the tenant with many uses the record has %+v", sum)
			}
		})
	}
}

// TestLongRecordIsFolded: a record of before there was folding, as long as it could be.
func TestLongRecordIsFolded(t *testing.T) {
	record := v1alpha1.HostUsageSpec{}
	for n := range 3500 {
		start := begin2026.Add(time.Duration(n) * 37 * time.Minute)
		record.Uses = append(record.Uses, v1alpha1.HostUse{Start: Time(start), End: ptr.To(Time(start.Add(30 * time.Minute))), NodeType: "gpu",
			Machine: v1alpha1.MachineReference{Namespace: fmt.Sprint("tenant-", n%3), Name: strings.Repeat("m", 57), UID: types.UID(fmt.Sprint(n))}})
	}
	want := used(t, record, begin2026, begin2026.AddDate(1, 0, 0))
	after := Next(record, Observation{At: begin2026.AddDate(0, 4, 0)}, ever)
	if got := used(t, after, begin2026, begin2026.AddDate(1, 0, 0)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the record has %v, want %v", got, want)
	}
	text, _ := json.Marshal(after)
	if t.Logf("%d uses and %d folded in %d bytes", len(after.Uses), len(after.Folded), len(text)); len(text) > MaxBytes+1024 {
		t.Errorf("it has %d bytes", len(text))
	}
}

// TestFoldedWithin: what is in a period and what is not is exact; what is partly in it is in proportion.
func TestFoldedWithin(t *testing.T) {
	timeAt := func(hour float64) time.Time { return begin2026.Add(time.Duration(hour * float64(time.Hour))) }
	for name, tc := range map[string]struct {
		reason               string
		start, end, from, to float64
		want                 float64
	}{
		"Inside":  {"it ends with the period", 2, 4, 2, 4, 1},
		"Before":  {"it ends where the period begins", 1, 2, 2, 4, 0},
		"After":   {"it begins where the period ends", 4, 5, 2, 4, 0},
		"Begins":  {"the period begins in it", 1, 5, 2, 9, 0.75},
		"Ends":    {"the period ends in it", 1, 5, 0, 2, 0.25},
		"Both":    {"the period is in it", 0, 8, 2, 4, 0.25},
		"Instant": {"uses without a length", 3, 3, 2, 4, 1},
		"Earlier": {"uses without a length, before the period", 1, 1, 2, 4, 0},
	} {
		folded := &v1alpha1.FoldedUses{Start: Time(timeAt(tc.start)), End: Time(timeAt(tc.end))}
		if got := FoldedWithin(folded, timeAt(tc.from), timeAt(tc.to)); got != tc.want {
			t.Errorf("%s: %s: got %v, want %v", name, tc.reason, got, tc.want)
		}
	}
}
