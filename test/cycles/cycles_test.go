// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cycles claims, provisions and releases servers many times, and fails if anything is left behind.
package cycles

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const (
	servers = 4
	// fewCycles show leftovers of a cycle; a leak in the manager shows only after manyCycles.
	fewCycles, manyCycles = 50, 500
	// warmupCycles is the number of cycles after which the manager's caches do not grow any more.
	warmupCycles = 100
	// perCycle is how many bytes of live memory a cycle may keep for a while: its events, which client-go's recorder
	// caches for at least six minutes to aggregate them, need less than half of that. slack is the variation between
	// two measurements.
	perCycle, slack = 16 << 10, 1 << 20
)

// TestCycles claims, provisions and releases servers 50 times: all objects and servers are as before.
func TestCycles(t *testing.T) {
	newFixture(t).check(t, 0, fewCycles)
}

// TestManyCycles does it 500 times, and measures the memory and the goroutines of the manager.
func TestManyCycles(t *testing.T) {
	system.Only(t)
	// Live memory is known only after a garbage collection: run one for every 5% that the heap grows.
	w := newFixture(t, "GOGC=5")
	samples := []management.Metrics{}
	const live, goroutines = "go_gc_heap_live_bytes", "go_goroutines"
	for from := 0; from < manyCycles; from += warmupCycles {
		w.check(t, from, from+warmupCycles)
		samples = append(samples, w.manager.Metrics(t))
	}
	early, limits := samples[0], map[string]float64{}
	limits[live] = early[live] + slack + perCycle*(manyCycles-warmupCycles)
	limits[goroutines] = early[goroutines] + 20
	// What goes by itself is no leak: a busy manager has goroutines that wait, and memory that is not collected yet.
	poll.Eventually(t, "the manager's memory and goroutines are within their limits", func(context.Context) error {
		late := w.manager.Metrics(t)
		samples[len(samples)-1] = late
		for name, limit := range limits {
			if early[name] == 0 || late[name] > limit {
				return fmt.Errorf("%s went from %.0f to %.0f in %d cycles, want at most %.0f", name, early[name], late[name],
					manyCycles-warmupCycles, limit)
			}
		}
		return nil
	})
	for n, sample := range samples {
		t.Logf("after %d cycles: %.2f MiB live, %.0f goroutines, %.0f MiB resident", (n+1)*warmupCycles, sample[live]/(1<<20), sample[goroutines],
			sample.Resident()/(1<<20))
	}
}

// fixture is a cluster with a manager, and its state before the first cycle.
type fixture struct {
	cluster *management.Cluster
	manager *management.Manager
	objects []string
	hosts   []bmov1alpha1.BareMetalHost
}

// newFixture starts the manager. Each Machine gets user data, and an address of a pool that is only a little larger than
// the fleet.
func newFixture(t *testing.T, environment ...string) *fixture {
	t.Helper()
	cluster := management.New(t, map[string]string{
		v1alpha1.PropertyNetworkCIDR: "192.168.100.1/24", v1alpha1.PropertyNetworkIPRange: "192.168.100.10-192.168.100.15",
	})
	cluster.CreateHosts(t, servers)
	annotate(t, cluster, "server-00000", map[string]string{v1alpha1.IPAddressAnnotationKey: "10.0.0.9/24", "other": "1"})
	w := &fixture{cluster: cluster, manager: cluster.StartManager(t, environment...)}
	cluster.PlayMetal3(t)
	poll.Eventually(t, "there are NodeTypes", func(ctx context.Context) error {
		return cluster.Client.Get(ctx, client.ObjectKey{Name: "type-9"}, &v1alpha1.NodeType{})
	})
	w.objects, w.hosts = cluster.Objects(t), cluster.Hosts(t)
	return w
}

// check runs the cycles from one number to another, and fails if they leave anything behind.
func (w *fixture) check(t *testing.T, from, to int) {
	t.Helper()
	run(t, w.cluster, from, to)
	if diff := cmp.Diff(w.objects, slices.DeleteFunc(w.cluster.Objects(t), isRecord)); diff != "" {
		t.Errorf("after %d cycles there are other objects than before (-before +after):\n%s", to, diff)
	}
	for n, host := range w.cluster.Hosts(t) {
		if eligibility := inventory.EligibilityOf(&host); !eligibility.Claimable {
			t.Errorf("host %s is not available: it %s", host.Name, eligibility.Message)
		}
		if diff := cmp.Diff(w.hosts[n].Spec, host.Spec); diff != "" {
			t.Errorf("host %s (-before +after):\n%s", host.Name, diff)
		}
		if diff := cmp.Diff(w.hosts[n].Annotations, host.Annotations); diff != "" {
			t.Errorf("annotations of host %s (-before +after):\n%s", host.Name, diff)
		}
		record := &v1alpha1.HostUsage{}
		if err := w.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(&host), record); err != nil {
			t.Errorf("the record of host %s: %v", host.Name, err)
		}
		// Each cycle is one use. The lane of the host is its number.
		uses := len(record.Spec.Uses)
		for _, folded := range record.Spec.Folded {
			uses += int(folded.Count)
		}
		if want := (to - n + servers - 1) / servers; uses != want {
			t.Errorf("host %s has %d uses in its record after %d cycles, want %d", host.Name, uses, to, want)
		}
		for i, use := range record.Spec.Uses {
			if use.End == nil || i > 0 && use.Start.Time.Before(record.Spec.Uses[i-1].End.Time) {
				t.Errorf("host %s: use %d is open, or begins before the end of the one before: %v", host.Name, i, use)
			}
		}
	}
}

// isRecord is whether the line of an object is that of a record of who had a server, which is there to stay.
func isRecord(object string) bool { return strings.HasPrefix(object, "hostusages ") }

// run runs the cycles from one number to another, in sequence on each server.
func run(t *testing.T, cluster *management.Cluster, from, to int) {
	t.Helper()
	var lanes sync.WaitGroup
	for lane := range servers {
		lanes.Go(func() {
			for n := from + lane; n < to && !t.Failed(); n += servers {
				if err := cycle(t, cluster, n, lane); err != nil {
					t.Errorf("cycle %d: %v", n, err)
				}
			}
		})
	}
	lanes.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// cycle creates, provisions and deletes a Machine. Its server is the one of the lane, the only one of its type.
func cycle(t *testing.T, cluster *management.Cluster, n, lane int) error {
	machine := management.Machine(lane)
	machine.Name = fmt.Sprintf("machine-%d", lane) // the same name each time, as names in a tenant may repeat
	if n/servers%2 == 0 {
		machine.Name = fmt.Sprintf("machine-%d-%d", lane, n) // state that is kept by name would be left
	}
	// An API server that is starved of processor time ends a request after a minute, which it may have carried out.
	write := func(what string, request func(context.Context) error) error {
		return poll.Await(t.Context(), fmt.Sprintf("Machine %s of cycle %d is %s", machine.Name, n, what), request)
	}
	tried := false
	if err := write("created", func(ctx context.Context) error {
		err := cluster.Client.Create(ctx, machine)
		if tried && apierrors.IsAlreadyExists(err) {
			return nil
		}
		tried = true
		return err
	}); err != nil {
		return err
	}
	await := func(phase v1alpha1.MachinePhase) error {
		return poll.Await(t.Context(), fmt.Sprintf("Machine %s of cycle %d is %s", machine.Name, n, phase), func(ctx context.Context) error {
			if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
				return err
			}
			if machine.Status.Phase != phase {
				return fmt.Errorf("it is %s: %+v", machine.Status.Phase, machine.Status.Conditions)
			}
			return nil
		})
	}
	patch := func(text string) error {
		return write("changed", func(ctx context.Context) error {
			return cluster.Client.Patch(ctx, machine, client.RawPatch("application/merge-patch+json", []byte(text)))
		})
	}
	if err := await(v1alpha1.MachineClaimed); err != nil {
		return err
	}
	if err := patch(`{"spec":{"bootstrap":{"dataSecretName":"` + management.UserDataName + `"}}}`); err != nil {
		return err
	}
	if err := await(v1alpha1.MachineProvisioned); err != nil {
		return err
	}
	if err := hasAddress(t, cluster, machine); err != nil {
		return err
	}
	if err := patch(`{"spec":{"node":{"name":"node"}}}`); err != nil {
		return err
	}
	if err := await(v1alpha1.MachineJoined); err != nil {
		return err
	}
	if err := write("deleted", func(ctx context.Context) error {
		return client.IgnoreNotFound(cluster.Client.Delete(ctx, machine))
	}); err != nil {
		return err
	}
	return poll.Await(t.Context(), fmt.Sprintf("Machine %s of cycle %d is gone", machine.Name, n), func(ctx context.Context) error {
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there, %v: %+v", err, machine.Status.Conditions)
	})
}

// hasAddress checks that the Machine has an address, which the cycle could leak.
func hasAddress(t *testing.T, cluster *management.Cluster, machine *v1alpha1.Machine) error {
	list := &v1alpha1.IPAddressList{}
	if err := cluster.Client.List(t.Context(), list, client.MatchingLabels{v1alpha1.MachineUIDLabelKey: string(machine.UID)}); err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return fmt.Errorf("the Machine has %d addresses, want 1", len(list.Items))
	}
	host := &bmov1alpha1.BareMetalHost{}
	if err := cluster.Client.Get(t.Context(), client.ObjectKey{Namespace: machine.Status.HostRef.Namespace, Name: machine.Status.HostRef.Name},
		host); err != nil {
		return err
	}
	if want := fmt.Sprintf("%s/%d", list.Items[0].Spec.Address,
		list.Items[0].Spec.PrefixLength); host.Annotations[v1alpha1.IPAddressAnnotationKey] != want {
		return fmt.Errorf("host %s is annotated with address %q, want %q", host.Name, host.Annotations[v1alpha1.IPAddressAnnotationKey], want)
	}
	return nil
}

func annotate(t *testing.T, cluster *management.Cluster, name string, annotations map[string]string) {
	t.Helper()
	host := &bmov1alpha1.BareMetalHost{}
	if err := cluster.Client.Get(t.Context(), client.ObjectKey{Namespace: management.HostsNamespace, Name: name}, host); err != nil {
		t.Fatal(err)
	}
	before := host.DeepCopy()
	host.Annotations = annotations
	if err := cluster.Client.Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
