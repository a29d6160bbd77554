// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetype

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestUrgency(t *testing.T) {
	for name, tc := range map[string]struct {
		reason         string
		before, now    int32
		generation     int64
		wasInvalid, is string
		want           urgency
	}{
		"Fewer":     {reason: "nobody waits for it", before: 5, now: 4, want: counts},
		"More":      {reason: "who wants one has one", before: 5, now: 6, want: counts},
		"First":     {reason: "pods may wait for it", now: 1, want: turns},
		"Last":      {reason: "each NodeClaim would be refused", before: 1, want: turns},
		"None":      {reason: "other counts of a type without a free server", want: counts},
		"Spec":      {reason: "a person waits for it", before: 5, now: 5, generation: 2, want: changes},
		"Invalid":   {reason: "its servers cannot be had any more", before: 5, now: 5, is: "NoProvider", want: changes},
		"Valid":     {reason: "its servers can be had again", now: 5, wasInvalid: "NoProvider", want: changes},
		"Unusable":  {reason: "an invalid type has no free server, whatever is free", now: 5, wasInvalid: "NoProvider", is: "NoProvider"},
		"FirstSeen": {reason: "nothing is known of it", now: 5, generation: 1, wasInvalid: "none", want: changes},
	} {
		nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Generation: max(1, tc.generation)}}
		nodeType.Status.ObservedGeneration, nodeType.Status.Capacity.Available = 1, tc.before
		if tc.wasInvalid == "" {
			tc.wasInvalid = v1alpha1.ReasonSynced
		}
		if tc.wasInvalid != "none" {
			nodeType.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSynced, Reason: tc.wasInvalid}}
		}
		var invalid *inventory.InvalidType
		if tc.is != "" {
			invalid = &inventory.InvalidType{Reason: tc.is}
		}
		if got := urgencyOf(nodeType, inventory.Summary{Capacity: v1alpha1.Capacity{Available: tc.now}}, invalid); got != tc.want {
			t.Errorf("%s: %s: urgency %d, want %d", name, tc.reason, got, tc.want)
		}
	}
}

// TestPace: each step is of a type, which is written if it need not wait.
func TestPace(t *testing.T) {
	const second, half = countBytesPerSecond, turnBytesPerSecond // what takes a second in each lane
	type step struct {
		after   time.Duration
		name    string
		urgency urgency
		bytes   int64
		sent    int64 // the bytes that were estimated if zero
		wait    time.Duration
	}
	for name, tc := range map[string]struct {
		reason string
		steps  []step
	}{
		"Pause": {"the first one after a pause does not wait, the next one waits for it", []step{
			{name: "a", bytes: 4 * second}, {name: "a", bytes: 4 * second, wait: 4 * time.Second},
			{after: 3 * time.Second, name: "a", bytes: 4 * second, wait: time.Second}, {after: time.Second, name: "a", bytes: 4 * second},
			{after: 60 * time.Second, name: "a", bytes: 4 * second},
		}},
		"Turn": {"types are written in the order in which they began to wait, however often one changes", []step{
			{name: "a", bytes: second}, {name: "b", bytes: second, wait: time.Second}, {name: "a", bytes: second, wait: 2 * time.Second},
			{after: time.Second, name: "a", bytes: second, wait: time.Second}, {name: "b", bytes: second},
			{name: "b", bytes: second, wait: 2 * time.Second}, {after: time.Second, name: "a", bytes: second},
		}},
		"Urgent": {"a type that turns does not wait for those that only count, and others of its kind do", []step{
			{name: "a", bytes: 8 * second}, {name: "b", bytes: 2 * half, wait: 8 * time.Second},
			{name: "b", urgency: turns, bytes: 2 * half}, {name: "c", urgency: turns, bytes: half, wait: 2 * time.Second},
		}},
		"Sooner": {"a type that has waited for long does not begin again", []step{
			{name: "a", bytes: 2 * second}, {name: "b", urgency: turns, bytes: 9 * half}, {name: "c", bytes: second, wait: 2 * time.Second},
			{after: time.Second, name: "c", urgency: turns, bytes: second, wait: time.Second}, {after: time.Second, name: "c", urgency: turns},
		}},
		"Changed": {"what a person changes is written at once, and the others wait for it", []step{
			{name: "a", bytes: 8 * second}, {name: "b", urgency: changes, bytes: 2 * second},
			{name: "a", bytes: second, wait: 10 * time.Second},
		}},
		"Estimate": {"what was too little is made up for, and known the next time", []step{
			{name: "a", bytes: second, sent: 3 * second}, {name: "a", bytes: second, wait: 3 * time.Second},
			{name: "b", bytes: second, wait: 6 * time.Second},
		}},
	} {
		now, pace := time.Unix(0, 0), newPace()
		for n, s := range tc.steps {
			now = now.Add(s.after)
			pace.book(s.name, s.urgency, s.bytes, now)
			wait := pace.waits(s.name, s.urgency, now)
			if wait != s.wait {
				t.Errorf("%s: %s: step %d of %s waits %v, want %v", name, tc.reason, n, s.name, wait, s.wait)
			}
			if wait == 0 {
				pace.wrote(s.name, s.urgency, cmp.Or(s.sent, s.bytes), now)
			}
		}
	}
}

// burst is a fleet of ten thousand servers and a hundred tenants, with a clock of its own.
type burst struct {
	*testing.T
	clock      *clocktesting.FakeClock
	inventory  *inventory.Inventory
	controller *Controller
	api        client.Client
	due        map[string]time.Time
	written    []sent
	changed    map[string]time.Time
	longest    time.Duration
}

type sent struct {
	when  time.Time
	bytes int64
}

const servers, tenants, namespace = 10000, 100, "metal3-system"

func newBurst(t *testing.T, nodeTypes int) *burst {
	t.Helper()
	b := &burst{T: t, clock: clocktesting.NewFakeClock(time.Unix(1<<30, 0)), inventory: inventory.NewInventory(inventory.Options{}),
		due: map[string]time.Time{}, changed: map[string]time.Time{}}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	provider.Spec.Metal3.ClusterRef.Namespace = namespace
	objects := []client.Object{provider}
	for n := range nodeTypes {
		nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: typeName(n, nodeTypes), Generation: 1}}
		nodeType.Spec.ProviderRef.Name = provider.Name
		nodeType.Spec.Resources = env.Resources("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")
		nodeType.Spec.BareMetalHosts = env.HostsWith(map[string]string{"type": nodeType.Name})
		objects = append(objects, nodeType)
	}
	b.api = fake.NewClientBuilder().WithScheme(env.Scheme()).WithStatusSubresource(&v1alpha1.NodeType{}).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{List: b.list, SubResourceUpdate: b.update}).Build()
	for n := range servers {
		b.inventory.SetHost(env.AvailableHost(namespace, fmt.Sprintf("s%d", n), labelsOf(n, nodeTypes)))
	}
	b.inventory.MarkHostsSynced()
	b.controller = NewController(b.api, b.inventory, events.NewFakeRecorder(1<<16), b.clock,
		*resource.NewQuantity(capacity.DefaultEphemeralStorage, resource.BinarySI))
	b.inventory.OnChange(func(names []string) {
		for _, name := range names {
			b.enqueue(name, batchPeriod)
			if _, waits := b.changed[name]; !waits {
				b.changed[name] = b.clock.Now()
			}
		}
	})
	if err := b.controller.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

func typeName(server, nodeTypes int) string { return fmt.Sprintf("type-%03d", server%nodeTypes) }

// labelsOf a server: 20 servers are in each of 500 racks, which are of one type each.
func labelsOf(server, nodeTypes int) map[string]string {
	rack := fmt.Sprintf("%03d", server%500)
	return map[string]string{"type": typeName(server%500, nodeTypes), "datacenter": "dc1", "rack": "r" + rack, "nvlink-domain": "n" + rack}
}

func (b *burst) list(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.TenantClusterList:
		if (&client.ListOptions{}).ApplyOptions(options).Namespace == "" {
			list.Items = make([]v1alpha1.TenantCluster, tenants)
		}
		return nil
	case *v1alpha1.MachineList:
		return nil
	}
	return c.List(ctx, list, options...)
}

// update answers with managedFields, as an API server does.
func (b *burst) update(ctx context.Context, c client.Client, subresource string, object client.Object,
	options ...client.SubResourceUpdateOption) error {
	if err := c.SubResource(subresource).Update(ctx, object, options...); err != nil {
		return err
	}
	nodeType := object.(*v1alpha1.NodeType)
	text := fmt.Sprintf(`{"f:status":%q}`, strings.Repeat("x", 1500))
	nodeType.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(text)}}
	b.written = append(b.written, sent{b.clock.Now(), tenants * size(nodeType)})
	b.longest = max(b.longest, b.clock.Since(b.changed[nodeType.Name]))
	delete(b.changed, nodeType.Name)
	b.enqueue(nodeType.Name, 0) // the event of the write
	return nil
}

// enqueue does as a workqueue: the sooner time counts.
func (b *burst) enqueue(name string, after time.Duration) {
	if due, waits := b.due[name]; !waits || b.clock.Now().Add(after).Before(due) {
		b.due[name] = b.clock.Now().Add(after)
	}
}

// pass lets time pass, with a claim every so often if that is not zero.
func (b *burst) pass(long time.Duration, nodeTypes int, claimEvery time.Duration) {
	b.Helper()
	const tick = 20 * time.Millisecond
	claims := 0
	for passed := time.Duration(0); passed < long; passed += tick {
		for ; claimEvery > 0 && time.Duration(claims)*claimEvery <= passed; claims++ {
			host := env.AvailableHost(namespace, fmt.Sprintf("s%d", claims), labelsOf(claims, nodeTypes))
			host.Spec.ConsumerRef = &corev1.ObjectReference{Namespace: "t", Name: "m", Kind: "Machine", APIVersion: "x/v1"}
			b.inventory.SetHost(host)
		}
		for _, name := range slices.Sorted(maps.Keys(b.due)) {
			if b.due[name].After(b.clock.Now()) {
				continue
			}
			delete(b.due, name)
			result, err := b.controller.Reconcile(b.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
			if err != nil {
				b.Fatal(err)
			}
			if result.RequeueAfter > 0 {
				b.enqueue(name, result.RequeueAfter)
			}
		}
		b.clock.Step(tick)
	}
}

// TestBurst: while 1,500 servers of ten thousand are claimed within half a minute, a hundred providers are sent no more than the bound,
// whatever types the servers are of. All is written in the end, and no type waits for longer than all of them together take.
func TestBurst(t *testing.T) {
	const bound = 2 << 20
	for _, nodeTypes := range []int{1, 10, 100} {
		t.Run(fmt.Sprintf("types=%d", nodeTypes), func(t *testing.T) {
			t.Parallel()
			b := newBurst(t, nodeTypes)
			b.pass(5*time.Minute, nodeTypes, 0) // the first statuses
			if len(b.written) != nodeTypes {
				t.Fatalf("%d statuses are written at first, want %d", len(b.written), nodeTypes)
			}
			b.written, b.longest = nil, 0
			b.pass(30*time.Second, nodeTypes, 20*time.Millisecond)
			b.pass(3*time.Minute, nodeTypes, 0)

			var most, total int64
			for _, write := range b.written {
				most, total = max(most, write.bytes), total+write.bytes
			}
			for i := range b.written {
				sum := -most // each lane may begin with one
				for _, write := range b.written[i:] {
					sum += write.bytes
					if within := write.when.Sub(b.written[i].when).Seconds(); float64(sum) > bound*within+float64(most) {
						t.Fatalf("%d KiB are sent within %.1f s, want at most %d KiB a second", sum>>10, within, bound>>10)
					}
				}
			}
			t.Logf("%d statuses, %d MiB, the longest wait is %v", len(b.written), total>>20, b.longest)
			// What statuses grow by meanwhile is made up for, too.
			longest := batchPeriod + time.Duration(1.1*float64(int64(nodeTypes)*most)/countBytesPerSecond*float64(time.Second))
			if b.longest > longest {
				t.Errorf("a type waits for %v, want at most %v", b.longest, longest)
			}
			list := &v1alpha1.NodeTypeList{}
			if err := b.api.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			claimed := int32(0)
			for i := range list.Items {
				claimed += list.Items[i].Status.Capacity.Claimed
			}
			if claimed != 1500 {
				t.Errorf("%d servers are claimed in the end, want 1500", claimed)
			}
		})
	}
}
