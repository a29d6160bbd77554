// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// The manager is killed between choosing a server and having it: the next one finishes the claim, on one server.
func TestCrashManagerMidClaim(t *testing.T) {
	w := enterAlone(t, reference)
	killed := w.killWhen(t, "manager", w.management, &v1alpha1.MachineList{}, func(object client.Object) bool {
		machine, ok := object.(*v1alpha1.Machine)
		return ok && machine.Status.HostRef != nil && !meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionProvisioned)
	})
	for i := range 2 {
		w.createPod(t, fmt.Sprintf("eight-gpus-%d", i), resources("cpu", "8", gpu, "8"))
	}
	<-killed
	w.untilRuns(t, "eight-gpus-0", "eight-gpus-1")
	if claimed := w.claimedHosts(t.Context(), t); len(claimed) != 2 {
		t.Errorf("claimed servers are %v, want two", claimed)
	}
}

// The provider is killed while Karpenter launches a NodeClaim: the next one finds the Machine that was made for it.
func TestCrashProviderMidLaunch(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	killed := w.killWhen(t, "provider", w.management, &v1alpha1.MachineList{}, func(object client.Object) bool {
		_, ok := object.(*v1alpha1.Machine)
		return ok
	})
	w.createPod(t, "one-gpu", resources("cpu", "4", gpu, "1"))
	<-killed
	w.untilRuns(t, "one-gpu")
	machines, err := w.machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	claims, err := w.nodeClaims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(machines) != 1 || len(claims) != 1 {
		t.Errorf("there are %d Machines and %d NodeClaims, want one each", len(machines), len(claims))
	}
}

// A NodeClaim is deleted while the provider is dead: the server still goes back once the provider lives.
func TestCrashProviderMidDelete(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	w.createPod(t, "one-gpu", resources("cpu", "4", gpu, "1"))
	w.untilRuns(t, "one-gpu")
	killed := w.killWhen(t, "provider", w.management, &v1alpha1.MachineList{}, func(object client.Object) bool {
		return object.GetDeletionTimestamp() != nil
	})
	if err := w.deleteNodeClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.deletePods(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-killed
	w.eventually(t, "the server of pod one-gpu is given back after the provider came back", w.leftOver)
}

// The management API is down while a tenant asks for another server. Nothing is deleted because of it, and once it is
// back, the pod gets its server, through the same NodeClaim.
func TestCrashManagementOutage(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	w.needsOutage(t)
	w.createPod(t, "one-gpu", resources("cpu", "4", gpu, "1"))
	w.untilRuns(t, "one-gpu")
	before := w.identities(t)

	resume := w.stopManagement(t)
	w.createPod(t, "during-the-outage", resources("cpu", "8", gpu, "8"))
	w.eventually(t, "a NodeClaim says that the management cluster is unavailable", func(ctx context.Context) (string, error) {
		claims, err := w.nodeClaims(ctx)
		if err != nil {
			return "", err
		}
		for _, claim := range claims {
			if launched := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched); launched.Reason == "ManagementClusterUnavailable" {
				before[claim.UID] = "NodeClaim " + claim.Name
				return "", nil
			}
		}
		return fmt.Sprintf("none of %d NodeClaims says ManagementClusterUnavailable", len(claims)), nil
	})
	resume()

	w.untilRuns(t, "during-the-outage")
	after := w.identities(t)
	for uid, name := range before {
		if _, ok := after[uid]; !ok {
			t.Errorf("%s is gone after the outage", name)
		}
	}
}

// identities returns what must survive: NodeClaims, Nodes and Machines of the group, by UID.
func (w *fixture) identities(t *testing.T) map[types.UID]string {
	t.Helper()
	found := map[types.UID]string{}
	for _, kind := range []struct {
		from client.Client
		list client.ObjectList
	}{
		{w.tenant, &karpv1.NodeClaimList{}},
		{w.tenant, &corev1.NodeList{}},
		{w.management, &v1alpha1.MachineList{}},
	} {
		if err := kind.from.List(t.Context(), kind.list); err != nil {
			t.Fatal(err)
		}
		items, err := meta.ExtractList(kind.list)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			if object := item.(client.Object); w.ownsObject(object) {
				found[object.GetUID()] = fmt.Sprintf("%T %s", object, object.GetName())
			}
		}
	}
	return found
}

// killWhen kills one of our programs, without warning, at the first object that is as wanted. It fails the test if the object is not so any
// more afterwards: then the program was killed too late for what is tested.
func (w *fixture) killWhen(t *testing.T, program string, cluster client.WithWatch, list client.ObjectList,
	wanted func(client.Object) bool) <-chan struct{} {
	t.Helper()
	kill, err := w.programs.aim(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.untilReady(t) })
	watcher, err := cluster.Watch(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			if object, ok := event.Object.(client.Object); ok && event.Type != watch.Deleted && w.ownsObject(object) && wanted(object) {
				if err := kill(t.Context()); err != nil {
					t.Errorf("killing the %s, %v", program, err)
				}
				if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || !wanted(object) {
					t.Errorf("the %s was killed too late, so the test proves nothing: %T %s is %+v (%v)", program, object, object.GetName(),
						object, err)
				}
				return
			}
		}
	}()
	return killed
}
