// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// has waits until the status has that cost and these resources.
func (f *fleet) has(why string, cost int64, pairs ...string) {
	f.Helper()
	want := env.Resources(pairs...)
	if len(pairs) == 0 {
		want = nil
	}
	poll.Eventually(f, why, func(ctx context.Context) error {
		got := &v1alpha1.NodeType{}
		if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(f.nodeType), got); err != nil {
			return err
		}
		if diff := cmp.Diff(want, got.Status.Resources); diff != "" || got.Status.Cost != cost {
			return fmt.Errorf("it costs %d, want %d; status.resources (-want +got):\n%s", got.Status.Cost, cost, diff)
		}
		return nil
	})
}

// fitsWith waits until the inventory gives a server to a Machine that asks for so much, or does not.
func (f *fleet) fitsWith(why string, given bool, pairs ...string) {
	f.Helper()
	poll.Eventually(f, why, func(context.Context) error {
		_, err := f.inventory.Choose(inventory.Request{Machine: "m", Resources: env.Resources(pairs...)})
		if (err == nil) != given {
			return fmt.Errorf("asking for %v: %v", pairs, err)
		}
		return nil
	})
}

func (f *fleet) delete(host *bmov1alpha1.BareMetalHost) {
	f.Helper()
	if err := environment.Client.Delete(f.Context(), host); err != nil {
		f.Fatal(err)
	}
}

// TestResourcesOfInspectedServers: a type that leaves out its resources is as big as the smallest of its servers, as soon as Metal3
// has inspected one, and stays so when there is none any more.
func TestResourcesOfInspectedServers(t *testing.T) {
	f := newFleet(t, func(nodeType *v1alpha1.NodeType) { nodeType.Spec.Resources = nil })
	first := f.host("server-01")
	f.start()
	const leavesOut, noAccelerators = "resources leaves out cpu and memory",
		"; it names no accelerators: pods that ask for GPUs do not get it, and all others do; write nvidia.com/gpu if its servers have GPUs"
	f.eventually("the server has not been inspected", v1alpha1.Capacity{Total: 1}, v1alpha1.ReasonSynced, v1alpha1.ReasonResourcesUnknown,
		leavesOut+", and Metal3 has inspected none of the servers yet: 1 server matches, 0 claimed, 0 in error, 1 not ready"+noAccelerators)
	f.has("nothing is known", 0)
	fits := func(want metav1.Condition) {
		t.Helper()
		if diff := cmp.Diff(want, f.fits()); diff != "" {
			t.Errorf("HardwareFits (-want +got):\n%s", diff)
		}
	}
	fits(metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonResourcesUnknown,
		Message: leavesOut + ", and Metal3 has inspected no server"})

	f.inspect(first, 96, 768)
	f.eventually("it has been inspected", v1alpha1.Capacity{Total: 1, Available: 1}, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"1 server matches, 0 claimed, 0 in error, 1 available")
	f.has("96 x 10 + 768 x 2", 2496, "cpu", "96", "memory", "768Gi")
	f.fitsWith("what was found counts", true, "cpu", "90", "memory", "700Gi")
	least := func(server string, cpus, memory int) {
		t.Helper()
		fits(metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBigEnough, Message: fmt.Sprintf("%s, of which the least "+
			"that Metal3 has found counts: cpu %d in %s/%s, memory %dGi in %[3]s/%[4]s%[6]s", leavesOut, cpus, f.namespace, server, memory,
			noAccelerators)})
	}
	least("server-01", 96, 768)

	// A smaller server makes the type smaller, and the event names it.
	second := f.host("server-02")
	f.inspect(second, 64, 512)
	f.has("the least of two servers", 1664, "cpu", "64", "memory", "512Gi")
	f.fitsWith("not every server of the type would do", false, "cpu", "90", "memory", "700Gi")
	least("server-02", 64, 512)
	for _, name := range []string{"cpu", "memory"} {
		want := map[string]string{"cpu": "cpu is 64 instead of 96", "memory": "memory is 512Gi instead of 768Gi"}[name]
		want = fmt.Sprintf("Warning ResourcesLowered %s, because server %s/server-02 has no more and resources leaves it out: name %s in "+
			"resources, or correct the labels of the server", want, f.namespace, name)
		if event := <-f.events.Events; event != want {
			t.Errorf("event %q, want %q", event, want)
		}
	}

	// A label shows accelerators that no one can ask for: pods without are kept off. A Machine of a static NodePool is not.
	label := func(value string) {
		t.Helper()
		second.Labels["gpu-model"] = value
		if err := environment.Client.Update(t.Context(), second); err != nil {
			t.Fatal(err)
		}
	}
	label("a100")
	least = func(server string, cpus, memory int) {
		t.Helper()
		fits(metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBigEnough, Message: fmt.Sprintf("%s, of which the least "+
			"that Metal3 has found counts: cpu %d in %s/%s, memory %dGi in %[3]s/%[4]s; it names no accelerators, although its servers show some "+
			"(gpu-model=a100): only static pools and Machines that name the type get it; write nvidia.com/gpu for pods that ask for GPUs",
			leavesOut, cpus, f.namespace, server, memory)})
	}
	f.fitsWith("they would use GPUs without need", false, "cpu", "1")
	f.fitsWith("it asks for nothing but a type", true)
	least("server-02", 64, 512)
	label("none")
	f.fitsWith("it has none after all", true, "cpu", "1")

	// Without it the type is as before, and without any server it stays as it is, for the nodes that run.
	f.delete(second)
	f.has("the smallest server is gone", 2496, "cpu", "96", "memory", "768Gi")
	f.delete(first)
	f.eventually("all are gone", v1alpha1.Capacity{}, v1alpha1.ReasonSynced, v1alpha1.ReasonNoHosts,
		fmt.Sprintf("no BareMetalHost of NodeProvider %s matches %q: label the servers, or correct bareMetalHosts.selector", f.provider.Name,
			"gpu=h100"))
	f.has("what was known stays", 2496, "cpu", "96", "memory", "768Gi")

	// What the spec says wins, and what it leaves out is found.
	f.edit(func(nodeType *v1alpha1.NodeType) {
		nodeType.Spec.Resources = env.Resources("nvidia.com/gpu", "8", "cpu", "48")
	})
	f.has("48 x 10 + 768 x 2 + 8 x 10000", 82016, "cpu", "48", "memory", "768Gi", "nvidia.com/gpu", "8")
	f.inspect(f.host("server-03"), 64, 1024)
	f.has("memory is found", 82528, "cpu", "48", "memory", "1Ti", "nvidia.com/gpu", "8")
	f.fitsWith("with accelerators", true, "nvidia.com/gpu", "8", "memory", "900Gi")
}

// TestBareMetalHostsLeftOut: a type that selects nothing has no servers, and says so, unless its annotation names it.
func TestBareMetalHostsLeftOut(t *testing.T) {
	for name, hosts := range map[string]*v1alpha1.HostSelection{"BareMetalHosts": nil, "Selector": {}} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, func(nodeType *v1alpha1.NodeType) { nodeType.Spec.BareMetalHosts = hosts })
			f.host("server-01")
			f.start()
			const noSelector = "bareMetalHosts is left out: the type has no servers until it names a selector, or is named in the annotation " +
				"karpenter.metal3.io/select-all-hosts"
			f.eventually("it selects none", v1alpha1.Capacity{}, v1alpha1.ReasonSynced, v1alpha1.ReasonNoSelector, noSelector)
			if event := <-f.events.Events; event != "Warning NoSelector "+noSelector {
				t.Errorf("event %q", event)
			}
			f.edit(func(nodeType *v1alpha1.NodeType) {
				nodeType.Annotations = map[string]string{v1alpha1.SelectAllHostsAnnotationKey: "other, " + nodeType.Name}
			})
			f.eventually("the annotation says that all are meant", v1alpha1.Capacity{Total: 1, Available: 1}, v1alpha1.ReasonSynced,
				v1alpha1.ReasonAvailable, "1 server matches, 0 claimed, 0 in error, 1 available")
		})
	}
}
