// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// tenantCluster makes a TenantCluster. Its pools are deleted after the test, for no other to find.
func tenantCluster(t *testing.T) types.NamespacedName {
	t.Helper()
	cluster := tenanttest.TenantCluster(t, &environment)
	t.Cleanup(func() {
		for _, list := range []client.Object{&karpv1.NodePool{}, &v1alpha1.MetalNodeClass{}} {
			if err := environment.Client.DeleteAllOf(context.Background(), list, client.HasLabels{v1alpha1.TenantPoolLabelKey}); err != nil {
				t.Errorf("cleaning up, %v", err)
			}
		}
	})
	return cluster
}

// once reconciles, as a process does that has just been started, and returns the condition.
func once(t *testing.T, cluster types.NamespacedName, tenantClient client.Client) (metav1.Condition, error) {
	t.Helper()
	_, err := newController(tenanttest.ClustersOf(cluster, tenantClient, environment.Client)).Reconcile(t.Context(), reconcile.Request{})
	found := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(t.Context(), cluster, found); err != nil {
		t.Fatal(err)
	}
	if condition := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionPoolsSynced); condition != nil {
		return *condition, err
	}
	return metav1.Condition{}, err
}

// poolsThere are the NodePools and classes, each with its kind and UID.
func poolsThere(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	nodePools, classes := &karpv1.NodePoolList{}, &v1alpha1.MetalNodeClassList{}
	for _, list := range []client.ObjectList{nodePools, classes} {
		if err := environment.Client.List(t.Context(), list, client.HasLabels{v1alpha1.TenantPoolLabelKey}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range nodePools.Items {
		item := &nodePools.Items[i]
		found["NodePool "+item.Name] = string(nodePoolsOf("", *item)[item.Name].Kind) + " " + string(item.UID)
		if item.Spec.Replicas != nil && *item.Spec.Replicas == 0 {
			found["NodePool "+item.Name] += " empty"
		}
	}
	for i := range classes.Items {
		found["class "+classes.Items[i].Name] = string(classes.Items[i].UID)
	}
	return found
}

// TestStaticAndDynamicOfOneName: the process dies after each write. What has been made by then is kept by the next one, in
// particular the pool that had the name first.
func TestStaticAndDynamicOfOneName(t *testing.T) {
	const both = "[{provider: metal3, static: [{name: twin, quantity: 1}], dynamic: [{name: twin}]}]"
	for name, tc := range map[string]struct{ reason, before, static, dynamic, message string }{
		"New": {reason: "the static pool has the name", static: "twin", dynamic: "twin-dynamic",
			message: "autoNodes[0].dynamic[0] (twin) is NodePool twin-dynamic"},
		"Static": {reason: "it has the name", before: "[{provider: metal3, static: [{name: twin, quantity: 1}]}]", static: "twin",
			dynamic: "twin-dynamic", message: "autoNodes[0].dynamic[0] (twin) is NodePool twin-dynamic"},
		"Dynamic": {reason: "it has the name", before: "[{provider: metal3, dynamic: [{name: twin}]}]", static: "twin-static", dynamic: "twin",
			message: "autoNodes[0].static[0] (twin) is NodePool twin-static"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenantCluster(t)
			if tc.before != "" {
				setAutoNodes(t, cluster, tc.before)
				if got, err := once(t, cluster, environment.Client); err != nil || got.Status != metav1.ConditionTrue {
					t.Fatalf("PoolsSynced is %s: %s, %v", got.Status, got.Message, err)
				}
			}
			first := poolsThere(t)
			setAutoNodes(t, cluster, both)
			died := errors.New("the process died")
			crashes := 0
			for ; crashes < 10; crashes++ {
				writes := 0
				dying := interceptor.NewClient(tenanttest.WithWatch(&environment), interceptor.Funcs{
					Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
						if writes++; writes > 1 {
							return died
						}
						return c.Create(ctx, object, opts...)
					},
					Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
						t.Errorf("%s: something is deleted", tc.reason)
						return died
					},
				})
				if _, err := once(t, cluster, dying); err == nil {
					break
				} else if !errors.Is(err, died) {
					t.Fatal(err)
				}
			}
			got, err := once(t, cluster, environment.Client)
			if err != nil || got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, tc.message) {
				t.Errorf("%s: PoolsSynced is %s: %s, %v", tc.reason, got.Status, got.Message, err)
			}
			after := poolsThere(t)
			if crashes == 0 || len(after) != 4 || !strings.HasPrefix(after["NodePool "+tc.static], "static ") ||
				!strings.HasPrefix(after["NodePool "+tc.dynamic], "dynamic ") {
				t.Errorf("%s: after %d crashes there are %v", tc.reason, crashes, after)
			}
			for object, was := range first {
				if after[object] != was {
					t.Errorf("%s: %s was %s and is %s", tc.reason, object, was, after[object])
				}
			}
			// The pool that stays keeps its servers when the other one goes.
			setAutoNodes(t, cluster, "[{provider: metal3, dynamic: [{name: twin}]}]")
			if got, err := once(t, cluster, environment.Client); err != nil || got.Status != metav1.ConditionTrue {
				t.Errorf("PoolsSynced is %s: %s, %v", got.Status, got.Message, err)
			}
			gone(t, named(&karpv1.NodePool{}, tc.static), named(&v1alpha1.MetalNodeClass{}, tc.static))
			if now := poolsThere(t)["NodePool "+tc.dynamic]; now != after["NodePool "+tc.dynamic] {
				t.Errorf("the dynamic pool was %s and is %s", after["NodePool "+tc.dynamic], now)
			}
		})
	}
}

// TestNarrowingReplacesNoNode: the pool is from before properties narrowed, and one of its nodes is of another kind.
func TestNarrowingReplacesNoNode(t *testing.T) {
	const key = "example.com/fabric"
	narrowed := karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"roce"}}
	for name, tc := range map[string]struct {
		reason string
		// node has this value of the property; none if empty.
		node string
		// edited is true if the author gives the pool the property now.
		edited, want bool
	}{
		"Unlike":     {reason: "the node would be replaced, and nothing has changed", node: "infiniband"},
		"Without":    {reason: "the node is from before it had the label"},
		"Alike":      {reason: "no node would be replaced", node: "roce", want: true},
		"EditedNow":  {reason: "the author asks for it, and nodes are replaced within budgets", node: "infiniband", edited: true, want: true},
		"EditedSoon": {reason: "the same, without a label", edited: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenantCluster(t)
			const properties, without = "properties: {example.com/fabric: roce}, ", ""
			pool := func(properties string) string {
				return "[{provider: fabrics, dynamic: [{name: old, " + properties + "weight: 1}]}]"
			}
			// A NodePool of the version before has no such requirement, and its class no annotation.
			before := known
			known.offered = func(string) []matching.Offered { return nil }
			setAutoNodes(t, cluster, pool(map[bool]string{true: without, false: properties}[tc.edited]))
			if got, err := once(t, cluster, environment.Client); err != nil || got.Status != metav1.ConditionTrue {
				t.Fatalf("PoolsSynced is %s: %s, %v", got.Status, got.Message, err)
			}
			known = before
			if requirements := nodePool(t, "old").Spec.Template.Spec.Requirements; len(requirements) != 1 {
				t.Fatalf("the requirements are %v already", requirements)
			}
			nodeClaim := &karpv1.NodeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "node-" + strings.ToLower(name), Labels: map[string]string{karpv1.NodePoolLabelKey: "old"}},
				Spec: karpv1.NodeClaimSpec{
					NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: nodeClassKind, Name: "old"},
					Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
				},
			}
			if tc.node != "" {
				nodeClaim.Labels[key] = tc.node
			}
			if err := environment.Client.Create(t.Context(), nodeClaim); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := client.IgnoreNotFound(environment.Client.Delete(context.Background(), nodeClaim)); err != nil {
					t.Errorf("cleaning up, %v", err)
				}
			})
			if tc.edited {
				setAutoNodes(t, cluster, pool(properties))
				// The class is written, and the process dies before the NodePool is.
				died := errors.New("the process died")
				dying := interceptor.NewClient(tenanttest.WithWatch(&environment), interceptor.Funcs{
					Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
						if _, isPool := object.(*karpv1.NodePool); isPool {
							return died
						}
						return c.Patch(ctx, object, patch, opts...)
					},
				})
				if _, err := once(t, cluster, dying); !errors.Is(err, died) {
					t.Fatalf("got %v, want that the process died", err)
				}
			}
			check := func(want bool) {
				t.Helper()
				got, err := once(t, cluster, environment.Client)
				if err != nil || got.Status != metav1.ConditionTrue {
					t.Fatalf("%s: PoolsSynced is %s: %s, %v", tc.reason, got.Status, got.Message, err)
				}
				requirements := nodePool(t, "old").Spec.Template.Spec.Requirements[1:]
				message := "autoNodes[0].dynamic[0] (old): " + key + " does not narrow its NodeTypes while it has NodeClaims that would be replaced " +
					"for it (" + nodeClaim.Name + "): select by it in nodeTypeSelector to have them replaced"
				if want {
					if diff := cmp.Diff([]karpv1.NodeSelectorRequirementWithMinValues{narrowed}, requirements); diff != "" {
						t.Errorf("%s: requirements (-want +got):\n%s", tc.reason, diff)
					}
				} else if len(requirements) > 0 {
					t.Errorf("%s: requirements are %v", tc.reason, requirements)
				}
				if strings.Contains(got.Message, message) == want {
					t.Errorf("%s: the message is %s", tc.reason, got.Message)
				}
			}
			check(tc.want)
			check(tc.want) // another start
			if err := environment.Client.Delete(t.Context(), nodeClaim); err != nil {
				t.Fatal(err)
			}
			check(true)
		})
	}
}
