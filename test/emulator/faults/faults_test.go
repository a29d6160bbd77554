// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		fault Fault
		want  string // part of the error; empty if it is valid
	}{
		"Plain":         {Fault{Kind: PowerStuck}, ""},
		"Slow":          {Fault{Kind: Slow, Seconds: 0.5}, ""},
		"Dies":          {Fault{Kind: DiesAfter, Minutes: 3, Power: PowerOff}, ""},
		"Unknown":       {Fault{Kind: "on-fire"}, `"on-fire" is not known: it must be one of bmc-unreachable, wrong-password,`},
		"NoSeconds":     {Fault{Kind: Slow}, "seconds 0: it must be greater than 0"},
		"OtherSeconds":  {Fault{Kind: PowerStuck, Seconds: 1}, "only slow takes them"},
		"NoMinutes":     {Fault{Kind: DiesAfter, Minutes: -1}, "minutes -1: it must be greater than 0"},
		"OtherMinutes":  {Fault{Kind: Slow, Seconds: 1, Minutes: 1}, "only dies-after takes them"},
		"OtherPower":    {Fault{Kind: AgentSilent, Power: PowerOn}, "only dies-after takes it"},
		"UnknownPower":  {Fault{Kind: DiesAfter, Minutes: 1, Power: "Maybe"}, `power "Maybe": it must be On or Off`},
		"NothingAtAll":  {Fault{}, `fault kind "" is not known`},
		"SecondsOfDies": {Fault{Kind: DiesAfter, Minutes: 1, Seconds: 1}, "only slow takes them"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.fault.Validate()
			if tc.want == "" && err != nil {
				t.Errorf("%+v: %v", tc.fault, err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%+v: %v, want %q", tc.fault, err, tc.want)
			}
			if set := (&Set{}); (set.Put(tc.fault) == nil) != (err == nil) || (err == nil) != set.Has(tc.fault.Kind) {
				t.Errorf("%+v: Put and Validate disagree", tc.fault)
			}
		})
	}
}

func TestSet(t *testing.T) {
	set := &Set{}
	changed := set.Changed()
	for _, fault := range []Fault{{Kind: DiesAfter, Minutes: 1.5}, {Kind: Slow, Seconds: 1}, {Kind: Slow, Seconds: 2.5}} {
		if err := set.Put(fault); err != nil {
			t.Fatal(err)
		}
	}
	<-changed
	if diff := cmp.Diff([]Fault{{Kind: Slow, Seconds: 2.5}, {Kind: DiesAfter, Minutes: 1.5}}, set.List()); diff != "" {
		t.Errorf("one of each kind, in order (-want +got):\n%s", diff)
	}
	slow, _ := set.Get(Slow)
	dies, _ := set.Get(DiesAfter)
	if slow.Delay() != 2500*time.Millisecond || dies.Lifetime() != 90*time.Second {
		t.Errorf("durations are %v and %v", slow.Delay(), dies.Lifetime())
	}
	changed = set.Changed()
	if !set.Clear(Slow) || set.Clear(Slow) || set.Has(Slow) {
		t.Error("a fault is cleared once")
	}
	<-changed
}
