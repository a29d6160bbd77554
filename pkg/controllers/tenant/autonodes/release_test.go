// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/pools"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

const (
	firstEntry  = "{provider: metal3, static: [{name: s, quantity: 2}], dynamic: [{name: d}, {name: idle}]}"
	secondEntry = "{provider: metal3, dynamic: [{name: e}]}"
)

// setPrivateNodes writes the TenantCluster's privateNodes, and takes them away if there are none.
func setPrivateNodes(t *testing.T, key types.NamespacedName, privateNodes string) {
	t.Helper()
	change(t, key, func(cluster *v1alpha1.TenantCluster) {
		if cluster.Spec.PrivateNodes = nil; privateNodes == "" {
			return
		}
		if err := yaml.UnmarshalStrict([]byte(privateNodes), &cluster.Spec.PrivateNodes); err != nil {
			t.Fatal(err)
		}
	})
}

// confirm annotates the TenantCluster, and removes the annotation if there is no token.
func confirm(t *testing.T, key types.NamespacedName, token string) {
	t.Helper()
	change(t, key, func(cluster *v1alpha1.TenantCluster) {
		if cluster.Annotations = map[string]string{v1alpha1.ConfirmDeleteMachinesAnnotationKey: token}; token == "" {
			cluster.Annotations = nil
		}
	})
}

func change(t *testing.T, key types.NamespacedName, change func(*v1alpha1.TenantCluster)) {
	t.Helper()
	cluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	change(cluster)
	if err := environment.Client.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}

// createMachines creates Machines of NodePools, as "pool:count".
func createMachines(t *testing.T, key types.NamespacedName, nodePools string) {
	t.Helper()
	for _, entry := range strings.Fields(nodePools) {
		pool, count, _ := strings.Cut(entry, ":")
		many, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		for i := range many {
			machine := &v1alpha1.Machine{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: fmt.Sprintf("%s-%s-%d", key.Name, pool, i),
					Labels: map[string]string{karpv1.NodePoolLabelKey: pool}},
				Spec: v1alpha1.MachineSpec{TenantClusterRef: &v1alpha1.NameReference{Name: key.Name},
					Requirements: []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpExists}}},
			}
			if err := environment.Client.Create(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// reconciled is what a provider that has just been started makes of the pools.
func reconciled(t *testing.T, cluster types.NamespacedName) metav1.Condition {
	t.Helper()
	condition, err := once(t, cluster, environment.Client)
	if err != nil {
		t.Fatal(err)
	}
	return condition
}

// TestReleases: whatever edit of the TenantCluster deletes or recreates a NodePool with Machines, everything stays until it is confirmed
// with their number.
func TestReleases(t *testing.T) {
	for name, tc := range tenanttest.PoolEdits("metal3") {
		t.Run(name, func(t *testing.T) {
			cluster := tenantCluster(t)
			setPrivateNodes(t, cluster, tc.Before)
			if got := reconciled(t, cluster); got.Status != metav1.ConditionTrue {
				t.Fatalf("PoolsSynced is %s: %s", got.Status, got.Message)
			}
			createMachines(t, cluster, tc.Machines)
			createMachines(t, types.NamespacedName{Namespace: cluster.Namespace, Name: "other"}, "s:1 d:1 a:1") // another tenant's
			before := poolsThere(t)
			setPrivateNodes(t, cluster, tc.After)
			for _, wrong := range []string{"", strconv.Itoa(tc.Servers + 1)} {
				if tc.Servers == 0 {
					break
				}
				confirm(t, cluster, wrong)
				got := reconciled(t, cluster)
				for _, want := range []string{
					fmt.Sprintf("%d of its servers would be released with NodePool %s, and", tc.Servers, strings.Join(tc.Lost, ", ")),
					fmt.Sprintf("blue confirm.karpenter.metal3.io/delete-machines=%d", tc.Servers),
				} {
					if got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonReleasesServers || !strings.Contains(got.Message, want) {
						t.Fatalf("%s: with %q PoolsSynced is %s, %s: %s; want %q", tc.Reason, wrong, got.Status, got.Reason, got.Message, want)
					}
				}
				now := poolsThere(t)
				for object, was := range before {
					if !strings.HasSuffix(object, " idle") && now[object] != was {
						t.Errorf("%s: with %q, %s was %s and is %s", tc.Reason, wrong, object, was, now[object])
					}
				}
				for object := range now {
					if before[object] == "" {
						t.Errorf("%s: with %q, %s has been created in place of what is kept", tc.Reason, wrong, object)
					}
				}
			}
			if tc.Servers > 0 {
				confirm(t, cluster, strconv.Itoa(tc.Servers))
			}
			for range 2 { // a NodePool is created again in the reconcile after that in which it was deleted
				got := reconciled(t, cluster)
				if tc.Servers > 0 && got.Reason != v1alpha1.ReasonConfirmed {
					t.Errorf("%s: PoolsSynced is %s, %s: %s; want that the confirmation is recorded", tc.Reason, got.Status, got.Reason, got.Message)
				}
			}
			confirm(t, cluster, "") // as the manager does
			if got := reconciled(t, cluster); got.Status != metav1.ConditionTrue {
				t.Errorf("%s: PoolsSynced is %s, %s: %s", tc.Reason, got.Status, got.Reason, got.Message)
			}
			now := poolsThere(t)
			for _, pool := range []string{"s", "d", "e", "a", "a-dynamic"} {
				was, is := before["NodePool "+pool], now["NodePool "+pool]
				failed := is == was
				if !slices.Contains(tc.Lost, pool) {
					failed = strings.TrimSuffix(is, " empty") != strings.TrimSuffix(was, " empty")
				}
				if was != "" && tc.Machines != "" && failed {
					t.Errorf("%s: NodePool %s was %s and is %s", tc.Reason, pool, was, is)
				}
			}
			existing, found := pools.NodePools{}, &v1alpha1.TenantCluster{}
			for object, is := range now {
				if nodePool, cut := strings.CutPrefix(object, "NodePool "); cut {
					existing[nodePool] = pools.NodePool{Kind: pools.Kind(strings.Fields(is)[0]), Ours: true}
				}
			}
			if err := environment.Client.Get(t.Context(), cluster, found); err != nil {
				t.Fatal(err)
			}
			want := pools.NodePools{}
			for _, p := range pools.PoolsOf(found, existing) {
				want[p.NodePool] = pools.NodePool{Kind: p.Kind(), Ours: true}
			}
			if diff := cmp.Diff(want, existing); diff != "" {
				t.Errorf("%s: NodePools (-want +got):\n%s", tc.Reason, diff)
			}
		})
	}
}

var errDied = errors.New("the process died")

// dying is the connection of a process that dies after so many deletions.
func dying(deletions int) client.Client {
	return interceptor.NewClient(tenanttest.WithWatch(&environment), interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			if deletions--; deletions < 0 {
				return errDied
			}
			return c.Delete(ctx, object, opts...)
		},
	})
}

// TestReleaseIsConfirmedOnce: the process dies after each write. What was confirmed is deleted, although the number of Machines is another
// by then, and nothing else is.
func TestReleaseIsConfirmedOnce(t *testing.T) {
	cluster := tenantCluster(t)
	setPrivateNodes(t, cluster, tenanttest.PrivateNodes(firstEntry, secondEntry))
	reconciled(t, cluster)
	createMachines(t, cluster, "s:2 d:2 e:4")
	setPrivateNodes(t, cluster, tenanttest.PrivateNodes(secondEntry))
	reconciled(t, cluster)
	confirm(t, cluster, "4")
	for deletions := range 2 {
		if got, err := once(t, cluster, dying(deletions)); !errors.Is(err, errDied) ||
			got.Reason != v1alpha1.ReasonConfirmed {
			t.Fatalf("after %d deletions: PoolsSynced is %s: %s, %v", deletions, got.Reason, got.Message, err)
		}
		confirm(t, cluster, "") // as the manager does once it is recorded
		if err := environment.Client.Delete(t.Context(), &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace,
			Name: fmt.Sprintf("blue-d-%d", deletions)}}); err != nil {
			t.Fatal(err)
		}
	}
	reconciled(t, cluster)
	if got := reconciled(t, cluster); got.Status != metav1.ConditionTrue {
		t.Errorf("PoolsSynced is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
	for object := range poolsThere(t) {
		if !strings.HasSuffix(object, " e") {
			t.Errorf("%s is left", object)
		}
	}
}

// TestUsedConfirmationConfirmsNothingElse: the manager has not removed the annotation yet, and the next edit releases as many servers.
func TestUsedConfirmationConfirmsNothingElse(t *testing.T) {
	cluster := tenantCluster(t)
	setPrivateNodes(t, cluster, tenanttest.PrivateNodes(firstEntry, secondEntry))
	reconciled(t, cluster)
	createMachines(t, cluster, "d:2 e:2")
	setPrivateNodes(t, cluster, tenanttest.PrivateNodes(firstEntry))
	confirm(t, cluster, "2")
	if got := reconciled(t, cluster); got.Reason != v1alpha1.ReasonConfirmed {
		t.Fatalf("PoolsSynced is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
	for object := range poolsThere(t) {
		if strings.HasSuffix(object, " e") {
			t.Errorf("%s is left, and its deletion was confirmed", object)
		}
	}
	before := poolsThere(t)
	setPrivateNodes(t, cluster, "")
	if got := reconciled(t, cluster); got.Reason != v1alpha1.ReasonConfirmed {
		t.Errorf("the annotation is there: PoolsSynced is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
	confirm(t, cluster, "")
	if got := reconciled(t, cluster); got.Reason != v1alpha1.ReasonReleasesServers || !strings.Contains(got.Message, "NodePool d, and") {
		t.Errorf("PoolsSynced is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
	if now := poolsThere(t); now["NodePool d"] != before["NodePool d"] || now["class d"] != before["class d"] {
		t.Errorf("there were %v, and there are %v", before, now)
	}
	// What was dropped comes back: there is nothing to confirm.
	setPrivateNodes(t, cluster, tenanttest.PrivateNodes(firstEntry))
	if got := reconciled(t, cluster); got.Status != metav1.ConditionTrue || poolsThere(t)["NodePool d"] != before["NodePool d"] {
		t.Errorf("PoolsSynced is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
}

// TestStandingConfirmation: the annotation that confirms any number stays in the object, as a tool keeps it there. Each
// edit is done, and is over when its NodePools are gone.
func TestStandingConfirmation(t *testing.T) {
	cluster := tenantCluster(t)
	setPrivateNodes(t, cluster, tenanttest.PrivateNodes(firstEntry, secondEntry))
	reconciled(t, cluster)
	createMachines(t, cluster, "s:2 d:2 e:4")
	confirm(t, cluster, v1alpha1.ConfirmAnyNumber)
	for _, step := range []struct {
		reason, privateNodes string
		// gone is a NodePool that is deleted, and stays one that is not.
		gone, stays string
	}{
		{"a pool is removed", tenanttest.PrivateNodes(strings.Replace(firstEntry, "{name: d}, ", "", 1), secondEntry),
			"d", "s"},
		{"an entry is removed", tenanttest.PrivateNodes(secondEntry), "s", "e"},
		{"all are removed", "", "e", ""},
	} {
		setPrivateNodes(t, cluster, step.privateNodes)
		if got := reconciled(t, cluster); got.Reason != v1alpha1.ReasonConfirmed {
			t.Errorf("%s: PoolsSynced is %s, %s: %s; want that the confirmation is recorded", step.reason, got.Status,
				got.Reason, got.Message)
		}
		if got := reconciled(t, cluster); got.Status != metav1.ConditionTrue {
			t.Errorf("%s: PoolsSynced is %s, %s: %s", step.reason, got.Status, got.Reason, got.Message)
		}
		now := poolsThere(t)
		if now["NodePool "+step.gone] != "" || step.stays != "" && now["NodePool "+step.stays] == "" {
			t.Errorf("%s: there are %v", step.reason, now)
		}
	}
}

// TestStandingConfirmationOfACrash: the process dies after each write, and the next one goes on.
func TestStandingConfirmationOfACrash(t *testing.T) {
	cluster := tenantCluster(t)
	setPrivateNodes(t, cluster, tenanttest.PrivateNodes(firstEntry, secondEntry))
	reconciled(t, cluster)
	createMachines(t, cluster, "s:2 d:2 e:4")
	setPrivateNodes(t, cluster, tenanttest.PrivateNodes(secondEntry))
	confirm(t, cluster, v1alpha1.ConfirmAnyNumber)
	for deletions := range 2 {
		if got, err := once(t, cluster, dying(deletions)); !errors.Is(err, errDied) ||
			got.Reason != v1alpha1.ReasonConfirmed {
			t.Fatalf("after %d deletions: PoolsSynced is %s: %s, %v", deletions, got.Reason, got.Message, err)
		}
	}
	reconciled(t, cluster)
	if got := reconciled(t, cluster); got.Status != metav1.ConditionTrue {
		t.Errorf("PoolsSynced is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
	for object := range poolsThere(t) {
		if !strings.HasSuffix(object, " e") {
			t.Errorf("%s is left", object)
		}
	}
}

// TestConfirmationIsWatched runs the controller: nothing but the annotation changes.
func TestConfirmationIsWatched(t *testing.T) {
	cluster := start(t)
	setPrivateNodes(t, cluster, tenanttest.PrivateNodes(secondEntry))
	condition(t, cluster)
	createMachines(t, cluster, "e:1")
	setPrivateNodes(t, cluster, "")
	if got := condition(t, cluster); got.Reason != v1alpha1.ReasonReleasesServers {
		t.Fatalf("PoolsSynced is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
	confirm(t, cluster, "1")
	gone(t, named(&karpv1.NodePool{}, "e"), named(&v1alpha1.MetalNodeClass{}, "e"))
}
