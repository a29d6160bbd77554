// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

func labelled(namespace, name string, set map[string]string) *bmov1alpha1.BareMetalHost {
	return &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), Labels: set},
		Status: bmov1alpha1.BareMetalHostStatus{
			OperationalStatus: bmov1alpha1.OperationalStatusOK,
			Provisioning:      bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateAvailable},
		},
	}
}

func parsed(t *testing.T, text string) labels.Selector {
	t.Helper()
	selector, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

func TestMatching(t *testing.T) {
	for _, indexed := range []bool{true, false} {
		inventory := NewInventory(Options{IndexLabels: indexed})
		inventory.SetHost(labelled("a", "h1", map[string]string{"gpu": "h100", "rack": "r1"}))
		inventory.SetHost(labelled("a", "h2", map[string]string{"gpu": "h100", "rack": "r2"}))
		inventory.SetHost(labelled("a", "h3", map[string]string{"gpu": "a100", "rack": "r1"}))
		inventory.SetHost(labelled("b", "h1", map[string]string{"gpu": "h100", "rack": "r1"}))
		inventory.SetType(Profile{Name: "h100", Namespace: "a", Selector: parsed(t, "gpu=h100")})
		inventory.SetType(Profile{Name: "rack", Namespace: "a", Selector: parsed(t, "rack=r1")})
		for name, tc := range map[string]struct {
			reason, selector string
			want             Matching
		}{
			"Equals":   {"by one label", "gpu=h100", Matching{2, map[string]int{"h100": 2, "rack": 1}}},
			"Both":     {"by the rarer one", "gpu=h100,rack=r2", Matching{1, map[string]int{"h100": 1}}},
			"In":       {"by either value", "gpu in (h100,a100)", Matching{3, map[string]int{"h100": 2, "rack": 2}}},
			"NotIn":    {"no label to go by", "gpu notin (h100)", Matching{1, map[string]int{"rack": 1}}},
			"Nothing":  {"no host has the label", "gpu=b200", Matching{0, map[string]int{}}},
			"All":      {"all of the namespace", "", Matching{3, map[string]int{"h100": 2, "rack": 2}}},
			"Opposite": {"what is indexed need not match", "gpu=h100,!rack", Matching{0, map[string]int{}}},
		} {
			t.Run(fmt.Sprintf("%s/%v", name, indexed), func(t *testing.T) {
				if diff := cmp.Diff(tc.want, inventory.Matching("a", parsed(t, tc.selector))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		}
		selectors := []labels.Selector{parsed(t, "gpu=h100"), nil, parsed(t, "rack=r1"), parsed(t, "gpu=b200"), parsed(t, "rack")}
		if diff := cmp.Diff(map[[2]int]int{{2, 0}: 1, {4, 0}: 2, {4, 2}: 2}, inventory.Overlaps("a", selectors)); diff != "" {
			t.Errorf("what selectors have in common (-want +got):\n%s", diff)
		}
		got, known := inventory.Server(types.NamespacedName{Namespace: "a", Name: "h1"})
		want := Server{Eligibility: Eligibility{Claimable: true}, Types: []string{"h100", "rack"},
			States: map[string]TypeState{"h100": {State: StateAvailable}, "rack": {State: StateAvailable}}}
		if diff := cmp.Diff(want, got); !known || diff != "" {
			t.Errorf("a server that is known (-want +got):\n%s", diff)
		}
		if _, known := inventory.Server(types.NamespacedName{Namespace: "b", Name: "h9"}); known {
			t.Error("a server that is not known")
		}
	}
}

// The index says what looking at all hosts says, whatever has happened to them.
func TestMatchingFollowsChanges(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	indexed, plain := NewInventory(Options{IndexLabels: true}), NewInventory(Options{})
	value := func(prefix string) string { return fmt.Sprint(prefix, random.Intn(3)) }
	for range 2000 {
		name := fmt.Sprint("h", random.Intn(40))
		if random.Intn(4) == 0 {
			indexed.DeleteHost(types.NamespacedName{Namespace: "a", Name: name})
			plain.DeleteHost(types.NamespacedName{Namespace: "a", Name: name})
		} else {
			host := labelled("a", name, map[string]string{"x": value("x"), "y": value("y")})
			indexed.SetHost(host)
			plain.SetHost(host)
		}
		selector := parsed(t, fmt.Sprintf("x in (%s,%s),y=%s", value("x"), value("x"), value("y")))
		if diff := cmp.Diff(plain.Matching("a", selector), indexed.Matching("a", selector)); diff != "" {
			t.Fatalf("%s (-all +indexed):\n%s", selector, diff)
		}
	}
	for key := range indexed.hosts {
		indexed.DeleteHost(key)
	}
	if len(indexed.labelled) != 0 {
		t.Errorf("left over of hosts that are gone: %v", indexed.labelled)
	}
}
