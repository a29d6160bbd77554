// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestProvider runs the whole program with the rights of config/rbac and nothing more, over a line to the management
// cluster that can be cut. The test plays the manager. Core registers its metrics for good, so a process runs it once,
// and what happens to it happens in one test.
func TestProvider(t *testing.T) {
	w := newFixture(t)
	grant(t, w, "provider-management.yaml")
	grant(t, w, "provider-tenant.yaml")
	grant(t, w, "provider-dra-management.yaml")
	grant(t, w, "provider-dra-tenant.yaml")
	management := newLine(t)
	o := optionsFor(w.namespace, kubeconfigOf(t, environment.Config, user))
	// Pods that no Service and no controller selects are planned as without it. It needs rights.
	if err := o.karpenter.flags.Set(schedulerConfig, spreadByRack); err != nil {
		t.Fatal(err)
	}
	o.management.Kubeconfig = kubeconfigOf(t, management.config(), user)
	w.start(o)

	podGetsServer(t, w)
	// A leader without the management cluster writes to the tenant's still. Another one must not become the leader meanwhile.
	lease := &coordinationv1.Lease{}
	if err := environment.Client.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: user}, lease); err != nil {
		t.Errorf("the lease is not where the provider's writes go: %v", err)
	}
	managementGoesAway(t, w, management)

	klog.Flush()
	if text := w.logs.String(); !strings.Contains(text, "launched nodeclaim") || strings.Contains(text, "forbidden") {
		t.Errorf("the rights in config/rbac are not enough:\n%s", linesWith(text, "forbidden"))
	}
	tokenIsRotated(t, w, o.tenant.Kubeconfig)
}

// tokenIsRotated writes another token into the kubeconfig of the tenant cluster: the provider ends as if it was told to, and gives
// its lease back, so that its next start or another one works with the token.
func tokenIsRotated(t *testing.T, w *fixture, file string) {
	t.Helper()
	kubeconfig, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig.AuthInfos["u"].Token = "rotated"
	if err := errors.Join(clientcmd.WriteToFile(*kubeconfig, file+".new"), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	if err := w.ends(); err != nil {
		t.Errorf("the provider ended with %v", err)
	}
	klog.Flush()
	if text := linesWith(w.logs.String(), "The kubeconfig has changed"); !strings.Contains(text, file) {
		t.Errorf("the log does not say which file has changed: %q", text)
	}
	lease := &coordinationv1.Lease{}
	if err := environment.Client.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: user}, lease); err != nil ||
		ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
		t.Errorf("the next one has to wait until the lease of %q is over (%v)", ptr.Deref(lease.Spec.HolderIdentity, ""), err)
	}
}

// podGetsServer is the main job: pod, NodeClaim, Machine, and back.
func podGetsServer(t *testing.T, w *fixture) {
	t.Helper()
	pod := w.pendingPod("train")
	machine := w.machine()
	w.claim(machine)
	nodeClaim := w.launched(machine)
	if got := nodeClaim.Labels[corev1.LabelInstanceTypeStable]; got != w.a100() {
		t.Errorf("instance type %q, want %q", got, w.a100())
	}
	w.eventually("user data for the server", func() error {
		if err := environment.Client.Get(context.Background(), client.ObjectKeyFromObject(machine), machine); err != nil {
			return err
		}
		if machine.Spec.Bootstrap.DataSecretName == "" {
			return errors.New("none yet")
		}
		return nil
	})
	w.remove(pod)
	nodeComesTooLate(t, w, nodeClaim)
}

// nodeComesTooLate registers a Node while its NodeClaim is being deleted. Core ignores such a Node, and no other
// controller would delete it.
func nodeComesTooLate(t *testing.T, w *fixture, nodeClaim *karpv1.NodeClaim) {
	t.Helper()
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: nodeClaim.Name}}
	setFinalizer := func(finalizers string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
		if err := environment.Client.Patch(t.Context(), machine, patch); err != nil {
			t.Fatal(err)
		}
	}
	// The server takes its time to be released.
	setFinalizer(`["` + v1alpha1.MachineFinalizer + `"]`)
	if err := environment.Client.Delete(t.Context(), nodeClaim); err != nil {
		t.Fatal(err)
	}
	w.eventually("the machine to be deleted", func() error {
		if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
			return err
		}
		if machine.DeletionTimestamp.IsZero() {
			return errors.New("no server is claimed yet")
		}
		return nil
	})
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeClaim.Name},
		Spec:       corev1.NodeSpec{ProviderID: nodeClaim.Status.ProviderID, Taints: []corev1.Taint{karpv1.UnregisteredNoExecuteTaint}},
	}
	w.create(node)
	t.Cleanup(func() { w.remove(node) })
	setFinalizer("null")
	w.gone(nodeClaim, machine, node)
}

// managementGoesAway disconnects the management cluster while a NodeClaim is launched, and connects it again: the
// NodeClaim waits, is not deleted, and gets its server.
func managementGoesAway(t *testing.T, w *fixture, management *line) {
	t.Helper()
	management.cut()
	pod := w.pendingPod("infer")
	waiting := &karpv1.NodeClaim{}
	w.eventually("a NodeClaim that says what it waits for", func() error {
		nodeClaims := &karpv1.NodeClaimList{}
		if err := environment.Client.List(context.Background(), nodeClaims,
			client.MatchingLabels{karpv1.NodePoolLabelKey: w.namespace}); err != nil {
			return err
		}
		if len(nodeClaims.Items) != 1 {
			return fmt.Errorf("%d NodeClaims, want 1", len(nodeClaims.Items))
		}
		waiting = &nodeClaims.Items[0]
		if reason := waiting.StatusConditions().Get(karpv1.ConditionTypeLaunched).Reason; reason != "ManagementClusterUnavailable" {
			return fmt.Errorf("reason %q", reason)
		}
		return nil
	})

	management.mend()
	machine := w.machine()
	w.claim(machine)
	nodeClaim := w.launched(machine)
	if nodeClaim.UID != waiting.UID {
		t.Errorf("NodeClaim %s got the server; the one that waited was %s", nodeClaim.Name, waiting.Name)
	}
	w.remove(pod)
	w.giveBack(nodeClaim)
}
