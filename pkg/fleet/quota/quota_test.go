// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const namespace = "team"

func tenantWith(quota *v1alpha1.Quota) *v1alpha1.TenantCluster {
	return &v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"},
		Spec:       v1alpha1.TenantClusterSpec{Quota: quota},
	}
}

// machine of a tenant, with a server of a type unless that is empty.
func machine(name, tenant, nodeType string) v1alpha1.Machine {
	m := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
	if tenant != "" {
		m.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: tenant}
	}
	if nodeType != "" {
		m.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3", Name: "server-" + name}
		m.Status.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType}
	}
	return m
}

func accelerators(name string) int64 {
	return map[string]int64{"plain": 0, "four": 4, "eight": 8}[name]
}

// ofTypes is a quota of so many servers of a type.
func ofTypes(nodeTypes map[string]v1alpha1.ServerCount) *v1alpha1.Quota {
	return &v1alpha1.Quota{NodeTypes: nodeTypes}
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		quota    *v1alpha1.Quota
		machines []v1alpha1.Machine
		nodeType string
		want     string
	}{
		"NoQuota": {"there is no bound", nil, []v1alpha1.Machine{machine("a", "blue", "eight")}, "eight", ""},
		"OfType": {"one of the type is left", ofTypes(map[string]v1alpha1.ServerCount{"eight": 2}),
			[]v1alpha1.Machine{machine("a", "blue", "eight"), machine("b", "blue", "four"), machine("c", "red",
				"eight")}, "eight", ""},
		"OfTypeExhausted": {"none of the type is left", ofTypes(map[string]v1alpha1.ServerCount{"eight": 1, "four": 3}),
			[]v1alpha1.Machine{machine("a", "blue", "eight"), machine("b", "blue", "four")}, "eight",
			"TenantCluster team/blue has 1 servers of NodeType eight and its spec.quota.nodeTypes[eight] is 1: raise the " +
				"quota, or release a server"},
		"OfTypeLowered": {"the number was lowered below what the tenant has",
			ofTypes(map[string]v1alpha1.ServerCount{"eight": 1}),
			[]v1alpha1.Machine{machine("a", "blue", "eight"), machine("b", "blue", "eight")}, "eight",
			"has 2 servers of NodeType eight and its spec.quota.nodeTypes[eight] is 1"},
		"OfTypeNone": {"the tenant may have none of it", ofTypes(map[string]v1alpha1.ServerCount{"eight": 0}), nil, "eight",
			"has 0 servers of NodeType eight and its spec.quota.nodeTypes[eight] is 0"},
		"OfOtherType": {"a type that is not named has no bound", ofTypes(map[string]v1alpha1.ServerCount{"eight": 0}),
			[]v1alpha1.Machine{machine("a", "blue", "eight")}, "four", ""},
		"OfTypeUnknown": {"the type is not known yet", ofTypes(map[string]v1alpha1.ServerCount{"eight": 0, "": 0}), nil,
			"", ""},
		"TotalFirst": {"whichever type it is, it is too much", &v1alpha1.Quota{Servers: ptr.To(int64(1)),
			NodeTypes: map[string]v1alpha1.ServerCount{"eight": 1}}, []v1alpha1.Machine{machine("a", "blue", "eight")}, "eight",
			"spec.quota.servers is 1"},
		"GPUsOfType": {"the type is within its own number", &v1alpha1.Quota{GPUs: ptr.To(int64(8)),
			NodeTypes: map[string]v1alpha1.ServerCount{"eight": 2}}, []v1alpha1.Machine{machine("a", "blue", "eight")}, "eight",
			"spec.quota.gpus is 8"},
		"Within": {"one is left", &v1alpha1.Quota{Servers: ptr.To(int64(2))}, []v1alpha1.Machine{machine("a", "blue",
			"four")}, "four", ""},
		"Exhausted": {"none is left", &v1alpha1.Quota{Servers: ptr.To(int64(1))}, []v1alpha1.Machine{machine("a", "blue", "four")}, "four",
			"has 1 servers and its spec.quota.servers is 1"},
		"None": {"a tenant may be barred", &v1alpha1.Quota{Servers: ptr.To(int64(0))}, nil, "plain", "spec.quota.servers is 0"},
		"OthersCount": {"not: they are another tenant's, stand alone on its account, or have no server",
			&v1alpha1.Quota{Servers: ptr.To(int64(1))},
			[]v1alpha1.Machine{machine("a", "red", "four"), machine("b", "", "four"), machine("c", "blue", "")}, "four", ""},
		"GPUs": {"just enough are left", &v1alpha1.Quota{GPUs: ptr.To(int64(12))}, []v1alpha1.Machine{machine("a", "blue", "eight")},
			"four", ""},
		"TooManyGPUs": {"a server is taken whole", &v1alpha1.Quota{GPUs: ptr.To(int64(12))}, []v1alpha1.Machine{machine("a", "blue", "eight")},
			"eight", "has 8 GPUs, a server of NodeType eight has 8 more, and its spec.quota.gpus is 12"},
		"Gone": {"what servers of a type without NodeType have is not known", &v1alpha1.Quota{GPUs: ptr.To(int64(8))},
			[]v1alpha1.Machine{machine("a", "blue", "gone")}, "eight", ""},
		"Unknown": {"the type is not known yet", &v1alpha1.Quota{GPUs: ptr.To(int64(0))}, nil, "", ""},
		"NoGPUs":  {"a plain server needs none of that quota", &v1alpha1.Quota{GPUs: ptr.To(int64(0))}, nil, "plain", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := tenantWith(tc.quota)
			err := RestOf(tenant, Used(charged(tenant, tc.machines), "asking", nil), accelerators).Check(tc.nodeType)
			var exceeded *ExceededError
			if (tc.want == "") != (err == nil) || err != nil && (!errors.As(err, &exceeded) || !strings.Contains(exceeded.Message, tc.want)) {
				t.Fatalf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
			if err != nil && exceeded.Total != strings.Contains(tc.want, "servers is") {
				t.Errorf("%s: that no type is within the quota is %t", tc.reason, exceeded.Total)
			}
		})
	}
}

// charged are those of the Machines that are charged to a tenant, which has a neighbour.
func charged(tenant *v1alpha1.TenantCluster, machines []v1alpha1.Machine) []*v1alpha1.Machine {
	red := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "red"}}
	red.Spec.StandAloneMachines = v1alpha1.StandAloneAllowed
	return Charged(tenant.Name, []*v1alpha1.TenantCluster{tenant, red}, machines)
}

// TestRest: the provider plans with what is left, by the numbers that the manager checks.
func TestRest(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		quota    *v1alpha1.Quota
		used     []string
		nodeType string
		want     int64
	}{
		"NoQuota": {"there is no bound", nil, []string{"eight"}, "eight", math.MaxInt64},
		"Empty":   {"nothing of it is set", &v1alpha1.Quota{}, []string{"eight"}, "eight", math.MaxInt64},
		"Servers": {"of whatever type", &v1alpha1.Quota{Servers: ptr.To(int64(5))}, []string{"eight", "four", ""},
			"plain", 2},
		"GPUs":      {"servers are taken whole", &v1alpha1.Quota{GPUs: ptr.To(int64(27))}, []string{"eight"}, "eight", 2},
		"GPUsPlain": {"it has none", &v1alpha1.Quota{GPUs: ptr.To(int64(0))}, []string{"eight"}, "plain", math.MaxInt64},
		"GPUsOver":  {"it was lowered", &v1alpha1.Quota{GPUs: ptr.To(int64(4))}, []string{"eight", "eight"}, "four", 0},
		"Type": {"of this type", ofTypes(map[string]v1alpha1.ServerCount{"eight": 4}), []string{"eight", "four"},
			"eight", 3},
		"OtherType": {"it is not named", ofTypes(map[string]v1alpha1.ServerCount{"eight": 4}), []string{"eight", "four"},
			"four", math.MaxInt64},
		"TypeOver": {"it was lowered", ofTypes(map[string]v1alpha1.ServerCount{"eight": 1}), []string{"eight", "eight"},
			"eight", 0},
		"Unknown": {"the type is not known", ofTypes(map[string]v1alpha1.ServerCount{"eight": 1}), []string{"eight"},
			"", math.MaxInt64},
		"FewestGPUs": {"the least of all", &v1alpha1.Quota{Servers: ptr.To(int64(9)), GPUs: ptr.To(int64(16)),
			NodeTypes: map[string]v1alpha1.ServerCount{"eight": 4}}, []string{"eight"}, "eight", 1},
		"FewestServers": {"the least of all", &v1alpha1.Quota{Servers: ptr.To(int64(2)), GPUs: ptr.To(int64(64)),
			NodeTypes: map[string]v1alpha1.ServerCount{"eight": 4}}, []string{"eight"}, "eight", 1},
	} {
		t.Run(name, func(t *testing.T) {
			rest := RestOf(tenantWith(tc.quota), tc.used, accelerators)
			if got := rest.Of(tc.nodeType); got != tc.want {
				t.Errorf("%s: %d more, want %d", tc.reason, got, tc.want)
			}
			if err := rest.Check(tc.nodeType); (err == nil) != (tc.want > 0) {
				t.Errorf("%s: with %d left, Check says %v", tc.reason, tc.want, err)
			}
		})
	}
	rest := RestOf(tenantWith(ofTypes(map[string]v1alpha1.ServerCount{"eight": 4, "four": 0})), []string{"eight",
		"plain", "four"}, nil)
	if diff := cmp.Diff(map[string]int64{"eight": 3, "four": 0}, rest.ByType()); diff != "" {
		t.Errorf("what is left of each type that is named (-want +got):\n%s", diff)
	}
}

func TestUsed(t *testing.T) {
	machines := []v1alpha1.Machine{machine("a", "blue", "four"), machine("b", "blue", ""), machine("c", "red", "four"),
		machine("d", "blue", "eight"), machine("e", "blue", "")}
	chosen := machine("f", "blue", "")
	chosen.SetChosenHost(v1alpha1.HostReference{Namespace: "metal3", Name: "server-f", UID: "1"}, "four")
	unreadable := machine("g", "blue", "")
	unreadable.Annotations = map[string]string{v1alpha1.ChosenHostAnnotationKey: "x"}
	machines = append(machines, chosen, unreadable)
	assumed := func(machine *v1alpha1.Machine) string {
		return map[string]string{"b": "plain", "c": "plain", "d": "plain"}[machine.Name]
	}
	if diff := cmp.Diff([]string{"four", "plain", "eight", "four", ""}, Used(charged(tenantWith(nil), machines), "e", assumed)); diff != "" {
		t.Errorf("what is assumed counts until the Machine shows a server, and what is chosen (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"eight", "four", ""}, Used(charged(tenantWith(nil), machines), "a", nil)); diff != "" {
		t.Errorf("a Machine is not in its own way (-want +got):\n%s", diff)
	}
}
