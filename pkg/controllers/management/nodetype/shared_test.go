// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetype

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// TestSharedServers: the condition HasCapacity says which other types select the servers of a type, whatever domain they
// are in. Nobody else tells the author of a selector.
func TestSharedServers(t *testing.T) {
	hosts := inventory.NewInventory(inventory.Options{})
	for name, selector := range map[string]string{
		"h100": "gpu=h100", "rack": "rack in (r1,r2)", "wide": "rack", "alone": "gpu=a100",
	} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		hosts.SetType(inventory.Profile{Name: name, Selector: parsed})
	}
	for name, set := range map[string]map[string]string{
		"s1": {"gpu": "h100", "rack": "r1"}, "s2": {"gpu": "h100", "rack": "r2"}, "s3": {"gpu": "h100", "rack": "r3"},
		"s4": {"gpu": "a100"},
	} {
		host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
		host.Status.OperationalStatus = bmov1alpha1.OperationalStatusOK
		host.Status.Provisioning.State = bmov1alpha1.StateAvailable
		hosts.SetHost(host)
	}
	for name, want := range map[string]string{
		"h100": "3 servers match, 0 claimed, 0 in error, 3 available; 2 match NodeType rack too, " +
			"3 match NodeType wide too: each is counted in all its types and claimed as one of them",
		"alone": "1 server matches, 0 claimed, 0 in error, 1 available",
	} {
		nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name}}
		nodeType.Spec.Resources = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
		nodeType.Spec.BareMetalHosts = &v1alpha1.HostSelection{Selector: &metav1.LabelSelector{}}
		summary, _ := hosts.Summary(name)
		if got := hasCapacity(nodeType, summary).Message; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
