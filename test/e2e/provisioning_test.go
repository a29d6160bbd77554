// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// A pod gets a server on which the image is never done. The NodeClaim says where it is, and once the type's deadline is
// over (set to seconds here, where it is an hour for real ones) it is given up: an event on the NodePool says why, the server is
// quarantined, and an event on the pod says so. Then the operator says that the server is well, and Karpenter tries it again.
func TestProvisioningDeadline(t *testing.T) {
	w := enter(t, slow)
	const deadline = 10 * time.Second
	hangs := w.faulty(t, demoHangs, "slow", faults.AgentSilent)
	w.createFaultyPool(t, "slow", func(*v1alpha1.HardwareProfile) {}, hangs)
	w.createPodOn(t, "waiting", "slow", resources("cpu", "4", "memory", "8Gi"))
	w.eventually(t, "the NodeClaim of NodePool slow says where its server is", w.claimHasCondition("slow", v1alpha1.ReasonProvisioning,
		"writing image, step 3 of 5", "Metal3 is installing "+w.imageURL(t)+" on server metal3-system/"+hangs))
	first, err := w.machines(t.Context())
	if err != nil || len(first) != 1 {
		t.Fatalf("%d Machines, error %v; want the one of the pod", len(first), err)
	}

	// Only now: on a machine that is busy, what comes before may take longer.
	provider := &v1alpha1.NodeProvider{}
	if err := w.management.Get(t.Context(), client.ObjectKey{Name: "slow"}, provider); err != nil {
		t.Fatal(err)
	}
	before := provider.DeepCopy()
	provider.Spec.Metal3.NodeTypes[0].ProvisioningDeadline = &metav1.Duration{Duration: deadline}
	if err := w.management.Patch(t.Context(), provider, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "an event on NodePool slow says why NodeClaim "+first[0].Name+" is gone", w.hasEvent("NodePool", "slow", "ServerGivenUp",
		"NodeClaim "+first[0].Name+" is deleted", "given up after "+deadline.String()+" without progress at writing image, step 3 of 5"))
	w.mend(t, hangs) // or Metal3 could not clean it
	w.eventually(t, "Machine "+first[0].Name+" is gone", func(ctx context.Context) (string, error) {
		err := w.management.Get(ctx, client.ObjectKeyFromObject(&first[0]), &first[0])
		if err == nil {
			return "it is " + string(first[0].Status.Phase), nil
		}
		return "", client.IgnoreNotFound(err)
	})
	annotation, err := w.quarantine(t.Context(), hangs)
	if err != nil || !strings.HasPrefix(annotation, `{"reason":"DeadlineExceeded","since":"`) ||
		!strings.HasSuffix(annotation, `","machine":"tenant-a/`+first[0].Name+`","suspect":true}`) {
		t.Errorf("the server is quarantined with %q, error %v", annotation, err)
	}
	w.eventually(t, "NodeType slow counts server "+hangs+" as quarantined alone", func(ctx context.Context) (string, error) {
		nodeType := &v1alpha1.NodeType{}
		err := w.management.Get(ctx, client.ObjectKey{Name: "slow"}, nodeType)
		if capacity := nodeType.Status.Capacity; err != nil || capacity.Quarantined != 1 || capacity.Claimed != 0 {
			return fmt.Sprintf("its capacity is %+v", capacity), err
		}
		return "", nil
	})
	// Another pod: the event on the first may be of the time before, and is not repeated for minutes.
	w.remove(t, w.tenant, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: "waiting"}})
	w.createPodOn(t, "late", "slow", resources("cpu", "4", "memory", "8Gi"))
	w.eventually(t, "an event on pod late says what has become of server "+hangs,
		w.podHasEvent("late", "slow: 1 server matches, 0 claimed, 0 in error, 1 quarantined"))

	w.unquarantine(t, hangs)
	w.eventually(t, "server "+hangs+" is claimed again", func(ctx context.Context) (string, error) {
		machines, err := w.machines(ctx)
		if len(machines) != 1 || machines[0].Status.ProviderID == "" || machines[0].Name == first[0].Name {
			return fmt.Sprintf("there are %d Machines", len(machines)), err
		}
		return "", err
	})
}

// The durations of joined servers give the estimate of the next one of the type.
func TestProvisioningEstimate(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	w.createPod(t, "first", resources("cpu", "4", "memory", "16Gi", gpu, "4"))
	w.untilRuns(t, "first")
	first := w.machineOf(t, "first")
	if progress := first.Status.Progress; progress == nil || progress.Step != 5 || progress.Description != "joined" {
		t.Errorf("progress of a Machine that has joined: %+v", progress)
	}
	nodeType := &v1alpha1.NodeType{}
	w.eventually(t, "NodeType "+first.Status.NodeTypeRef.Name+" has an estimate", func(ctx context.Context) (string, error) {
		if err := w.management.Get(ctx, client.ObjectKey{Name: first.Status.NodeTypeRef.Name}, nodeType); err != nil {
			return "", err
		}
		if estimate := nodeType.Status.Provisioning; estimate == nil ||
			time.Duration(estimate.TypicalSeconds)*time.Second > poll.Patience() {
			return fmt.Sprintf("the estimate is %+v", estimate), nil
		}
		return "", nil
	})
	w.createPod(t, "second", resources("cpu", "4", "memory", "16Gi", gpu, "4"))
	// On the Machine: the emulated server is ready before the NodeClaim would say so.
	w.eventually(t, "an event on a Machine says how long servers of its type usually take", w.hasEventIn(w.management, "Machine", "",
		v1alpha1.ReasonProvisioning, ", step 3 of 5, ", " min; usually "))
	w.untilRuns(t, "second")
}
