// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

func names(types []*cloudprovider.InstanceType) []string {
	result := []string{}
	for _, instanceType := range types {
		result = append(result, instanceType.Name)
	}
	return result
}

func TestFilter(t *testing.T) {
	catalog := NewCatalog(DefaultPods)
	for name, provider := range map[string]string{"a100": "metal3", "h100": "metal3", "mi300": "lab"} {
		added := nodeType(name, 4, zone("dc1", 1))
		added.Spec.ProviderRef.Name, added.OwnerReferences = provider, env.MadeBy(provider)
		catalog.Set(added)
	}
	byHand := nodeType("by-hand", 4, zone("dc1", 1))
	byHand.Spec.ProviderRef.Name = "metal3"
	catalog.Set(byHand)
	for name, tc := range map[string]struct {
		reason   string
		allowed  *[]string
		provider string
		want     []string
	}{
		"by hand":          {"it must be named", &[]string{"by-hand"}, "metal3", []string{"by-hand"}},
		"unset":            {"everything that NodeProviders list is allowed", nil, "", []string{"a100", "h100", "mi300"}},
		"empty":            {"nothing is allowed", &[]string{}, "", []string{}},
		"one":              {"by name", &[]string{"h100"}, "", []string{"h100"}},
		"provider":         {"all of one", &[]string{"metal3.*"}, "", []string{"a100", "h100"}},
		"both":             {"either is enough", &[]string{"metal3.*", "mi300"}, "", []string{"a100", "h100", "mi300"}},
		"unknown":          {"a type that does not exist allows nothing", &[]string{"b200", "h10"}, "", []string{}},
		"class of one":     {"the class narrows down what is allowed", &[]string{"a100", "mi300"}, "lab", []string{"mi300"}},
		"class of nothing": {"the class allows nothing by itself", &[]string{"a100"}, "lab", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			class := &v1alpha1.MetalNodeClass{}
			if tc.provider != "" {
				class.Spec.ProviderRef = &v1alpha1.NameReference{Name: tc.provider}
			}
			tenant := &v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{AllowedNodeTypes: tc.allowed}}
			if diff := cmp.Diff(tc.want, names(catalog.InstanceTypes(NewFilter(tenant, class)))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCatalogFollowsChanges(t *testing.T) {
	catalog := NewCatalog(DefaultPods)
	catalog.Set(nodeType("a100", 4, zone("dc1", 2)))
	catalog.Set(nodeType("h100", 8, zone("dc1", 2)))
	everything := NewFilter(nil, nil)
	before := catalog.InstanceTypes(everything)

	exhausted := nodeType("a100", 4, zone("dc1", 0))
	exhausted.ResourceVersion = "2"
	catalog.Set(exhausted)
	after := catalog.InstanceTypes(everything)
	if len(after[0].Offerings.Available()) > 0 {
		t.Error("a100 is exhausted and still offered")
	}
	if before[0].Offerings.Available()[0].ReservationCapacity != 2 {
		t.Error("a type that a scheduling pass holds changed under it")
	}
	if before[1] != after[1] {
		t.Error("h100 was converted again although it did not change")
	}

	withFabric := nodeType("h100", 8, zone("dc1", 2))
	withFabric.ResourceVersion, withFabric.Spec.ProviderRef.Name = "2", "fabrics"
	withFabric.Status.Requirements = append(withFabric.Status.Requirements,
		v1alpha1.NodeTypeRequirement{Key: "example.com/fabric", Values: []string{"ib"}})
	catalog.Set(withFabric)
	infiniband := scheduling.NewRequirements(scheduling.NewRequirement("example.com/fabric", corev1.NodeSelectorOpIn, "ib"))
	for _, instanceType := range catalog.InstanceTypes(everything) {
		if got, want := instanceType.Requirements.Intersects(infiniband) == nil, instanceType.Name == "h100"; got != want {
			t.Errorf("%s has the fabric: %v, want %v", instanceType.Name, got, want)
		}
	}
	if !catalog.Advertises("example.com/fabric") || catalog.Advertises("example.com/other") {
		t.Error("the catalog does not know which labels there are")
	}
	if offered := catalog.Offered("fabrics"); len(offered) != 1 || !slices.Equal(offered[0]["example.com/fabric"], []string{"ib"}) {
		t.Errorf("the types of the provider offer %v", offered)
	}
	if found := catalog.NodeType("h100"); found != withFabric {
		t.Errorf("NodeType h100 is %v", found)
	}
	if !catalog.Exists("h100") || catalog.Exists("metal3.h100") {
		t.Error("the catalog does not know which types there are")
	}

	catalog.Delete("h100")
	if found := catalog.NodeType("h100"); found != nil {
		t.Errorf("a type that does not exist is %v", found)
	}
	if diff := cmp.Diff([]string{"a100"}, names(catalog.InstanceTypes(everything))); diff != "" {
		t.Errorf("after h100 is gone (-want +got):\n%s", diff)
	}
	if catalog.Advertises("example.com/fabric") {
		t.Error("the label of h100 outlived it")
	}
}

// hundred is a catalog of 100 NodeTypes. How many hosts they have is in their status: it costs nothing.
func hundred(hosts int32) *Catalog {
	catalog := NewCatalog(DefaultPods)
	for i := range 100 {
		added := nodeType(fmt.Sprintf("type-%03d", i), int64(i%9), zone("dc1", hosts/200), zone("dc2", hosts/200))
		added.OwnerReferences = env.MadeBy(added.Spec.ProviderRef.Name)
		catalog.Set(added)
	}
	return catalog
}

func BenchmarkInstanceTypes(b *testing.B) {
	tenant := &v1alpha1.TenantCluster{Spec: v1alpha1.TenantClusterSpec{AllowedNodeTypes: &[]string{"metal3.*"}}}
	for _, hosts := range []int32{1_000, 10_000} {
		b.Run(fmt.Sprintf("types=100/hosts=%d", hosts), func(b *testing.B) {
			catalog := hundred(hosts)
			b.ReportAllocs()
			for b.Loop() {
				if got := len(catalog.InstanceTypes(NewFilter(tenant, nil))); got != 100 {
					b.Fatalf("%d types, want 100", got)
				}
			}
		})
	}
}

// BenchmarkInstanceTypesAfterAChange is the first call after a server of one type was claimed.
func BenchmarkInstanceTypesAfterAChange(b *testing.B) {
	catalog := hundred(10_000)
	changed := []*v1alpha1.NodeType{nodeType("type-007", 7, zone("dc1", 3)), nodeType("type-007", 7, zone("dc1", 4))}
	changed[0].ResourceVersion, changed[1].ResourceVersion = "2", "3"
	everything := NewFilter(nil, nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		catalog.Set(changed[i%2])
		if got := len(catalog.InstanceTypes(everything)); got != 100 {
			b.Fatalf("%d types, want 100", got)
		}
	}
}

// TestNewLabels: core must know a label before it runs. A program that has started before a NodeType had the label starts again.
func TestNewLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, key, want string
	}{
		"Property": {"pods select on it", "example.com/new-label", "(example.com/new-label)"},
		"Known":    {"core has it", corev1.LabelArchStable, ""},
		"Own":      {"it is no label that pods select servers by", karpv1.NodePoolLabelKey, ""},
		"No label": {"the program would not start with it", "no label", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			catalog, clk := NewCatalog(DefaultPods), testclock.NewFakeClock(time.Now())
			ended := make(chan error, 1)
			go func() { ended <- catalog.UntilNewLabels(ctx, clk) }()
			waits := func() {
				poll.Eventually(t, "it waits for the next time", func(context.Context) error {
					if !clk.HasWaiters() {
						return errors.New("it does not wait")
					}
					return nil
				})
			}
			next := func() {
				waits()
				clk.Step(newLabelsPeriod)
			}
			next() // without a NodeType
			waits()
			changed := nodeType("h100", 8, zone("dc1", 2))
			changed.Status.Requirements = []v1alpha1.NodeTypeRequirement{{Key: tc.key, Values: []string{"a"}}}
			catalog.Set(changed)
			next()
			if tc.want == "" {
				waits()
				cancel()
			}
			switch err := poll.Receive(t, "it ends", ended); {
			case tc.want == "" && err != nil:
				t.Errorf("%s: it ends: %v", tc.reason, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s: got %v", tc.reason, err)
			}
			cancel()
		})
	}
}
