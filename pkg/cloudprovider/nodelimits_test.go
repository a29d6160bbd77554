// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"testing"
	"time"
)

// clusterOfNames is an API server and a cache of it, as far as nodeLimits sees them.
type clusterOfNames struct {
	cached, live map[string]bool
	liveLists    int
	failure      error
}

func namesOf(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

func (c *clusterOfNames) list(_ context.Context, live bool) (map[string]bool, error) {
	if !live {
		return c.cached, nil
	}
	c.liveLists++
	return c.live, c.failure
}

func TestNodeLimits(t *testing.T) {
	const limit = 2
	take := func(name string, others int64) func(*testing.T, *nodeLimits, *clusterOfNames) {
		return func(t *testing.T, l *nodeLimits, c *clusterOfNames) {
			t.Helper()
			if got, err := l.assume(t.Context(), c.list, "pool", name, limit); err != nil || got != others {
				t.Fatalf("taking a place for %s: %d others, %v, want %d", name, got, err, others)
			}
		}
	}
	finish := func(name string, refused bool) func(*testing.T, *nodeLimits, *clusterOfNames) {
		return func(_ *testing.T, l *nodeLimits, _ *clusterOfNames) { l.finish("pool", name, refused) }
	}
	becomes := func(cached, live map[string]bool) func(*testing.T, *nodeLimits, *clusterOfNames) {
		return func(_ *testing.T, _ *nodeLimits, c *clusterOfNames) { c.cached, c.live = cached, live }
	}
	for name, test := range map[string]struct {
		reason    string
		steps     []func(*testing.T, *nodeLimits, *clusterOfNames)
		liveLists int
	}{
		"OneLookForABurst": {
			reason:    "the API server is asked for the pool once, not before each Machine",
			steps:     []func(*testing.T, *nodeLimits, *clusterOfNames){take("a", 0), take("b", 1)},
			liveLists: 1,
		},
		"BeingMade": {
			reason:    "one that is being made has its place, although the API server does not show it either",
			steps:     []func(*testing.T, *nodeLimits, *clusterOfNames){take("a", 0), take("b", 1), take("c", 2)},
			liveLists: 2,
		},
		"MadeAndNotCached": {
			reason: "one that was made has its place until the cache shows it",
			steps: []func(*testing.T, *nodeLimits, *clusterOfNames){
				take("a", 0), finish("a", false), becomes(nil, namesOf("a")), take("b", 1),
			},
			liveLists: 1,
		},
		"MadeAndCached": {
			reason: "one that the cache shows counts once",
			steps: []func(*testing.T, *nodeLimits, *clusterOfNames){
				take("a", 0), finish("a", false), becomes(namesOf("a"), namesOf("a")), take("b", 1),
			},
			liveLists: 1,
		},
		"Refused": {
			reason: "one that the API server has refused gives its place back",
			steps: []func(*testing.T, *nodeLimits, *clusterOfNames){
				take("a", 0), finish("a", true), take("b", 0), take("c", 1),
			},
			liveLists: 1,
		},
		"NobodyKnows": {
			reason: "one whose making was not answered has its place, until the API server turns out not to have it",
			steps: []func(*testing.T, *nodeLimits, *clusterOfNames){
				take("a", 0), finish("a", false), take("b", 1), finish("b", false), becomes(nil, namesOf("b")), take("c", 1),
			},
			liveLists: 2,
		},
		"AskedAgain": {
			reason: "a Machine does not count against itself",
			steps: []func(*testing.T, *nodeLimits, *clusterOfNames){
				take("a", 0), finish("a", false), take("b", 1), finish("b", false), becomes(namesOf("a", "b"), namesOf("a", "b")), take("a", 1),
			},
			liveLists: 1,
		},
		"EarlierLeader": {
			reason: "what an earlier process has made counts, also while the cache does not show it",
			steps: []func(*testing.T, *nodeLimits, *clusterOfNames){
				becomes(nil, namesOf("x")), take("a", 1), finish("a", false), becomes(nil, namesOf("x", "a")), take("b", 2),
			},
			liveLists: 2,
		},
		"CacheShowsWhatHasGone": {
			reason: "nothing is refused because of a Machine that does not exist any more",
			steps: []func(*testing.T, *nodeLimits, *clusterOfNames){
				becomes(namesOf("x", "y"), namesOf("x", "y")), take("a", 2), becomes(namesOf("x", "y"), namesOf("x")), take("a", 1),
			},
			liveLists: 2,
		},
		"GoneBeforeItWasCached": {
			reason: "a place does not outlive its Machine",
			steps: []func(*testing.T, *nodeLimits, *clusterOfNames){
				take("a", 0), finish("a", false), take("b", 1), finish("b", false), take("c", 0), finish("c", false),
			},
			liveLists: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			limits, cluster := &nodeLimits{}, &clusterOfNames{}
			for _, step := range test.steps {
				step(t, limits, cluster)
			}
			if cluster.liveLists != test.liveLists {
				t.Errorf("%s: the API server was asked %d times, want %d", test.reason, cluster.liveLists, test.liveLists)
			}
		})
	}
}

// A count that failed has taken nothing, and is not taken for one.
func TestNodeLimitsOfAnUnknownCount(t *testing.T) {
	limits, cluster := &nodeLimits{}, &clusterOfNames{failure: errors.New("the API server is away")}
	if _, err := limits.assume(t.Context(), cluster.list, "pool", "a", 1); !errors.Is(err, cluster.failure) {
		t.Fatalf("got %v", err)
	}
	cluster.failure, cluster.live = nil, namesOf("x")
	if others, err := limits.assume(t.Context(), cluster.list, "pool", "b", 1); err != nil || others != 1 {
		t.Errorf("%d others, %v, want the one that is there", others, err)
	}
}

// A NodePool whose Machines take long to list holds up no other.
func TestNodeLimitsOfAnotherPool(t *testing.T) {
	limits, cluster := &nodeLimits{}, &clusterOfNames{}
	slow := func(context.Context, bool) (map[string]bool, error) {
		other := make(chan error, 1)
		go func() {
			_, err := limits.assume(t.Context(), cluster.list, "other", "b", 1)
			other <- err
		}()
		select {
		case err := <-other:
			return nil, err
		case <-time.After(3 * time.Minute):
			return nil, errors.New("the other pool waits")
		}
	}
	if _, err := limits.assume(t.Context(), slow, "pool", "a", 2); err != nil {
		t.Error(err)
	}
}
