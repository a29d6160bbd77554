// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// A tenant gets no more servers than its quota, however many Machines ask, and the rest when the quota is raised.
func TestTenantQuota(t *testing.T) {
	w := newFixture(t, 5)
	setQuota := func(servers int64) {
		t.Helper()
		update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
			tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(servers)}
		})
	}
	claimed := func() (count int) {
		for _, host := range w.hosts() {
			if host.Spec.ConsumerRef != nil {
				count++
			}
		}
		return count
	}
	refused := func() (count int) {
		for _, machine := range w.machines() {
			if condition(&machine, v1alpha1.ConditionClaimed).Reason == v1alpha1.ReasonQuotaExceeded && machine.Status.HostRef == nil {
				count++
			}
		}
		return count
	}
	setQuota(2)
	for n := range 4 {
		w.machine(fmt.Sprintf("m-%d", n), nil)
	}
	manager := w.start(w.client)
	running := func() *process { return manager }
	w.until("two claimed and two refused", running, func() bool { return claimed() == 2 && refused() == 2 })
	setQuota(4)
	w.until("all claimed", running, func() bool { return claimed() == 4 && refused() == 0 })
}

// TestTenantQuotaOfTypes: a tenant gets no more servers of a type than its quota of the type, another type instead if
// that fits, and the rest when the quota is raised. A refusal names the type and the number of its servers.
func TestTenantQuotaOfTypes(t *testing.T) {
	w := newFixtureOn(t, &environment, 6)
	cheap := &v1alpha1.NodeType{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.nodeType}, cheap); err != nil {
		t.Fatal(err)
	}
	dear := "dear-" + w.metal3
	w.create(&v1alpha1.NodeType{ObjectMeta: metaName(dear), Spec: *cheap.Spec.DeepCopy()})
	setQuota := func(cheapest, other v1alpha1.ServerCount) {
		update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
			tenant.Spec.Quota = &v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{w.nodeType: cheapest, dear: other}}
		})
	}
	count := func() (served map[string]int, refused map[string]int) {
		served, refused = map[string]int{}, map[string]int{}
		for _, machine := range w.machines() {
			claimed := condition(&machine, v1alpha1.ConditionClaimed)
			switch {
			case machine.Status.ProviderID != "":
				served[machine.Status.NodeTypeRef.Name]++
			case machine.Status.HostRef == nil && claimed.Reason == v1alpha1.ReasonQuotaExceeded:
				refused[claimed.Message]++
			}
		}
		return served, refused
	}
	message := func(nodeType string, servers int) string {
		return fmt.Sprintf("TenantCluster %[1]s/tenant has %[3]d servers of NodeType %[2]s and its "+
			"spec.quota.nodeTypes[%[2]s] is %[3]d: raise the "+
			"quota, or release a server", w.tenant, nodeType, servers)
	}
	ofAnyType := func(machine *v1alpha1.Machine) {
		machine.Spec.NodeTypeRef, machine.Spec.Resources = nil, env.Resources("cpu", "1")
		machine.Spec.Requirements = []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable,
			Operator: corev1.NodeSelectorOpExists}}
	}
	setQuota(1, 2)
	for n := range 5 {
		w.machine(fmt.Sprintf("any-%d", n), ofAnyType)
	}
	manager := w.start(w.client)
	profile := w.profile()
	profile.Name, profile.Cost = dear, 2
	manager.inventory.SetType(profile)
	running := func() *process { return manager }
	until := func(what string, served, refused map[string]int) {
		t.Helper()
		var gotServed, gotRefused map[string]int
		w.until(what, running, func() bool {
			gotServed, gotRefused = count()
			return maps.Equal(gotServed, served) && maps.Equal(gotRefused, refused)
		})
	}
	until("one of the cheapest and two of the other", map[string]int{w.nodeType: 1, dear: 2},
		map[string]int{message(w.nodeType, 1): 2})
	w.machine("named", func(machine *v1alpha1.Machine) { machine.Spec.NodeTypeRef.Name = dear })
	until("no third of the other for a Machine that names it", map[string]int{w.nodeType: 1, dear: 2},
		map[string]int{message(w.nodeType, 1): 2, message(dear, 2): 1})
	setQuota(2, 3)
	until("one more of each", map[string]int{w.nodeType: 2, dear: 3}, map[string]int{message(dear, 3): 1})
}

// TestTenantQuotaConcurrently has the workers of the controller and the loop of the scheduler decide on Machines of one tenant at
// the same time. The claims are counted at each write of a host, so that not even for a moment are there more than the quota.
func TestTenantQuotaConcurrently(t *testing.T) {
	for name, tc := range map[string]struct {
		reason        string
		first, raised v1alpha1.Quota
		ofType        bool // the numbers of servers are about the type
	}{
		"Servers": {"servers are counted", v1alpha1.Quota{Servers: ptr.To(int64(4))},
			v1alpha1.Quota{Servers: ptr.To(int64(7))}, false},
		"OfType": {"so are those of a type", v1alpha1.Quota{Servers: ptr.To(int64(4))},
			v1alpha1.Quota{Servers: ptr.To(int64(7))}, true},
		"GPUs": {"so are accelerators, of which each server has two and one more does not get a server",
			v1alpha1.Quota{GPUs: ptr.To(int64(9))}, v1alpha1.Quota{GPUs: ptr.To(int64(15))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Log(tc.reason)
			const wanting, first, raised = 14, 4, 7
			w := newFixture(t, wanting)
			update(w, &v1alpha1.NodeType{ObjectMeta: metaName(w.nodeType)}, func(nodeType *v1alpha1.NodeType) {
				nodeType.Spec.Resources = env.Resources("cpu", "8", "memory", "32Gi", "nvidia.com/gpu", "2")
			})
			setQuota := func(quota v1alpha1.Quota) {
				if tc.ofType {
					servers := v1alpha1.ServerCount(*quota.Servers)
					quota = v1alpha1.Quota{NodeTypes: map[string]v1alpha1.ServerCount{w.nodeType: servers}}
				}
				update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
					tenant.Spec.Quota = &quota
				})
			}
			setQuota(tc.first)
			c := &concurrent{limit: first, refusals: wanting - first, refused: map[string]bool{}}
			c.more.L = &c.lock
			manager := w.start(interceptor.NewClient(w.api.Client, interceptor.Funcs{Patch: c.patch, SubResourcePatch: c.patchStatus}))
			c.process = manager
			for _, host := range w.hosts() {
				manager.inventory.SetHost(&host)
			}
			c.run(t)
			for n := range wanting {
				c.queue.Add(reconcile.Request{NamespacedName: w.machine(fmt.Sprintf("m-%02d", n), nil)})
			}
			c.until(t, first, wanting-first)
			c.setLimit(raised)
			setQuota(tc.raised)
			manager.scheduler.move(objectChanged) // as the watch of TenantClusters does
			c.until(t, raised, wanting-raised)
		})
	}
}

// update changes an object.
func update[T client.Object](w *fixture, object T, change func(T)) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		w.t.Fatal(err)
	}
	change(object)
	if err := w.client.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

// concurrent is a process with its workers and its scheduler.
type concurrent struct {
	*process
	queue queue

	lock     sync.Mutex
	limit    int
	exceeded string
	// choices have been made and not been written, refused Machines have been told so, and refusals are all that there will be. more
	// is signalled when there are more of them.
	choices, refusals int
	refused           map[string]bool
	more              sync.Cond
}

// patchStatus writes a status, but that a server has been chosen only once all workers have chosen one, or every other Machine has
// been refused: until then no worker can learn from the API server what the others have been given.
func (c *concurrent) patchStatus(ctx context.Context, direct client.Client, resource string, object client.Object, patch client.Patch,
	options ...client.SubResourcePatchOption) error {
	status := object.(*v1alpha1.Machine).Status
	if status.HostRef != nil && status.ProviderID == "" {
		c.lock.Lock()
		c.choices++
		c.more.Broadcast()
		for c.choices < workers && len(c.refused) < c.refusals {
			c.more.Wait()
		}
		c.lock.Unlock()
	}
	err := direct.SubResource(resource).Patch(ctx, object, patch, options...)
	if err == nil && condition(object.(*v1alpha1.Machine), v1alpha1.ConditionClaimed).Reason == v1alpha1.ReasonQuotaExceeded {
		c.lock.Lock()
		defer c.lock.Unlock()
		c.refused[object.GetName()] = true
		c.more.Broadcast()
	}
	return err
}

// patch counts the claims after a write of a host, and has the inventory know the host, as the watch does.
func (c *concurrent) patch(ctx context.Context, direct client.WithWatch, object client.Object, patch client.Patch,
	options ...client.PatchOption) error {
	err := direct.Patch(ctx, object, patch, options...)
	host, ok := object.(*bmov1alpha1.BareMetalHost)
	if err != nil || !ok {
		return err
	}
	c.inventory.SetHost(host)
	c.lock.Lock()
	defer c.lock.Unlock()
	if claimed, _ := c.counts(); claimed > c.limit {
		c.exceeded = fmt.Sprintf("%d servers are claimed, and the quota is for %d", claimed, c.limit)
	}
	return nil
}

func (c *concurrent) setLimit(limit int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.limit = limit
}

// counts are the servers that are claimed, and the Machines that are refused for the quota.
func (c *concurrent) counts() (claimed, refused int) {
	for _, host := range c.fixture.hosts() {
		if host.Spec.ConsumerRef != nil {
			claimed++
		}
	}
	for _, machine := range c.fixture.machines() {
		if condition(&machine, v1alpha1.ConditionClaimed).Reason == v1alpha1.ReasonQuotaExceeded && machine.Status.HostRef == nil {
			refused++
		}
	}
	return claimed, refused
}

// run starts the workers and the scheduler, and stops them at the end of the test.
func (c *concurrent) run(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	c.scheduler.listen()
	if err := c.scheduler.start(ctx, c.queue); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = c.scheduler.run(ctx, c.deadlines.beat) })
	for range workers {
		running.Go(func() {
			for {
				request, shutdown := c.queue.Get()
				if shutdown {
					return
				}
				result, err := c.Reconcile(ctx, request)
				if err != nil {
					c.queue.AddRateLimited(request)
				} else if result.RequeueAfter > 0 {
					c.queue.AddAfter(request, result.RequeueAfter)
				}
				c.queue.Done(request)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		c.lock.Lock()
		c.refusals = 0
		c.more.Broadcast()
		c.lock.Unlock()
		c.queue.ShutDown()
		running.Wait()
	})
}

// until waits until so many servers are claimed and so many Machines are refused.
func (c *concurrent) until(t *testing.T, claimed, refused int) {
	t.Helper()
	poll.Eventually(t, fmt.Sprintf("%d claimed and %d refused", claimed, refused), func(context.Context) error {
		c.lock.Lock()
		defer c.lock.Unlock()
		if c.exceeded != "" {
			t.Fatal(c.exceeded)
		}
		if gotClaimed, gotRefused := c.counts(); gotClaimed != claimed || gotRefused != refused {
			return fmt.Errorf("%d servers are claimed and %d Machines refused", gotClaimed, gotRefused)
		}
		return nil
	})
}
