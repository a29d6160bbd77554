// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
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

func TestServer(t *testing.T) {
	inventory := NewInventory(Options{})
	inventory.SetHost(labelled("a", "h1", map[string]string{"gpu": "h100", "rack": "r1"}))
	inventory.SetType(Profile{Name: "h100", Namespace: "a", Selector: parsed(t, "gpu=h100")})
	inventory.SetType(Profile{Name: "rack", Namespace: "a", Selector: parsed(t, "rack=r1")})
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
