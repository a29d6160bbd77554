// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/test"
)

const namespace = "team"

func tenantWith(quota *v1alpha1.Quota) *v1alpha1.TenantCluster {
	return &v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"},
		Spec:       v1alpha1.TenantClusterSpec{Quota: quota},
	}
}

// machine of a tenant, with a server of a type unless that is empty.
func machine(name, tenant, nodeType string) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
	if tenant != "" {
		m.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: tenant}
	}
	if nodeType != "" {
		m.Status.HostRef = &v1alpha1.HostReference{Namespace: "metal3", Name: "server-" + name}
		m.Status.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType}
	}
	return m
}

func nodeType(name, gpus string) *v1alpha1.NodeType {
	t := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name}}
	t.Spec.Resources = test.Resources("cpu", "8", "memory", "32Gi", "nvidia.com/gpu", gpus)
	return t
}

func cacheOf(objects ...client.Object) client.Client {
	objects = append(objects, nodeType("plain", "0"), nodeType("four", "4"), nodeType("eight", "8"))
	return fake.NewClientBuilder().WithScheme(test.Scheme()).WithObjects(objects...).Build()
}

func TestTake(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		quota    *v1alpha1.Quota
		machines []client.Object
		nodeType string
		want     string
	}{
		"NoQuota":     {"there is no bound", nil, []client.Object{machine("a", "blue", "eight")}, "eight", ""},
		"Within":      {"one is left", &v1alpha1.Quota{Servers: ptr.To(int64(2))}, []client.Object{machine("a", "blue", "four")}, "four", ""},
		"Exhausted":   {"none is left", &v1alpha1.Quota{Servers: ptr.To(int64(1))}, []client.Object{machine("a", "blue", "four")}, "four", "has 1 servers and its spec.quota.servers is 1"},
		"None":        {"a tenant may be barred", &v1alpha1.Quota{Servers: ptr.To(int64(0))}, nil, "plain", "spec.quota.servers is 0"},
		"OthersCount": {"not: they are another tenant's, stand alone, or have no server", &v1alpha1.Quota{Servers: ptr.To(int64(1))}, []client.Object{machine("a", "red", "four"), machine("b", "", "four"), machine("c", "blue", "")}, "four", ""},
		"GPUs":        {"just enough are left", &v1alpha1.Quota{GPUs: ptr.To(int64(12))}, []client.Object{machine("a", "blue", "eight")}, "four", ""},
		"TooManyGPUs": {"a server is taken whole", &v1alpha1.Quota{GPUs: ptr.To(int64(12))}, []client.Object{machine("a", "blue", "eight")}, "eight", "has 8 GPUs, a server of NodeType eight has 8 more, and its spec.quota.gpus is 12"},
		"NoGPUs":      {"a plain server needs none of that quota", &v1alpha1.Quota{GPUs: ptr.To(int64(0))}, nil, "plain", ""},
	} {
		t.Run(name, func(t *testing.T) {
			asking := machine("asking", "blue", "")
			err := NewLedger(cacheOf(append(tc.machines, asking)...)).Take(t.Context(), tenantWith(tc.quota), asking, tc.nodeType)
			var exceeded *ExceededError
			if (tc.want == "") != (err == nil) || err != nil && (!errors.As(err, &exceeded) || !strings.Contains(exceeded.Message, tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// The cache shows nothing of what the workers do, and still they get no more than the quota together.
func TestTakeTogether(t *testing.T) {
	const workers, allowed = 50, 7
	var objects []client.Object
	for i := range workers {
		objects = append(objects, machine(fmt.Sprintf("m%02d", i), "blue", ""))
	}
	ledger, tenant := NewLedger(cacheOf(objects...)), tenantWith(&v1alpha1.Quota{Servers: ptr.To(int64(allowed))})
	var group sync.WaitGroup
	results := make([]error, workers)
	for i := range workers {
		group.Go(func() { results[i] = ledger.Take(t.Context(), tenant, objects[i].(*v1alpha1.Machine), "four") })
	}
	group.Wait()
	granted := 0
	for _, err := range results {
		if err == nil {
			granted++
		}
	}
	if granted != allowed {
		t.Errorf("%d machines were let have a server, want %d", granted, allowed)
	}
}

func TestGrantsEnd(t *testing.T) {
	first, second := machine("first", "blue", ""), machine("second", "blue", "")
	cache, tenant := cacheOf(first, second), tenantWith(&v1alpha1.Quota{Servers: ptr.To(int64(1))})
	ledger := NewLedger(cache)
	take := func(m *v1alpha1.Machine) bool { return ledger.Take(t.Context(), tenant, m, "four") == nil }
	for range 2 {
		if !take(first) {
			t.Fatal("a Machine that asks twice is in its own way")
		}
	}
	if take(second) {
		t.Fatal("a grant does not count")
	}
	ledger.Forget(first.UID)
	if !take(second) {
		t.Fatal("a grant that was taken back still counts")
	}
	if err := cache.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if !take(first) {
		t.Error("the grant of a Machine that is gone still counts")
	}
}
