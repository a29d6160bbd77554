// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	machines "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/machine"
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

// TestSmallNodes: the nodes of two namespaces that are smaller than their type may be are for operators to look at, and
// change the type for nobody.
func TestSmallNodes(t *testing.T) {
	f := newFleet(t, nil)
	other := environment.Namespace(t)
	joined := func(namespace, name string, resources ...string) *v1alpha1.Machine {
		t.Helper()
		return f.joined(namespace, name, env.Resources(resources...))
	}
	told := func(want string) {
		t.Helper()
		var last string
		poll.Eventually(f, "operators are told: "+want, func(context.Context) error {
			for len(f.events.Events) > 0 {
				if event := <-f.events.Events; strings.Contains(event, v1alpha1.ReasonNodesSmaller) {
					last = event
				}
			}
			if last != "Warning NodesSmallerThanType "+want {
				return fmt.Errorf("the last event is %q", last)
			}
			return nil
		})
	}
	f.inspect(f.host("server-01"), 96, 768)
	joined(f.namespace, "bigger", "cpu", "128", "memory", "1Ti")
	joined(f.namespace, "usual", "cpu", "96", "memory", "762839Mi")
	first := joined(f.namespace, "tiny", "cpu", "96", "memory", "1Ki")
	f.start()
	tiny := fmt.Sprintf("%s/tiny on %s/tiny (memory 1Ki of 768Gi)", f.namespace, f.namespace)
	const ends = ": look at the servers, or correct resources. Pods of others are planned with what the type says"
	told("nodes have less than the type says, as their tenants report: " + tiny + ends)
	joined(other, "tiny", "cpu", "1m", "memory", "1Ki")
	both := []string{tiny, fmt.Sprintf("%s/tiny on %s/tiny (cpu 1m of 96, memory 1Ki of 768Gi)", other, f.namespace)}
	slices.Sort(both)
	told("nodes have less than the type says, as their tenants report: " + strings.Join(both, ", ") + ends)
	if choice, err := f.inventory.Choose(inventory.Request{Machine: "m", Resources: env.Resources("cpu", "90", "memory", "700Gi",
		"nvidia.com/gpu", "8"), Requirements: []corev1.NodeSelectorRequirement{{Key: v1alpha1.NodeTypeLabelKey,
		Operator: corev1.NodeSelectorOpIn, Values: []string{f.nodeType.Name}}}}); err != nil {
		t.Errorf("two namespaces say that there is less: %+v, %v", choice, err)
	}
	f.edit(func(nodeType *v1alpha1.NodeType) {
		nodeType.Spec.Resources = env.Resources("cpu", "96", "memory", "1Ki")
	})
	told("nodes have less than the type says, as their tenants report: " +
		fmt.Sprintf("%s/tiny on %s/tiny (cpu 1m of 96)", other, f.namespace) + ends)
	for _, amount := range []string{"-1", "0", "-1Gi"} {
		before := first.DeepCopy()
		first.Spec.Node.Resources = env.Resources("memory", amount)
		err := environment.Client.Patch(t.Context(), first, client.MergeFrom(before))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "more than 0") {
			t.Errorf("memory %s of a node: %v, want that it is invalid", amount, err)
		}
		first = before
	}
}

// TestTenantsShrinkNoType: a customer with two namespaces claims a server of each type in each, says that its nodes are
// tiny, before and after they have joined, and gives them back. Another tenant that asks for nearly a whole server gets
// one, meanwhile and afterwards.
func TestTenantsShrinkNoType(t *testing.T) {
	const types, second = 10, "acme-prod"
	c := management.New(t, nil)
	c.CreateHosts(t, 4*types)
	c.PlayMetal3(t)
	for namespace, name := range map[string]string{"globex": "globex", second: "tenant"} {
		tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		tenant.Spec.APIServerEndpoint = name + ".example.com:6443"
		for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, tenant, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: management.UserDataName},
			Data:       map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config")}}} {
			if err := c.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	// machine is one of two of each type: the first of each is in one namespace, and the second in another.
	machine := func(n int) *v1alpha1.Machine {
		machine := management.Machine(n)
		if n >= types {
			machine.Namespace = second
		}
		return machine
	}
	hosts, recorder := inventory.NewInventory(inventory.Options{}), events.NewFakeRecorder(10000)
	run(t, c.Environment, hosts, recorder, func(mgr manager.Manager) registrar {
		return nodeprovider.NewController(mgr.GetClient(), mgr.GetAPIReader(), hosts, recorder, clock.RealClock{})
	}, func(mgr manager.Manager) registrar {
		return machines.New(machines.Dependencies{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Inventory: hosts, Recorder: recorder,
			Clock: clock.RealClock{}, Record: usage.Record{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: clock.RealClock{}}})
	})

	// until waits until it is so for the liar's Machine of each type.
	until := func(what string, so func(*v1alpha1.Machine, *v1alpha1.NodeType) bool) {
		t.Helper()
		poll.Eventually(t, what, func(ctx context.Context) error {
			for n := range 2 * types {
				machine, nodeType := machine(n), &v1alpha1.NodeType{}
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
		for n := range 2 * types {
			machine := machine(n)
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
		machine.Spec.Requirements = []corev1.NodeSelectorRequirement{{Key: v1alpha1.NodeTypeLabelKey, Operator: corev1.NodeSelectorOpIn,
			Values: []string{management.Machine(1).Spec.NodeTypeRef.Name}}} // whose nodes have joined
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
	until("the liars have servers", func(machine *v1alpha1.Machine, _ *v1alpha1.NodeType) bool { return machine.Status.ProviderID != "" })
	each(func(n int, machine *v1alpha1.Machine) error {
		machine.Spec.Node = &v1alpha1.MachineNode{Resources: env.Resources("cpu", "1", "memory", "1Ki")}
		if n%2 > 0 {
			machine.Spec.Node.Name = machine.Name
		}
		return c.Client.Update(t.Context(), machine)
	})
	until("half of the nodes have joined", func(machine *v1alpha1.Machine, _ *v1alpha1.NodeType) bool {
		return machine.HasJoined() == (machine.Spec.Node.Name != "") &&
			meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionProvisioned)
	})
	reports := 0
	poll.Eventually(t, "the manager knows what they report", func(context.Context) error {
		for len(recorder.Events) > 0 {
			if strings.Contains(<-recorder.Events, v1alpha1.ReasonNodesSmaller) {
				reports++
			}
		}
		if reports < types/2 {
			return fmt.Errorf("%d types have small nodes", reports)
		}
		return nil
	})
	granted("meanwhile")
	each(func(_ int, machine *v1alpha1.Machine) error { return c.Client.Delete(t.Context(), machine) })
	until("all are given back", func(machine *v1alpha1.Machine, nodeType *v1alpha1.NodeType) bool {
		return machine.UID == "" && nodeType.Status.Capacity.Available >= 3
	})
	granted("afterwards")
}
