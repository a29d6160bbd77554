// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
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

func accelerators(name string) (int64, error) {
	return map[string]int64{"plain": 0, "four": 4, "eight": 8}[name], nil
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
		"Within":  {"one is left", &v1alpha1.Quota{Servers: ptr.To(int64(2))}, []v1alpha1.Machine{machine("a", "blue", "four")}, "four", ""},
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
			err := Check(tenant, Used(charged(tenant, tc.machines), "asking", nil), tc.nodeType, accelerators)
			var exceeded *ExceededError
			if (tc.want == "") != (err == nil) || err != nil && (!errors.As(err, &exceeded) || !strings.Contains(exceeded.Message, tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
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

func TestNameSuspects(t *testing.T) {
	exceeded := &ExceededError{Message: "it is full"}
	for name, tc := range map[string]struct {
		reason   string
		err      error
		suspects int
		want     string
	}{
		"None": {"there is nothing to say", exceeded, 0, "it is full"},
		"One": {"the tenant has no Machine for it", exceeded, 1,
			"it is full; 1 of them is quarantined because of its Machines: an operator must"},
		"Two":   {"nor for these", exceeded, 2, "it is full; 2 of them are quarantined"},
		"Other": {"the quota is not the reason", errors.New("no answer"), 1, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NameSuspects(tc.err, tc.suspects).Error(); !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
	if err := NameSuspects(nil, 1); err != nil {
		t.Errorf("within the quota: %v", err)
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
