// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeprofiles

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var tenantKey = types.NamespacedName{Namespace: "tenant-a", Name: "a"}

// clusters has a management cluster with the profile gpu.
func clusters(t *testing.T) tenant.Clusters {
	t.Helper()
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	return tenant.Clusters{TenantCluster: tenantKey,
		Management: tenant.Cluster{Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(
			&v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: tenantKey.Namespace, Name: tenantKey.Name}},
			&v1alpha1.NodeProfile{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.NodeProfileSpec{
				NodeLabels:    map[string]string{"example.com/class": "gpu"},
				Taints:        []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}},
				StartupTaints: []corev1.Taint{{Key: "boot", Effect: corev1.TaintEffectNoSchedule}},
			}},
		).Build()}}
}

func pool(name, profile string) *karpv1.NodePool {
	return planning.Pool(name, func(pool *karpv1.NodePool) {
		if profile != "" {
			pool.Labels = map[string]string{v1alpha1.NodeProfileLabelKey: profile}
		}
	})
}

func tolerating(pod *corev1.Pod) {
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
}

// TestPlan: core plans with what the nodes will have.
func TestPlan(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, profile string
		change          func(*corev1.Pod)
		want            int
	}{
		"NoProfile": {"as without NodeProfiles", "", func(*corev1.Pod) {}, 1},
		"Tolerates": {"the pod may run there, whatever the startup taints", "gpu", tolerating, 1},
		"Not":       {"it could not run there, and the server would stay empty", "gpu", func(*corev1.Pod) {}, 0},
		"Label": {"the node will have the label", "gpu", func(p *corev1.Pod) {
			tolerating(p)
			planning.Selecting("example.com/class",
				"gpu")(p)
		}, 1},
		"ProfileLabel": {"the node will have the label", "gpu",
			func(p *corev1.Pod) { tolerating(p); planning.Selecting(v1alpha1.NodeProfileLabelKey, "gpu")(p) }, 1},
		"OtherLabel": {"it will have another value", "gpu", func(p *corev1.Pod) {
			tolerating(p)
			planning.Selecting("example.com/class",
				"cpu")(p)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			results := planning.Plan{
				Types: []*v1alpha1.NodeType{planning.NodeType("h100", 8, planning.Domain(4))},
				Pools: []*karpv1.NodePool{pool(planning.PoolName, tc.profile)},
				Decorate: func(c client.Client, _ *instancetypes.Catalog) client.Client {
					return interceptor.NewClient(c, NodePools(clusters(t)))
				},
				Objects: []client.Object{planning.Pod("pod", []string{"nvidia.com/gpu", "8"}, tc.change)},
			}.Solve(t)
			if got := len(results.NewNodeClaims); got != tc.want {
				t.Errorf("%s: %d NodeClaims, want %d: %v", tc.reason, got, tc.want, results.PodErrors)
			}
		})
	}
}

// TestPlanned: a NodePool in memory, and the NodeClaim that core makes of it.
func TestPlanned(t *testing.T) {
	stored := pool("a", "gpu")
	stored.Spec.Template.Labels = map[string]string{"team": "blue"}
	before := stored.DeepCopy()
	planned, problem, err := Planned(t.Context(), clusters(t), stored)
	if err != nil || problem != "" {
		t.Fatal(problem, err)
	}
	if diff := cmp.Diff(before, stored); diff != "" {
		t.Errorf("the NodePool belongs to the cache, and was changed (-before +after):\n%s", diff)
	}
	templates := []*scheduling.NodeClaimTemplate{scheduling.NewNodeClaimTemplate(planned), scheduling.NewNodeClaimTemplate(planned)}
	for _, template := range templates {
		template.IsStaticNodeClaim = true
		nodeClaim := template.ToNodeClaim()
		StoredHash(nodeClaim)
		if got := nodeClaim.Annotations[karpv1.NodePoolHashAnnotationKey]; got != stored.Hash() {
			t.Errorf("its hash is %s, and that of the stored NodePool is %s: the NodeClaim has drifted before it has a server", got, stored.Hash())
		}
		if _, found := nodeClaim.Annotations[v1alpha1.NodePoolHashAnnotationKey]; found {
			t.Error("an annotation is written that is for memory only")
		}
		applied := `{"profile":"gpu","labels":["example.com/class","karpenter.metal3.io/node-profile",` +
			`"node-restriction.kubernetes.io/node-profile","` + v1alpha1.ReferenceKey(v1alpha1.NodeProfileLabelKey) + `"],"taints":["gpu:NoSchedule"],"startupTaints":["boot:NoSchedule"]}`
		if got := nodeClaim.Annotations[v1alpha1.NodeProfileAppliedAnnotationKey]; got != applied {
			t.Errorf("what the Node will have from its profile is %s", got)
		}
		if nodeClaim.Labels["example.com/class"] != "gpu" || nodeClaim.Labels["team"] != "blue" || len(nodeClaim.Spec.Taints) != 1 ||
			len(nodeClaim.Spec.StartupTaints) != 1 {
			t.Errorf("it has %v, %v, %v", nodeClaim.Labels, nodeClaim.Spec.Taints, nodeClaim.Spec.StartupTaints)
		}
	}
}

// TestUnchanged: NodePools without a profile are shown to core as they are, byte for byte, and so are their NodeClaims.
func TestUnchanged(t *testing.T) {
	stored := pool("a", "")
	planned, problem, err := Planned(t.Context(), clusters(t), stored)
	if planned != stored || problem != "" || err != nil {
		t.Errorf("it is another one: %v %s %v", planned, problem, err)
	}
	nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{karpv1.NodePoolHashAnnotationKey: "1"}}}
	before := nodeClaim.DeepCopy()
	StoredHash(nodeClaim)
	if diff := cmp.Diff(before, nodeClaim); diff != "" {
		t.Errorf("its NodeClaim is another one:\n%s", diff)
	}
}

// TestNotReady: a NodePool whose nodes cannot have their profile gets none without it.
func TestNotReady(t *testing.T) {
	planned, problem, err := Planned(t.Context(), clusters(t), pool("a", "missing"))
	if err != nil || !strings.Contains(problem, `there is no NodeProfile "missing"`) {
		t.Fatal(problem, err)
	}
	if root := planned.StatusConditions().Root(); root.IsTrue() {
		t.Errorf("core takes the NodePool for ready: %+v", root)
	}
}
