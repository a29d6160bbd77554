// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

type catalog struct {
	advertises, exists func(string) bool
	offered            func(provider string) []matching.Offered
}

func (c catalog) Advertises(key string) bool                 { return c.advertises(key) }
func (c catalog) Exists(name string) bool                    { return c.exists(name) }
func (c catalog) Offered(provider string) []matching.Offered { return c.offered(provider) }
func (catalog) Synced() error                                { return nil }

func newController(clusters tenant.Clusters) *Controller {
	return NewController(clock.RealClock{}, clusters, known, known)
}

// start runs the controller with caches and watches. When the test ends, its pools go after the controller has stopped:
// before that it would make them again, for the next test to find.
func start(t *testing.T) types.NamespacedName {
	t.Helper()
	cluster := tenantCluster(t)
	tenanttest.Run(t, &environment, cluster, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
		return newController(clusters)
	})
	return cluster
}

// setAutoNodes writes the TenantCluster's privateNodes, with nothing but these pools.
func setAutoNodes(t *testing.T, key types.NamespacedName, autoNodes string) {
	t.Helper()
	setPrivateNodes(t, key, "{autoNodes: "+autoNodes+"}")
}

// condition waits until PoolsSynced is about what has been said last and no pool is on its way out any more, and returns
// it.
func condition(t *testing.T, key types.NamespacedName) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	tenanttest.Eventually(t, "PoolsSynced is about the present generation", func(ctx context.Context) (bool, error) {
		cluster := &v1alpha1.TenantCluster{}
		if err := environment.Client.Get(ctx, key, cluster); err != nil {
			return false, err
		}
		if condition := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionPoolsSynced); condition != nil {
			found = *condition
		}
		return found.ObservedGeneration == cluster.Generation && found.Reason != v1alpha1.ReasonReplacingPools, nil
	})
	return found
}

func nodePool(t *testing.T, name string) *karpv1.NodePool {
	t.Helper()
	pool := &karpv1.NodePool{}
	if err := environment.Client.Get(t.Context(), client.ObjectKey{Name: name}, pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

func gone(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		tenanttest.Eventually(t, fmt.Sprintf("%T %s is gone", object, object.GetName()), func(ctx context.Context) (bool, error) {
			err := environment.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
			return kube.IsGone(err), client.IgnoreNotFound(err)
		})
	}
}

func named[T client.Object](object T, name string) T {
	object.SetName(name)
	return object
}

func TestPoolsFollowTenantCluster(t *testing.T) {
	cluster := start(t)
	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: fixed, quantity: 2, limits: {nodes: 3}}], dynamic: [{name: flexible, "+
		"weight: 7}]}]")
	if got := condition(t, cluster); got.Status != metav1.ConditionTrue {
		t.Fatalf("PoolsSynced is %s: %s", got.Status, got.Message)
	}
	if replicas := nodePool(t, "fixed").Spec.Replicas; replicas == nil || *replicas != 2 {
		t.Errorf("the static pool has replicas %v, want 2", replicas)
	}
	if flexible := nodePool(t, "flexible").Spec; flexible.Replicas != nil || *flexible.Weight != 7 {
		t.Errorf("the dynamic pool is %+v", flexible)
	}

	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: fixed, quantity: 5}]}]")
	if got := condition(t, cluster); got.Status != metav1.ConditionTrue {
		t.Fatalf("PoolsSynced is %s: %s", got.Status, got.Message)
	}
	if replicas := nodePool(t, "fixed").Spec.Replicas; replicas == nil || *replicas != 5 {
		t.Errorf("the static pool has replicas %v, want 5", replicas)
	}
	gone(t, named(&karpv1.NodePool{}, "flexible"), named(&v1alpha1.MetalNodeClass{}, "flexible"))

	// Karpenter lets no static pool become a dynamic one.
	setAutoNodes(t, cluster, "[{provider: metal3, dynamic: [{name: fixed}]}]")
	tenanttest.Eventually(t, "the pool has been created again", func(ctx context.Context) (bool, error) {
		pool := &karpv1.NodePool{}
		err := environment.Client.Get(ctx, client.ObjectKey{Name: "fixed"}, pool)
		return err == nil && pool.Spec.Replicas == nil, client.IgnoreNotFound(err)
	})
}

// The pools are not synced while an earlier object of the same name is being deleted.
func TestReplacingPools(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, finalizer string
	}{
		"Gone":     {"it goes at once, and nothing is there", ""},
		"Draining": {"Karpenter gives its servers back first", "example.com/draining"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenantCluster(t)
			controller := newController(tenanttest.ClustersOf(cluster, environment.Client, environment.Client))
			round := func() metav1.Condition {
				t.Helper()
				if _, err := controller.Reconcile(t.Context(), reconcile.Request{}); err != nil {
					t.Fatal(err)
				}
				found := &v1alpha1.TenantCluster{}
				if err := environment.Client.Get(t.Context(), cluster, found); err != nil {
					t.Fatal(err)
				}
				condition := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionPoolsSynced)
				if condition == nil || condition.ObservedGeneration != found.Generation {
					t.Fatalf("%s: PoolsSynced is %+v", tc.reason, condition)
				}
				return *condition
			}
			pool := "anew-" + strings.ToLower(name)
			t.Cleanup(func() {
				for _, object := range []client.Object{named(&karpv1.NodePool{}, pool), named(&v1alpha1.MetalNodeClass{}, pool)} {
					if err := client.IgnoreNotFound(environment.Client.Delete(context.Background(), object)); err != nil {
						t.Errorf("cleaning up, %v", err)
					}
				}
			})
			setAutoNodes(t, cluster, "[{provider: metal3, dynamic: [{name: "+pool+"}]}]")
			if got := round(); got.Status != metav1.ConditionTrue {
				t.Fatalf("%s: PoolsSynced is %s: %s", tc.reason, got.Status, got.Message)
			}
			finalizers := func(value string) {
				t.Helper()
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+value+`}}`))
				if err := client.IgnoreNotFound(environment.Client.Patch(t.Context(), named(&karpv1.NodePool{}, pool), patch)); err != nil {
					t.Fatal(err)
				}
			}
			rounds := 1
			if tc.finalizer != "" {
				finalizers(`["` + tc.finalizer + `"]`)
				rounds = 2
			}
			setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: "+pool+", quantity: 1}]}]")
			for range rounds {
				got := round()
				if got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonReplacingPools ||
					!strings.Contains(got.Message, "NodePool "+pool+" is being deleted, and is created again once it is gone") {
					t.Errorf("%s: PoolsSynced is %s, %s: %s", tc.reason, got.Status, got.Reason, got.Message)
				}
			}
			finalizers("null")
			if got := round(); got.Status != metav1.ConditionTrue || nodePool(t, pool).Spec.Replicas == nil {
				t.Errorf("%s: it is gone, and PoolsSynced is %s, %s: %s", tc.reason, got.Status, got.Reason, got.Message)
			}
		})
	}
}

func TestEditsAreReverted(t *testing.T) {
	cluster := start(t)
	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: fixed, quantity: 1, properties: {karpenter.metal3.io/server-name: s1}}]}]")
	condition(t, cluster)
	for name, tc := range map[string]struct {
		reason string
		tamper func(ctx context.Context) error
	}{
		"Replicas": {"more servers than the TenantCluster says", func(ctx context.Context) error {
			return environment.Client.Patch(ctx, named(&karpv1.NodePool{}, "fixed"),
				client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":9}}`)))
		}},
		"Label": {"it would no longer be known as ours", func(ctx context.Context) error {
			return environment.Client.Patch(ctx, named(&karpv1.NodePool{}, "fixed"),
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`)))
		}},
		"Class": {"another server", func(ctx context.Context) error {
			return environment.Client.Patch(ctx, named(&v1alpha1.MetalNodeClass{}, "fixed"), client.RawPatch(types.MergePatchType,
				[]byte(`{"spec":{"properties":{"karpenter.metal3.io/server-name":"s2"}}}`)))
		}},
		"ReferenceKey": {"another server and image, in the spelling of the reference", func(ctx context.Context) error {
			return environment.Client.Patch(ctx, named(&v1alpha1.MetalNodeClass{}, "fixed"), client.RawPatch(types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"properties":{%q:"s2",%q:"other"}}}`, v1alpha1.ReferenceKey(v1alpha1.PropertyServerName),
					v1alpha1.ReferenceKey(v1alpha1.PropertyOSImage))))
		}},
		"Deleted": {"no servers", func(ctx context.Context) error {
			return environment.Client.Delete(ctx, named(&karpv1.NodePool{}, "fixed"))
		}},
		"ClassDeleted": {"no servers", func(ctx context.Context) error {
			return environment.Client.Delete(ctx, named(&v1alpha1.MetalNodeClass{}, "fixed"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.tamper(t.Context()); err != nil {
				t.Fatal(err)
			}
			tenanttest.Eventually(t, "everything is as it was", func(ctx context.Context) (bool, error) {
				pool, class := &karpv1.NodePool{}, &v1alpha1.MetalNodeClass{}
				for _, object := range []client.Object{pool, class} {
					if err := environment.Client.Get(ctx, client.ObjectKey{Name: "fixed"}, object); err != nil {
						return false, client.IgnoreNotFound(err)
					}
				}
				return *pool.Spec.Replicas == 1 && pool.Labels[v1alpha1.TenantPoolLabelKey] != "" &&
					maps.Equal(class.Spec.Properties, v1alpha1.Properties{v1alpha1.PropertyServerName: "s1"}), nil
			})
		})
	}
}

// What has been written once is not written again: a difference in writing must not look like an edit.
func TestNoWriteWithoutChange(t *testing.T) {
	cluster := tenantCluster(t)
	setAutoNodes(t, cluster,
		`[{provider: metal3, dynamic: [{name: quiet, expireAfter: 24h, terminationGracePeriod: 90m, limits: {cpu: "1000m"},
		taints: [{key: a, effect: NoSchedule}], nodeLabels: {team: vision}, disruption: {budgets: [{nodes: "1", schedule: "@daily", duration: 90m}]}}]}]`)
	controller := newController(tenanttest.ClustersOf(cluster, environment.Client, environment.Client))
	versions := func() string {
		class := &v1alpha1.MetalNodeClass{}
		if err := environment.Client.Get(t.Context(), client.ObjectKey{Name: "quiet"}, class); err != nil {
			t.Fatal(err)
		}
		tenantCluster := &v1alpha1.TenantCluster{}
		if err := environment.Client.Get(t.Context(), cluster, tenantCluster); err != nil {
			t.Fatal(err)
		}
		return strings.Join([]string{nodePool(t, "quiet").ResourceVersion, class.ResourceVersion, tenantCluster.ResourceVersion}, " ")
	}
	if _, err := controller.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	before := versions()
	if _, err := controller.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	if after := versions(); after != before {
		t.Errorf("versions were %s and are %s: something has been written that was there already", before, after)
	}
}

func TestInvalidPoolDoesNotAffectOthers(t *testing.T) {
	cluster := start(t)
	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: good, quantity: 1}, {name: turning-bad, quantity: 1}]}]")
	condition(t, cluster)
	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: good, quantity: 2}, {name: turning-bad, quantity: 1, nodeTypeSelector: "+
		"[{property: gpu-modle, value: x}]}], dynamic: [{name: refused, nodeLabels: {kubernetes.io/hostname: mine}}]}]")
	got := condition(t, cluster)
	if got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonInvalidPools {
		t.Errorf("PoolsSynced is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
	for _, want := range []string{"autoNodes[0].static[1] (turning-bad)", "gpu-modle", "autoNodes[0].dynamic[0] (refused)",
		"kubernetes.io/hostname"} {
		if !strings.Contains(got.Message, want) {
			t.Errorf("the message lacks %q: %s", want, got.Message)
		}
	}
	if replicas := nodePool(t, "good").Spec.Replicas; *replicas != 2 {
		t.Errorf("the good pool has %d replicas, want 2", *replicas)
	}
	nodePool(t, "turning-bad") // A typing error gives no servers back.
}

// TestKubeletOfPools: the class of a pool has the arguments of its kubelets, and follows them, as IsDrifted of package
// cloudprovider follows the class. What no kubelet would take changes no class.
func TestKubeletOfPools(t *testing.T) {
	cluster := start(t)
	for _, step := range []struct {
		reason, kubelet, args string
		want                  v1alpha1.KubeletArgs
		problem               string
	}{
		{"of the pool, and of all pools", "{maxPods: 200, evictionHard: {memory.available: 1Gi}, shutdownGracePeriod: 30s}",
			"{topology-manager-policy: single-numa-node}", v1alpha1.KubeletArgs{"max-pods": "200",
				"eviction-hard": "memory.available<1Gi", "topology-manager-policy": "single-numa-node"}, ""},
		{"the pool is more specific", "{maxPods: 200}", "{max-pods: '50'}", v1alpha1.KubeletArgs{"max-pods": "50"}, ""},
		{"the webhook was down", "{maxPods: [200]}", "{}", v1alpha1.KubeletArgs{"max-pods": "50"},
			`spec.privateNodes.kubelet.config.maxPods: Invalid value: "[200]": must be a text, a number or a boolean`},
		{"the webhook was down", "{}", "{v: '2 3'}", v1alpha1.KubeletArgs{"max-pods": "50"},
			"the value of a kubelet argument holds no blank"},
		{"none", "null", "{}", nil, ""},
	} {
		setPrivateNodes(t, cluster, "{kubelet: {config: "+step.kubelet+"}, autoNodes: [{provider: metal3, static: "+
			"[{name: fixed, quantity: 1, kubeletArgs: "+step.args+"}]}]}")
		got := condition(t, cluster)
		if (got.Status == metav1.ConditionTrue) != (step.problem == "") || !strings.Contains(got.Message, step.problem) {
			t.Errorf("%s: PoolsSynced is %s, %s: %s; want %q", step.reason, got.Status, got.Reason, got.Message,
				step.problem)
		}
		class := named(&v1alpha1.MetalNodeClass{}, "fixed")
		if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(class), class); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, class.Spec.KubeletArgs); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
	}
}

// Invariant 5: a TenantCluster that cannot be read deletes no pools.
func TestMissingTenantClusterDeletesNothing(t *testing.T) {
	cluster := tenantCluster(t)
	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: kept, quantity: 1}]}]")
	clusters := tenanttest.ClustersOf(cluster, environment.Client, environment.Client)
	if _, err := newController(clusters).Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	tenantCluster := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
	if err := environment.Client.Delete(t.Context(), tenantCluster); err != nil {
		t.Fatal(err)
	}
	if _, err := newController(clusters).Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	nodePool(t, "kept")
}

func TestPoolsAreDeletedWithTenantCluster(t *testing.T) {
	cluster := start(t)
	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: leaving, quantity: 1}]}]")
	condition(t, cluster)
	tenantCluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(t.Context(), cluster, tenantCluster); err != nil {
		t.Fatal(err)
	}
	tenantCluster.Finalizers = []string{v1alpha1.TenantClusterFinalizer} // the manager's
	if err := environment.Client.Update(t.Context(), tenantCluster); err != nil {
		t.Fatal(err)
	}
	if err := environment.Client.Delete(t.Context(), tenantCluster); err != nil {
		t.Fatal(err)
	}
	gone(t, named(&karpv1.NodePool{}, "leaving"), named(&v1alpha1.MetalNodeClass{}, "leaving"))
	if got := condition(t, cluster); got.Reason != v1alpha1.ReasonTenantDeleting {
		t.Errorf("PoolsSynced is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
}

func TestAdmission(t *testing.T) {
	namespace := environment.Namespace(t)
	for name, tc := range map[string]struct{ reason, pool, want string }{
		"Good":       {"the least", "dynamic: [{name: a}]", ""},
		"NoQuantity": {"how many", "static: [{name: a}]", "quantity"},
		"Name":       {"it becomes an object's", "dynamic: [{name: A_B}]", "name"},
		"Operator":   {"one of four", "dynamic: [{name: a, nodeTypeSelector: [{property: x, operator: Gt, value: '1'}]}]", "operator"},
		"Useless": {"it would be ignored silently", "dynamic: [{name: a, nodeTypeSelector: [{property: x, operator: Exists, value: '1'}]}]",
			"take neither"},
		"Both": {"which of them", "dynamic: [{name: a, nodeTypeSelector: [{property: x, value: '1', values: ['2']}]}]",
			"need one of value and values"},
		"Missing":     {"In what", "dynamic: [{name: a, nodeTypeSelector: [{property: x}]}]", "need one of value and values"},
		"ExpireAfter": {"no such duration", "dynamic: [{name: a, expireAfter: soon}]", "expireAfter"},
		"Budget":      {"no such share", "dynamic: [{name: a, disruption: {budgets: [{nodes: '120%'}]}}]", "nodes"},
		"Schedule": {"for how long", "dynamic: [{name: a, disruption: {budgets: [{nodes: '1', schedule: '@daily'}]}}]",
			"schedule and duration go together"},
		"Never": {"as the reference has it", "dynamic: [{name: a, terminationGracePeriod: Never}], " +
			"static: [{name: a, quantity: 1, terminationGracePeriod: Never}]", ""},
		"Drain": {"no such duration", "dynamic: [{name: a, terminationGracePeriod: never}]", "terminationGracePeriod"},
		"Disruption": {"the reference's example", "dynamic: [{name: a, disruption: {consolidateAfter: 10s, budgets: " +
			"[{nodes: 20%}, {nodes: '5'}, {nodes: '0', schedule: '@daily', duration: 10m}]}}]", ""},
		"Weight": {"Karpenter's bounds", "dynamic: [{name: a, weight: 101}]", "weight"},
	} {
		t.Run(name, func(t *testing.T) {
			content := map[string]any{}
			if err := yaml.Unmarshal([]byte("apiVersion: karpenter.metal3.io/v1alpha1\nkind: TenantCluster\nmetadata: {name: t, namespace: "+
				namespace+"}\nspec: {apiServerEndpoint: 'h:1', privateNodes: {autoNodes: [{provider: metal3, "+tc.pool+"}]}}"), &content); err != nil {
				t.Fatal(err)
			}
			err := environment.Client.Create(t.Context(), &unstructured.Unstructured{Object: content}, client.DryRunAll)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
