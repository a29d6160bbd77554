// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/machine"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodeprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// joined creates a Machine whose server has become a node of that size.
func (f *fleet) joined(namespace, name string, size corev1.ResourceList) *v1alpha1.Machine {
	f.Helper()
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: f.nodeType.Name}
	machine.Spec.Node = &v1alpha1.MachineNode{Resources: size}
	f.create(machine)
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: f.nodeType.Name}
	machine.Status.HostRef = &v1alpha1.HostReference{Namespace: f.namespace, Name: name, UID: "1"}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionJoined, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonJoined})
	if err := environment.Client.Status().Update(f.Context(), machine); err != nil {
		f.Fatal(err)
	}
	return machine
}

// TestNodesShowAccelerators: what nodes advertise after they have joined counts once a second namespace reports it, and no longer than the
// type names nothing.
func TestNodesShowAccelerators(t *testing.T) {
	f := newFleet(t, func(nodeType *v1alpha1.NodeType) { nodeType.Spec.Resources = nil })
	f.inspect(f.host("server-01"), 96, 768)
	first, second := f.joined(f.namespace, "first", nil), f.joined(environment.Namespace(t), "second", nil)
	f.start()
	report := func(machine *v1alpha1.Machine) {
		t.Helper()
		machine.Spec.Node.Accelerators = []string{"nvidia.com/gpu"}
		if err := environment.Client.Update(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	eventually := func(why string, want ...string) {
		t.Helper()
		poll.Eventually(f, why, func(ctx context.Context) error {
			got := &v1alpha1.NodeType{}
			if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.nodeType), got); err != nil {
				return err
			}
			if got.Status.ObservedGeneration != got.Generation || !slices.Equal(got.Status.FoundAccelerators, want) {
				return fmt.Errorf("status.foundAccelerators is %v, want %v", got.Status.FoundAccelerators, want)
			}
			return nil
		})
	}
	report(first)
	f.fitsWith("one namespace has said so", true, "cpu", "1")
	report(second)
	eventually("a second namespace reports it", "nvidia.com/gpu")
	f.fitsWith("pods without GPUs are kept off", false, "cpu", "1")
	f.edit(func(nodeType *v1alpha1.NodeType) { nodeType.Spec.Resources = env.Resources("nvidia.com/gpu", "8") })
	eventually("the type says it itself")
	f.fitsWith("they can be asked for", true, "nvidia.com/gpu", "8")
}

// TestSmallestNode: the manager learns from Machines how big nodes of a type really are, and forgets it with them.
func TestSmallestNode(t *testing.T) {
	f := newFleet(t, nil)
	other := environment.Namespace(t)
	joined := func(namespace, name string, resources ...string) *v1alpha1.Machine {
		t.Helper()
		return f.joined(namespace, name, env.Resources(resources...))
	}
	eventually := func(why string, pairs ...string) {
		t.Helper()
		want := env.Resources(pairs...)
		poll.Eventually(f, why, func(ctx context.Context) error {
			got := &v1alpha1.NodeType{}
			if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.nodeType), got); err != nil {
				return err
			}
			if diff := cmp.Diff(want, got.Status.SmallestNode); diff != "" {
				return fmt.Errorf("status.smallestNode (-want +got):\n%s", diff)
			}
			f.nodeType = got
			return nil
		})
	}
	joined(f.namespace, "before", "cpu", "96", "memory", "760Gi")
	f.start()
	eventually("one that was there before the manager", "cpu", "96", "memory", "760Gi")
	joined(f.namespace, "bigger", "cpu", "96", "memory", "765Gi")
	smaller := joined(f.namespace, "smaller", "cpu", "96", "memory", "752Gi")
	eventually("the least", "cpu", "96", "memory", "752Gi")
	absurd := joined(f.namespace, "absurd", "cpu", "1", "memory", "1Ki")
	eventually("one namespace makes it no smaller than inspection tolerates", "cpu", "96", "memory", "762839Mi")
	for range len(f.events.Events) {
		<-f.events.Events // that there is no server
	}
	agrees := joined(other, "agrees", "cpu", "96", "memory", "384Gi")
	eventually("another namespace has seen a small one, too", "cpu", "96", "memory", "384Gi")
	want := fmt.Sprintf("Warning NodesSmallerThanType all tenants are planned with memory 384Gi instead of 762839Mi, because nodes of "+
		"namespaces %s and %s have no more: look at their servers, or correct resources", min(f.namespace, other), max(f.namespace, other))
	if event := <-f.events.Events; event != want {
		t.Errorf("got event %q, want %q", event, want)
	}
	f.nodeType.Spec.Resources = env.Resources("cpu", "48", "memory", "384Gi")
	if err := environment.Client.Update(t.Context(), f.nodeType); err != nil {
		t.Fatal(err)
	}
	eventually("another spec is judged by the nodes that there are", "cpu", "48", "memory", "381419Mi")
	for _, gone := range []client.Object{agrees, absurd, smaller} {
		if err := environment.Client.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
	}
	eventually("what is gone counts no more", "cpu", "96", "memory", "760Gi")
	if len(f.events.Events) > 0 {
		t.Errorf("another event: %s", <-f.events.Events)
	}
}

// TestOneTenantShrinksNoType: a tenant claims a server of each type, says that its nodes are tiny, before and after they have joined, and
// gives them back. Another tenant that asks for nearly a whole server gets one, meanwhile and afterwards.
func TestOneTenantShrinksNoType(t *testing.T) {
	const types = 10
	c := management.New(t, nil)
	c.CreateHosts(t, 4*types)
	c.PlayMetal3(t)
	globex := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "globex", Name: "globex"}}
	globex.Spec.APIServerEndpoint = "globex.example.com:6443"
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "globex"}}, globex} {
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	hosts, recorder := inventory.NewInventory(inventory.Options{}), events.NewFakeRecorder(10000)
	run(t, c.Environment, hosts, recorder, func(mgr manager.Manager) registrar {
		return nodeprovider.NewController(mgr.GetClient(), mgr.GetAPIReader(), hosts, recorder, clock.RealClock{})
	}, func(mgr manager.Manager) registrar {
		return machine.New(machine.Dependencies{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Inventory: hosts, Recorder: recorder,
			Clock: clock.RealClock{}, Record: usage.Record{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}}})
	})

	// until waits until it is so for the liar's Machine of each type.
	until := func(what string, so func(*v1alpha1.Machine, *v1alpha1.NodeType) bool) {
		t.Helper()
		poll.Eventually(t, what, func(ctx context.Context) error {
			for n := range types {
				machine, nodeType := management.Machine(n), &v1alpha1.NodeType{}
				if err := c.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); client.IgnoreNotFound(err) != nil {
					return err
				}
				if err := c.Client.Get(ctx, client.ObjectKey{Name: machine.Spec.NodeTypeRef.Name}, nodeType); err != nil {
					return err
				}
				if !so(machine, nodeType) {
					return fmt.Errorf("it is not so for Machine %s of NodeType %s: %+v, %+v", machine.Name, nodeType.Name, machine.Status,
						nodeType.Status)
				}
			}
			return nil
		})
	}
	each := func(do func(n int, machine *v1alpha1.Machine) error) {
		t.Helper()
		for n := range types {
			machine := management.Machine(n)
			if err := client.IgnoreNotFound(c.Client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)); err != nil {
				t.Fatal(err)
			}
			if err := do(n, machine); err != nil {
				t.Fatal(err)
			}
		}
	}
	granted := func(name string) {
		t.Helper()
		machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "globex", Name: name}}
		machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "globex"}
		machine.Spec.Resources = env.Resources("cpu", "80", "memory", "700Gi", "nvidia.com/gpu", "8")
		if err := c.Client.Create(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
		poll.Eventually(t, "globex gets a server "+name, func(ctx context.Context) error {
			if err := c.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
				return err
			}
			if claimed := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionClaimed); claimed.Status != metav1.ConditionTrue {
				return fmt.Errorf("it has none: %s: %s", claimed.Reason, claimed.Message)
			}
			return nil
		})
	}

	each(func(_ int, machine *v1alpha1.Machine) error {
		machine.Spec.Bootstrap.DataSecretName = management.UserDataName
		return c.Client.Create(t.Context(), machine)
	})
	until("the liar has a server", func(machine *v1alpha1.Machine, _ *v1alpha1.NodeType) bool { return machine.Status.ProviderID != "" })
	each(func(n int, machine *v1alpha1.Machine) error {
		machine.Spec.Node = &v1alpha1.MachineNode{Resources: env.Resources("cpu", "1", "memory", "1Ki")}
		if n%2 > 0 {
			machine.Spec.Node.Name = machine.Name
		}
		return c.Client.Update(t.Context(), machine)
	})
	until("half of the nodes have joined", func(machine *v1alpha1.Machine, nodeType *v1alpha1.NodeType) bool {
		if machine.Spec.Node.Name == "" {
			return meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionProvisioned) && nodeType.Status.SmallestNode == nil
		}
		want := env.Resources("cpu", "96", "memory", "762839Mi")
		return cmp.Equal(want, nodeType.Status.SmallestNode)
	})
	granted("meanwhile")
	each(func(_ int, machine *v1alpha1.Machine) error { return c.Client.Delete(t.Context(), machine) })
	until("all are given back", func(machine *v1alpha1.Machine, nodeType *v1alpha1.NodeType) bool {
		return machine.UID == "" && nodeType.Status.Capacity.Available >= 3 && nodeType.Status.SmallestNode == nil
	})
	granted("afterwards")
}
