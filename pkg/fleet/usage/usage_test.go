// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// ever is a retention that removes nothing.
	ever = 100 * 365 * 24 * time.Hour
	// histories is how many random histories are played.
	histories = 1000
)

var begin2026 = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// server is a host with its record, and what is true of them.
type server struct {
	*rand.Rand
	// time is the true time, and skew what the clock adds to it.
	time time.Time
	skew time.Duration
	// steps is true if the clock is set now and then.
	steps  bool
	host   *bmov1alpha1.BareMetalHost
	record v1alpha1.HostUsageSpec
	// had is how long each Machine had the server, with the time until its loss is seen, if that is taken by force.
	had map[types.UID]time.Duration
	// holder has the server, by what the manager has seen.
	holder types.UID
	// ended is a claim whose end is recorded, and which is not removed yet.
	ended bool
	// stale are claims that are no more.
	stale []v1alpha1.HostUse
	idle  time.Duration
}

func (s *server) now() time.Time { return s.time.Add(s.skew) }

func (s *server) pass() {
	d := time.Duration(s.IntN(7200)) * time.Second
	if s.holder == "" {
		s.idle += d
	} else {
		s.had[s.holder] += d
	}
	s.time = s.time.Add(d)
	if s.steps && s.IntN(5) == 0 {
		s.skew += time.Duration(s.IntN(14400)-7200) * time.Second
	}
}

func (s *server) see(ending bool) {
	s.record = Next(s.record, Observation{At: s.now(), Claim: ClaimOn(s.host), Ending: ending}, ever)
}

func (s *server) claim(n int) {
	s.host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: "acme",
		Name: fmt.Sprint("m-", n), UID: types.UID(fmt.Sprint("uid-", n))}
	claim := Claim{Machine: s.host.Spec.ConsumerRef.UID, Time: Time(s.now()), TenantCluster: "acme", Cost: ptr.To(int64(7))}
	s.host.Annotations = map[string]string{v1alpha1.NodeTypeAnnotationKey: "gpu", v1alpha1.ClaimAnnotationKey: claim.String()}
	s.holder, s.ended = s.host.Spec.ConsumerRef.UID, false
}

func (s *server) drop() {
	s.stale = append(s.stale, *ClaimOn(s.host))
	s.host.Spec.ConsumerRef, s.host.Annotations = nil, nil
}

// play is a history of one server: claims, releases that take two writes with anything between them, claims that are removed by
// force, hosts that are deleted and registered again, and managers that see things late, twice, or that are behind.
func play(seed uint64, steps bool) *server {
	s := &server{Rand: rand.New(rand.NewPCG(seed, 1)), time: begin2026, steps: steps, host: &bmov1alpha1.BareMetalHost{},
		had: map[types.UID]time.Duration{}}
	s.host.UID = "host-0"
	for n := range 40 {
		s.pass()
		claimed := s.host.Spec.ConsumerRef != nil
		switch action := s.IntN(10); {
		case !claimed && action < 6:
			s.claim(n)
		case claimed && action < 3: // the release: first its end
			s.see(true)
			s.holder, s.ended = "", true
		case claimed && s.ended:
			s.drop()
		case claimed && action == 3: // removed by hand. It is seen when it is seen
			s.see(false)
			s.drop()
			if s.IntN(2) == 0 { // or the server is claimed before
				s.claim(n)
			}
		case claimed && action == 4: // deleted by force, and registered again
			s.see(false)
			s.drop()
			s.host.UID = types.UID(fmt.Sprint("host-", n))
		case action == 5 && len(s.stale) > 0: // a manager that is behind ends a claim once more
			stale, last := &s.stale[s.IntN(len(s.stale))], s.record.Uses[len(s.record.Uses)-1]
			if indexOf(s.record.Uses, stale) < 0 {
				break // Record.End sees that the host has another claim
			}
			if last.End == nil && last.Machine.UID != s.holder {
				break // it would end at that time a claim that was removed by force before the next one, which is not seen yet
			}
			s.record = Next(s.record, Observation{At: s.now(), Claim: stale, Ending: true}, ever)
			if s.holder == stale.Machine.UID { // nothing has seen yet that it was removed by force
				s.holder = ""
			}
		default:
			s.see(false)
			if !claimed {
				s.holder = ""
			}
		}
	}
	s.pass()
	if s.see(s.host.Spec.ConsumerRef != nil); s.host.Spec.ConsumerRef != nil {
		s.drop()
	}
	return s
}

// TestHistoriesSumToServerTime: what the record says of each Machine is how long that had the server, and together with the time in
// which none had it, that is all the time there was.
func TestHistoriesSumToServerTime(t *testing.T) {
	uses := 0
	for seed := range uint64(histories) {
		s := play(seed, false)
		check(t, seed, s)
		got, total := map[types.UID]time.Duration{}, s.idle
		for _, use := range s.record.Uses {
			d := use.End.Sub(use.Start.Time)
			got[use.Machine.UID] += d
			total += d
		}
		folded := 0
		for _, uses := range s.record.Folded {
			total += uses.Duration()
			folded += int(uses.Count)
		}
		for machine, want := range s.had {
			if d, told := got[machine]; d != want && (told || folded == 0) {
				t.Fatalf("history %d: Machine %s had the server for %s, and the record says %s", seed, machine, want, got[machine])
			}
		}
		if want := s.time.Sub(begin2026); total != want || len(got)+folded != len(s.had) {
			t.Fatalf("history %d: uses and idle time of %d Machines sum to %s, want %d and %s", seed, len(got)+folded, total, len(s.had), want)
		}
		uses += len(got) + folded
		if folded > 0 {
			continue
		}
		// The sum over periods that meet is that over all of them.
		cuts, parts, whole := []time.Time{begin2026}, time.Duration(0), time.Duration(0)
		for cut := begin2026; cut.Before(s.time); cuts = append(cuts, cut) {
			cut = cut.Add(time.Duration(1+s.IntN(20000)) * time.Second)
		}
		for i := range s.record.Uses {
			whole += Lasted(&s.record.Uses[i], cuts[0], cuts[len(cuts)-1], s.time)
			for n := range len(cuts) - 1 {
				parts += Lasted(&s.record.Uses[i], cuts[n], cuts[n+1], s.time)
			}
		}
		if parts != whole || whole != total-s.idle {
			t.Fatalf("history %d: periods sum to %v, all of it is %v, and the uses are %v", seed, parts, whole, total-s.idle)
		}
	}
	t.Logf("%d histories with %d uses", histories, uses)
}

// TestClockIsSet: times are what the clock said, but uses never overlap, and none is lost or there twice.
func TestClockIsSet(t *testing.T) {
	moved := 0
	for seed := range uint64(histories) {
		s := play(seed, true)
		check(t, seed, s)
		for _, use := range s.record.Uses {
			if use.Claimed != nil {
				moved++
			}
		}
	}
	if t.Logf("%d histories, %d uses began before the end of the one before by the clock", histories, moved); moved == 0 {
		t.Error("the clock was never set back far enough")
	}
}

// check checks what holds in any case.
func check(t *testing.T, seed uint64, s *server) {
	t.Helper()
	seen := map[types.UID]bool{}
	for i, use := range s.record.Uses {
		if use.End == nil || use.End.Before(&use.Start) {
			t.Fatalf("history %d: use %d is from %s until %v", seed, i, use.Start, use.End)
		}
		if i > 0 && use.Start.Before(s.record.Uses[i-1].End) {
			t.Fatalf("history %d: use %d begins at %s, before the end %s of the one before", seed, i, use.Start, s.record.Uses[i-1].End)
		}
		if seen[use.Machine.UID] {
			t.Fatalf("history %d: the use of Machine %s is there twice", seed, use.Machine.UID)
		}
		seen[use.Machine.UID] = true
	}
	told := len(seen)
	for _, folded := range s.record.Folded {
		told += int(folded.Count)
	}
	if told != len(s.had) {
		t.Fatalf("history %d: the record has %d uses, want %d", seed, told, len(s.had))
	}
}

func TestNext(t *testing.T) {
	timeAt := func(hour int) time.Time { return begin2026.Add(time.Duration(hour) * time.Hour) }
	use := func(machine string, from, to int) v1alpha1.HostUse {
		use := v1alpha1.HostUse{Start: Time(timeAt(from)),
			Machine: v1alpha1.MachineReference{Namespace: "acme", Name: machine, UID: types.UID(machine)}}
		if to >= 0 {
			use.End = ptr.To(Time(timeAt(to)))
		}
		return use
	}
	without := use("old", 0, -1)
	without.Start.Time = time.Time{}
	for name, tc := range map[string]struct {
		reason string
		before []v1alpha1.HostUse
		seen   Observation
		keep   time.Duration
		want   string
		until  int
	}{
		"Begins": {"the start is that of the claim", nil, Observation{At: timeAt(5), Claim: ptr.To(use("a", 3, -1))}, ever, "a 3-", 0},
		"Twice": {"it is there", []v1alpha1.HostUse{use("a", 3, -1)}, Observation{At: timeAt(5), Claim: ptr.To(use("a", 3, -1))}, ever,
			"a 3-", 0},
		"Ends": {"a release", []v1alpha1.HostUse{use("a", 3, -1)}, Observation{timeAt(5), ptr.To(use("a", 3, -1)), true}, ever, "a 3-5", 0},
		"EndsNew": {"the manager died before it recorded the claim", nil,
			Observation{timeAt(5), ptr.To(use("a", 3, -1)), true}, ever, "a 3-5", 0},
		"EndStays": {"a release that was interrupted goes on later", []v1alpha1.HostUse{use("a", 3, 5)},
			Observation{timeAt(9), ptr.To(use("a", 3, -1)), true}, ever, "a 3-5", 0},
		"NotOpenedAgain": {"its claim stands until the second write", []v1alpha1.HostUse{use("a", 3, 5)},
			Observation{At: timeAt(9), Claim: ptr.To(use("a", 3, -1))}, ever, "a 3-5", 0},
		"SameAgain": {"a Machine claims the same server again", []v1alpha1.HostUse{use("a", 3, 5)},
			Observation{At: timeAt(9), Claim: ptr.To(use("a", 8, -1))}, ever, "a 3-5 a 8-", 0},
		"Gone": {"the host was deleted by force", []v1alpha1.HostUse{use("a", 3, -1)}, Observation{At: timeAt(6)}, ever, "a 3-6", 0},
		"Taken": {"its claim was overwritten by hand", []v1alpha1.HostUse{use("a", 3, -1)},
			Observation{At: timeAt(9), Claim: ptr.To(use("b", 7, -1))}, ever, "a 3-7 b 7-", 0},
		"Behind": {"another manager has released it, and it is claimed again", []v1alpha1.HostUse{use("a", 3, 5), use("b", 6, -1)},
			Observation{timeAt(9), ptr.To(use("a", 3, -1)), true}, ever, "a 3-5 b 6-", 0},
		"SetBack": {"no use begins before the end of the one before", []v1alpha1.HostUse{use("a", 3, 5)},
			Observation{At: timeAt(4), Claim: ptr.To(use("b", 4, -1))}, ever, "a 3-5 b 5-", 0},
		"SetBackEnds": {"it is as long as it was", []v1alpha1.HostUse{use("a", 3, 50)},
			Observation{timeAt(7), ptr.To(use("b", 4, -1)), true}, ever, "a 3-50 b 50-53", 0},
		"WithoutTime": {"of a manager without a record, and of a Machine that cannot be read", nil, Observation{At: timeAt(4), Claim: &without},
			ever, "old 4-", 0},
		"WithoutTimeTwice": {"by its Machine", []v1alpha1.HostUse{use("old", 4, -1)}, Observation{At: timeAt(9), Claim: &without}, ever,
			"old 4-", 0},
		"Removed": {"what ended longer ago goes", []v1alpha1.HostUse{use("a", 1, 2), use("b", 3, 6), use("c", 7, -1)},
			Observation{At: timeAt(9), Claim: ptr.To(use("c", 7, -1))}, 4 * time.Hour, "b 3-6 c 7-", 2},
		"Standing": {"its claim would be recorded again", []v1alpha1.HostUse{use("a", 1, 2)},
			Observation{At: timeAt(9), Claim: ptr.To(use("a", 1, -1))}, time.Hour, "a 1-2", 0},
		"AllRemoved": {"nothing is left", []v1alpha1.HostUse{use("a", 1, 2)}, Observation{At: timeAt(9)}, time.Hour, "", 2},
		"LongUse":    {"it counts when it ended", []v1alpha1.HostUse{use("a", 0, -1)}, Observation{At: timeAt(99)}, time.Hour, "a 0-99", 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := v1alpha1.HostUsageSpec{Uses: tc.before}
			untouched := *before.DeepCopy()
			after := Next(before, tc.seen, tc.keep)
			var got []string
			for _, use := range after.Uses {
				text := fmt.Sprintf("%s %v-", use.Machine.Name, use.Start.Sub(begin2026).Hours())
				if use.End != nil {
					text += fmt.Sprint(use.End.Sub(begin2026).Hours())
				}
				got = append(got, text)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s: the record is %q, want %q", tc.reason, got, tc.want)
			}
			if until := after.RemovedUntil; (tc.until == 0) != (until == nil) || until != nil && !until.Time.Equal(timeAt(tc.until)) {
				t.Errorf("%s: removed until %v, want hour %d", tc.reason, until, tc.until)
			}
			if fmt.Sprint(before) != fmt.Sprint(untouched) {
				t.Errorf("%s: it changed the record before", tc.reason)
			}
		})
	}
}

// TestClockSteps: three uses of two hours each, with idle hours between them, and a clock that is set by hours at any time: before and
// after the begin, the install and the end of each. No use is lost, none is negative, none overlaps another, and each that began and ended
// by the same clock is as long as it was. With the Clock of the manager that is each.
func TestClockSteps(t *testing.T) {
	const uses, events = 3, 4 // each: begin, install, end, idle
	for _, step := range []time.Duration{-100 * time.Hour, -5 * time.Hour, -time.Hour, time.Hour, 5 * time.Hour, 100 * time.Hour} {
		for stepsAt := range uses * events {
			for _, back := range []int{0, 1, 5, uses * events} { // events until it is set right again; 0 is never
				for _, steady := range []bool{true, false} {
					name := fmt.Sprintf("%s at event %d, back after %d, steady %v", step, stepsAt, back, steady)
					system := &steppingClock{now: begin2026}
					now, record := system.Now, v1alpha1.HostUsageSpec{}
					if steady {
						now = NewClock(system).Now
					}
					var claim v1alpha1.HostUse
					whole := make([]bool, uses)
					for event := range uses * events {
						if event == stepsAt {
							system.skew += step
						}
						if back > 0 && event == stepsAt+back {
							system.skew -= step
						}
						index, n := event/events, event%events
						switch n {
						case 0:
							claim = v1alpha1.HostUse{Start: Time(now())}
							claim.Machine.UID = types.UID(fmt.Sprint(index))
							whole[index] = true
						case 1, 2:
							record = Next(record, Observation{At: now(), Claim: &claim, Ending: n == 2}, ever)
							if event == stepsAt || back > 0 && event == stepsAt+back {
								whole[index] = steady
							}
						default:
							record = Next(record, Observation{At: now()}, ever)
						}
						system.now = system.now.Add(time.Hour)
					}
					count := int64(len(record.Uses))
					for _, folded := range record.Folded {
						count += folded.Count
					}
					if count != uses {
						t.Fatalf("%s: the record has %d uses: %+v", name, count, record)
					}
					for i, use := range record.Uses {
						lasted := use.End.Sub(use.Start.Time)
						if index := int(use.Machine.UID[0] - '0'); whole[index] && lasted != 2*time.Hour {
							t.Errorf("%s: use %d lasted %s, want 2h", name, index, lasted)
						}
						if lasted < 0 || i > 0 && use.Start.Before(record.Uses[i-1].End) {
							t.Errorf("%s: use %d is from %s to %s", name, i, use.Start, use.End)
						}
					}
				}
			}
		}
	}
}

// steppingClock is a system clock that is set.
type steppingClock struct {
	now  time.Time
	skew time.Duration
}

func (c *steppingClock) Now() time.Time { return c.now.Add(c.skew) }

// Since measures what has passed, as a monotonic clock does. The time is from before any step.
func (c *steppingClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

// TestClaimOn: an annotation that a person has written is no claim, nor is one of an earlier Machine.
func TestClaimOn(t *testing.T) {
	host := &bmov1alpha1.BareMetalHost{}
	for _, value := range []string{"", "{}", "yesterday", `{"time":"yesterday"}`, `[]`,
		Claim{Machine: "2", Time: Time(begin2026), TenantCluster: "other"}.String()} {
		host.Annotations = map[string]string{v1alpha1.ClaimAnnotationKey: value}
		if claim := ClaimOn(host); claim != nil {
			t.Errorf("a host without a consumer has claim %+v", claim)
		}
		host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "1"}
		if claim := ClaimOn(host); claim == nil || !claim.Start.IsZero() || claim.TenantCluster != "" {
			t.Errorf("annotation %q: claim %+v, want one without a time", value, claim)
		}
		host.Spec.ConsumerRef = nil
	}
}
