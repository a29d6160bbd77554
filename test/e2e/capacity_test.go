// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// The three pods of the demo: one asks for no GPU, one for eight, and one for one GPU, which an A100 or an H100 server has. For each
// the cheapest server that fits is claimed. When the pods are gone, all three servers go back.
func TestCapacityCheapestType(t *testing.T) {
	w := enter(t, reference)
	// In this order: pods that ask for no GPU may use what is left of a GPU server that is on its way for another pod.
	w.createPod(t, "web-no-gpu", resources("cpu", "4", "memory", "8Gi"))
	w.createPod(t, "train-8-gpus", resources("cpu", "16", "memory", "64Gi", gpu, "8"))
	w.createPod(t, "infer-1-gpu", resources("cpu", "4", "memory", "16Gi", gpu, "1"))
	want := map[string]int64{
		"cpu":     576,   // 32 x 10 + 128 GiB x 2
		"h100-8x": 82496, // 96 x 10 + 768 GiB x 2 + 8 x 10000
		"a100-4x": 41152, // 64 x 10 + 256 GiB x 2 + 4 x 10000
	}
	w.eventually(t, "there is a Machine of each type, with its cost", func(ctx context.Context) (string, error) {
		machines, err := w.machines(ctx)
		got := map[string]int64{}
		for _, machine := range machines {
			if machine.Status.NodeTypeRef != nil && machine.Status.Cost != nil {
				got[machine.Status.NodeTypeRef.Name] = *machine.Status.Cost
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || len(machines) != len(want) {
			return fmt.Sprintf("%d Machines (-want +got):\n%s", len(machines), diff), err
		}
		return "", err
	})
	w.untilRuns(t, "web-no-gpu", "train-8-gpus", "infer-1-gpu")
	if got := w.machineOf(t, "train-8-gpus").Status.NodeTypeRef.Name; got != "h100-8x" {
		t.Errorf("pod train-8-gpus runs on a server of type %s, want h100-8x, the only one with eight GPUs", got)
	}
	// The Machines above show that the cheapest type with a GPU was chosen for pod infer-1-gpu. kube-scheduler may still bind it to the
	// larger server, if that joins first.
	if err := w.deletePods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "all servers of the reference fleet are available again", w.leftOver)
}

// The tenant has a log shipper that requests disk on every node, and no NodeType declares any. Core plans a DaemonSet's pods on
// every new node, so without a disk no pod of the tenant would get a server.
func TestCapacityDaemonSetWithDisk(t *testing.T) {
	w := enter(t, reference)
	labels := map[string]string{"app": "log-shipper"}
	daemonSet := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: "log-shipper"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{w.container(resources("cpu", "100m", "ephemeral-storage", "10Mi"))}},
		}},
	}
	w.group.place(&daemonSet.Spec.Template.Spec)
	if err := w.tenant.Create(t.Context(), daemonSet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.remove(t, w.tenant, daemonSet) })
	w.createPod(t, "infer-1-gpu", resources("cpu", "4", "memory", "16Gi", gpu, "1"))
	w.untilRuns(t, "infer-1-gpu")
	w.eventually(t, "DaemonSet log-shipper runs on the node of pod infer-1-gpu", func(ctx context.Context) (string, error) {
		err := w.tenant.Get(ctx, client.ObjectKeyFromObject(daemonSet), daemonSet)
		if daemonSet.Status.NumberReady == 1 {
			return "", err
		}
		return fmt.Sprintf("%d of %d are ready", daemonSet.Status.NumberReady, daemonSet.Status.DesiredNumberScheduled), err
	})
}

// The platform team makes the H100 servers cheaper than the A100 ones; the next pod gets an H100 server.
func TestCapacityCostOverride(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	provider := &v1alpha1.NodeProvider{}
	if err := w.management.Get(t.Context(), client.ObjectKey{Name: "metal3-provider"}, provider); err != nil {
		t.Fatal(err)
	}
	overridden := provider.DeepCopy()
	cost := int64(1000)
	for i := range overridden.Spec.Metal3.NodeTypes {
		if overridden.Spec.Metal3.NodeTypes[i].Name == "h100-8x" {
			overridden.Spec.Metal3.NodeTypes[i].Cost = &cost
		}
	}
	if err := w.management.Patch(t.Context(), overridden, client.MergeFrom(provider)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		restored := &v1alpha1.NodeProvider{}
		if err := w.management.Get(context.Background(), client.ObjectKey{Name: "metal3-provider"}, restored); err != nil {
			t.Error(err)
			return
		}
		restored.Spec = provider.Spec
		if err := w.management.Update(context.Background(), restored); err != nil {
			t.Error(err)
		}
	})
	w.eventually(t, "NodeType h100-8x has the new cost", func(ctx context.Context) (string, error) {
		nodeType := &v1alpha1.NodeType{}
		if err := w.management.Get(ctx, client.ObjectKey{Name: "h100-8x"}, nodeType); err != nil {
			return "", err
		}
		if nodeType.Status.Cost != cost {
			return fmt.Sprintf("h100-8x costs %d", nodeType.Status.Cost), nil
		}
		return "", nil
	})
	w.createPod(t, "one-gpu", resources("cpu", "4", "memory", "16Gi", gpu, "1"))
	w.untilRuns(t, "one-gpu")
	if got := w.machineOf(t, "one-gpu").Status.NodeTypeRef.Name; got != "h100-8x" {
		t.Errorf("the pod got a server of type %s, want h100-8x, which costs 1000 now", got)
	}
}

// The only free CPU server is taken. Four GPU servers are free, and so is a CPU server of another tenant: a pod that asks
// for no GPU gets none of them, and an event says why.
func TestCapacityCPUPodNeverGetsGPUServer(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	w.createPod(t, "first", resources("cpu", "20", "memory", "64Gi"))
	w.untilRuns(t, "first")
	if got := w.machineOf(t, "first").Status.HostRef.Name; got != "server-05" {
		t.Errorf("the first pod got %s, want server-05, the CPU server that is no other tenant's", got)
	}
	w.createPod(t, "second", resources("cpu", "20", "memory", "64Gi"))
	w.eventually(t, "an event on pod second says why it gets no server", w.podHasEvent("second",
		"cpu: 1 server matches, 1 claimed, 0 in error",
		"a100-4x: has accelerators (nvidia.com/gpu) and the pod requests none",
		"h100-8x: has accelerators (nvidia.com/gpu) and the pod requests none"))
	claims, err := w.nodeClaims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(claims) != 1 {
		t.Errorf("there are %d NodeClaims, want the first pod's alone", len(claims))
	}
	if claimed := w.claimedHosts(t.Context(), t); len(claimed) != 1 || claimed["server-05"] == "" {
		t.Errorf("claimed servers are %v, want server-05 alone", claimed)
	}
}

// Ten pods want eight GPUs each; there are two servers with eight. Two are claimed, once, and the other eight pods have
// an event that says how many servers there are and what has become of them.
func TestCapacityBurstBeyondFleet(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	ctx, stop := context.WithCancel(t.Context())
	made, counted := w.countNodeClaims(ctx, t)
	const pods, servers = 10, 2
	for i := range pods {
		w.createPod(t, fmt.Sprintf("eight-gpus-%d", i), resources("cpu", "8", "memory", "64Gi", gpu, "8"))
	}
	w.eventually(t, "two of the pods eight-gpus run, and events on the other eight say why not", func(ctx context.Context) (string, error) {
		running, told := 0, 0
		for i := range pods {
			name := fmt.Sprintf("eight-gpus-%d", i)
			missing, err := w.runs(name)(ctx)
			if err != nil {
				return "", err
			}
			if missing == "" {
				running++
				continue
			}
			unexplained, err := w.podHasEvent(name, "h100-8x: 2 servers match, 2 claimed, 0 in error", "a100-4x: too small")(ctx)
			if err != nil {
				return "", err
			}
			if unexplained == "" {
				told++
			}
		}
		if running != servers || told != pods-servers {
			return fmt.Sprintf("%d pods run, events on %d say why not", running, told), nil
		}
		return "", nil
	})
	if claimed := w.claimedHosts(t.Context(), t); len(claimed) != servers || claimed["server-01"] == "" || claimed["server-02"] == "" {
		t.Errorf("claimed servers are %v, want server-01 and server-02", claimed)
	}
	stop()
	<-counted
	if len(made) != servers {
		t.Errorf("%d NodeClaims were made for %d servers: %v", len(made), servers, made)
	}
}

// countNodeClaims collects the names of all NodeClaims of the group that are created until the context ends, and what was said last of the
// launch of each.
func (w *fixture) countNodeClaims(ctx context.Context, t *testing.T) (map[string]string, <-chan struct{}) {
	t.Helper()
	watch, err := w.tenant.Watch(ctx, &karpv1.NodeClaimList{})
	if err != nil {
		t.Fatal(err)
	}
	made, done := map[string]string{}, make(chan struct{})
	go func() {
		defer close(done)
		defer watch.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case event, open := <-watch.ResultChan():
				if !open {
					return
				}
				if claim, ok := event.Object.(*karpv1.NodeClaim); ok && w.group.owns(claim.Name) {
					made[claim.Name] = ""
					if launched := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched); launched != nil {
						made[claim.Name] = launched.Reason + ": " + launched.Message
					}
				}
			}
		}
	}()
	return made, done
}
