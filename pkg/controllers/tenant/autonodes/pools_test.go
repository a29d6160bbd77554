// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// known are the labels of the fleet of these tests.
var known = catalog{
	advertises: func(key string) bool {
		return slices.Contains([]string{"karpenter.metal3.io/node-type", "node.kubernetes.io/instance-type", "karpenter.metal3.io/os-image",
			"rack", "example.com/tier", "example.com/fabric", "type.karpenter.metal3.io/customer-a"}, key)
	},
	exists: func(name string) bool { return slices.Contains([]string{"h100", "metal3.exact"}, name) },
	offered: func(provider string) []matching.Offered {
		if provider != "fabrics" {
			return []matching.Offered{{"karpenter.metal3.io/node-type": {"h100"}, "karpenter.metal3.io/os-image": {"debian"}}}
		}
		return []matching.Offered{
			{"example.com/fabric": {"roce", "infiniband"}, "karpenter.metal3.io/os-image": {"debian"}, "topology.kubernetes.io/zone": {"a"}},
			{"example.com/fabric": nil}, // any
		}
	},
}

func tenantWith(t *testing.T, privateNodes string) *v1alpha1.TenantCluster {
	t.Helper()
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"}}
	if err := yaml.UnmarshalStrict([]byte(privateNodes), &tenant.Spec); err != nil {
		t.Fatal(err)
	}
	return tenant
}

func TestSelector(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, selector string
		want             []string
		wantProblem      string
	}{
		"Value":  {"the page's form", "[{property: rack, value: r1}]", []string{"rack In r1"}, ""},
		"Values": {"more than one", "[{property: rack, operator: In, values: [r1, r2]}]", []string{"rack In r1,r2"}, ""},
		"Both": {"the schema rejects it, too", "[{property: rack, value: r1, values: [r1, r2]}]", nil,
			"nodeTypeSelector[0].value: Invalid value: \"r1\": there are values too"},
		"NotIn":  {"one value", "[{property: rack, operator: NotIn, value: r1}]", []string{"rack NotIn r1"}, ""},
		"Exists": {"no value", "[{property: example.com/tier, operator: Exists}]", []string{"example.com/tier Exists "}, ""},
		"NotExists": {"Kubernetes calls it otherwise", "[{property: example.com/tier, operator: NotExists}]",
			[]string{"example.com/tier DoesNotExist "}, ""},
		"All": {"every entry must be met", "[{property: rack, value: r1}, {property: karpenter.metal3.io/node-type, value: h100}]",
			[]string{"rack In r1", "karpenter.metal3.io/node-type In h100"}, ""},
		"UnknownIn":      {"any server would pass", "[{property: gpu-modle, value: h100}]", nil, "no NodeType has the property gpu-modle"},
		"UnknownExists":  {"any server would pass", "[{property: gpu-modle, operator: Exists}]", nil, "no NodeType has the property gpu-modle"},
		"UnknownNotIn":   {"every server is meant", "[{property: gpu-modle, operator: NotIn, value: x}]", nil, ""},
		"UnknownMissing": {"every server is meant", "[{property: gpu-modle, operator: NotExists}]", nil, ""},
		"NoValue": {"In what", "[{property: rack, operator: In}]", nil,
			"nodeTypeSelector[0].value: Required value: In and NotIn compare with values"},
		"UselessValue": {"it would be ignored silently", "[{property: rack, operator: Exists, value: r1}]", nil, "take neither"},
		"TwoTypes": {"servers that match both", "[{property: karpenter.metal3.io/node-type, value: h100}, " +
			"{property: karpenter.metal3.io/node-type, value: customer-a}]",
			[]string{"karpenter.metal3.io/node-type In h100", "type.karpenter.metal3.io/customer-a In true"}, ""},
		"TwoTypesInVain": {"no server matches it and another type",
			"[{property: karpenter.metal3.io/node-type, value: h100}, {property: karpenter.metal3.io/node-type, value: customer-b}]", nil,
			"nodeTypeSelector[1]: no server matches this NodeType and another one too: label the BareMetalHosts that are meant"},
		"TypeAndSeveral": {"a label says one or the other",
			"[{property: karpenter.metal3.io/node-type, value: h100}, " +
				"{property: karpenter.metal3.io/node-type, values: [customer-a, customer-b]}]", nil,
			"name one type here, or make a pool for each"},
		"OnDemand": {"as in every example of Karpenter's", "[{property: karpenter.sh/capacity-type, value: on-demand}]",
			[]string{"-karpenter.sh/capacity-type In reserved", "karpenter.sh/capacity-type In on-demand"}, ""},
		"OnDemandOrSpot": {"the same", "[{property: karpenter.sh/capacity-type, values: [spot, on-demand]}]",
			[]string{"-karpenter.sh/capacity-type In reserved", "karpenter.sh/capacity-type In spot,on-demand"}, ""},
		"NotReserved": {"the same", "[{property: karpenter.sh/capacity-type, operator: NotIn, value: reserved}]",
			[]string{"-karpenter.sh/capacity-type In reserved", "karpenter.sh/capacity-type NotIn reserved"}, ""},
		"OnDemandOrReserved": {"what is allowed stays reserved", "[{property: karpenter.sh/capacity-type, values: [on-demand, reserved]}]",
			[]string{"karpenter.sh/capacity-type In on-demand,reserved"}, ""},
		"Spot": {"it would wait for ever", "[{property: karpenter.sh/capacity-type, value: spot}]", nil,
			"nodeTypeSelector: karpenter.sh/capacity-type allows neither reserved nor on-demand, and servers are nothing else"},
		"Operator": {"as Kubernetes calls it", "[{property: rack, operator: DoesNotExist}]", nil,
			`nodeTypeSelector[0].operator: Unsupported value: "DoesNotExist": supported values: "In", "NotIn", "Exists", "NotExists"`},
		"OfProvider": {"as the reference writes the name of a type", "[{property: karpenter.metal3.io/node-type, values: [metal3.h100, h100]}, " +
			"{property: node.kubernetes.io/instance-type, operator: NotIn, value: metal3.a100}]",
			[]string{"karpenter.metal3.io/node-type In h100,h100", "node.kubernetes.io/instance-type NotIn a100"}, ""},
		"Exact": {"a type is called so", "[{property: karpenter.metal3.io/node-type, value: metal3.exact}]",
			[]string{"karpenter.metal3.io/node-type In metal3.exact"}, ""},
		"OfOther": {"the pool has no servers of that provider", "[{property: karpenter.metal3.io/node-type, value: metal4.h100}]",
			[]string{"karpenter.metal3.io/node-type In metal4.h100"}, ""},
		"OtherProperty": {"only types are called so", "[{property: rack, value: metal3.r1}]", []string{"rack In metal3.r1"}, ""},
		"OwnForm": {"a name that can be a label", "[{property: karpenter.metal3.io/os-image, value: debian}]",
			[]string{"karpenter.metal3.io/os-image In debian"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pools := poolsOf(tenantWith(t, "privateNodes: {autoNodes: [{provider: metal3, dynamic: [{name: p, nodeTypeSelector: "+tc.selector+
				"}]}]}"), known, nil)
			if !strings.Contains(pools[0].Problem, tc.wantProblem) || (tc.wantProblem == "") != (pools[0].Problem == "") {
				t.Fatalf("%s: got problem %q, want %q", tc.reason, pools[0].Problem, tc.wantProblem)
			}
			if tc.wantProblem != "" {
				return
			}
			want := append([]string{"karpenter.sh/capacity-type In reserved"}, tc.want...)
			if len(tc.want) > 0 && tc.want[0] == "-"+want[0] {
				want = tc.want[1:]
			}
			var got []string
			for _, r := range pools[0].nodePool.Spec.Template.Spec.Requirements {
				got = append(got, r.Key+" "+string(r.Operator)+" "+strings.Join(r.Values, ","))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestInvalidPools(t *testing.T) {
	for name, tc := range map[string]struct{ reason, pools, want string }{
		"TwiceTheName": {"one would undo the other", "dynamic: [{name: a}, {name: a}], static: [{name: a, quantity: 1}]",
			`autoNodes[0].dynamic[1] (a): the name "a" is that of autoNodes[0].dynamic[0] (a) already`},
		"StaticLimits": {"Karpenter refuses them", "static: [{name: a, quantity: 1, limits: {cpu: 5}}]", "no limit but nodes"},
		"ExpireAfter":  {"no such duration", "dynamic: [{name: a, expireAfter: soon}]", `expireAfter is "soon"`},
		"Drain": {"the schema admits it, and Go has no such duration", "dynamic: [{name: a, terminationGracePeriod: 99999999999h}]",
			`terminationGracePeriod is "99999999999h", which is no duration`},
		"Budget": {"the same", "dynamic: [{name: a, disruption: {budgets: [{}, {nodes: '1', schedule: '@daily', duration: 99999999999h}]}}]",
			`disruption.budgets[1].duration is "99999999999h", which is no duration`},
	} {
		t.Run(name, func(t *testing.T) {
			problems := ""
			for _, p := range poolsOf(tenantWith(t, "privateNodes: {autoNodes: [{provider: metal3, "+tc.pools+"}]}"), known, nil) {
				if p.Problem != "" {
					problems += p.Where + ": " + p.Problem
				}
			}
			if !strings.Contains(problems, tc.want) {
				t.Errorf("%s: got %q, want %q in it", tc.reason, problems, tc.want)
			}
		})
	}
}

func TestAllFields(t *testing.T) {
	pools := poolsOf(tenantWith(t, `
privateNodes:
  enabled: true
  kubelet: {config: {maxPods: 200, cpuManagerPolicy: static, shutdownGracePeriod: 30s}}
  autoNodes:
  - provider: metal3
    properties: {karpenter.metal3.io/os-image: general, example.com/tier: gold}
    dynamic:
    - name: gpu
      properties: {karpenter.metal3.io/os-image: special}
      nodeTypeSelector: [{property: rack, value: r1}]
      kubeletArgs: {max-pods: "50", topology-manager-policy: single-numa-node}
      taints: [{key: gpu, value: "true", effect: NoSchedule}]
      nodeLabels: {team: vision}
      limits: {nodes: "3", cpu: 100}
      weight: 50
      terminationGracePeriod: 1h
      expireAfter: 720h
      disruption:
        consolidateAfter: 10m
        consolidationPolicy: WhenEmpty
        budgets:
        - {nodes: "1", schedule: "0 9 * * *", duration: 8h, reasons: [Drifted]}
        - {nodes: 20%, reasons: [Unhealthy]}
`), known, nil)
	if len(pools) != 1 || pools[0].Problem != "" {
		t.Fatalf("got %+v, want one pool without a problem", pools)
	}
	marks := map[string]string{"karpenter.metal3.io/tenantcluster": "team.blue"}
	wantClass := &v1alpha1.MetalNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: marks},
		Spec: v1alpha1.MetalNodeClassSpec{
			ProviderRef: &v1alpha1.NameReference{Name: "metal3"},
			Properties:  map[string]string{"karpenter.metal3.io/os-image": "special", "example.com/tier": "gold"},
			KubeletArgs: v1alpha1.KubeletArgs{"max-pods": "50", "topology-manager-policy": "single-numa-node",
				"cpu-manager-policy": "static"},
		},
	}
	if diff := cmp.Diff(wantClass, pools[0].nodeClass); diff != "" {
		t.Errorf("class (-want +got):\n%s", diff)
	}
	want := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: marks}}
	want.Spec.Weight = ptr.To(int32(50))
	want.Spec.Limits = karpv1.Limits{"nodes": pools[0].nodePool.Spec.Limits["nodes"], "cpu": pools[0].nodePool.Spec.Limits["cpu"]}
	want.Spec.Disruption = karpv1.Disruption{
		ConsolidateAfter: karpv1.MustParseNillableDuration("10m"), ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
		Budgets: []karpv1.Budget{
			{Nodes: "1", Schedule: ptr.To("0 9 * * *"), Duration: &metav1.Duration{Duration: 8 * time.Hour},
				Reasons: []karpv1.DisruptionReason{"Drifted"}},
			{Nodes: "20%", Reasons: []karpv1.DisruptionReason{"Unhealthy"}},
		},
	}
	want.Spec.Template.Labels = map[string]string{"team": "vision"}
	want.Spec.Template.Spec = karpv1.NodeClaimTemplateSpec{
		Taints: []corev1.Taint{{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}},
		Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
			{Key: "karpenter.sh/capacity-type", Operator: corev1.NodeSelectorOpIn, Values: []string{"reserved"}},
			{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"r1"}},
		},
		NodeClassRef:           &karpv1.NodeClassReference{Group: "karpenter.metal3.io", Kind: "MetalNodeClass", Name: "gpu"},
		TerminationGracePeriod: &metav1.Duration{Duration: time.Hour},
		ExpireAfter:            karpv1.MustParseNillableDuration("720h"),
	}
	if diff := cmp.Diff(want, pools[0].nodePool); diff != "" {
		t.Errorf("NodePool (-want +got):\n%s", diff)
	}
	if nodes := want.Spec.Limits["nodes"]; nodes.Value() != 3 {
		t.Errorf("limits.nodes is %s, want 3", nodes.String())
	}
}

func TestNoPools(t *testing.T) {
	for name, tc := range map[string]struct{ reason, spec string }{
		"None": {"the tenant has pools of its own", "{}"},
		"Off": {"enabled: false means none", "privateNodes: {enabled: false, autoNodes: [{provider: metal3, static: [{name: a, quantity: " +
			"1}]}]}"},
		"Nothing": {"no entries", "privateNodes: {enabled: true}"},
	} {
		t.Run(name, func(t *testing.T) {
			if pools := poolsOf(tenantWith(t, tc.spec), known, nil); len(pools) != 0 {
				t.Errorf("%s: got %d pools", tc.reason, len(pools))
			}
		})
	}
	leaving := tenantWith(t, "privateNodes: {autoNodes: [{provider: metal3, static: [{name: a, quantity: 1}]}]}")
	if pools := poolsOf(leaving, known, nil); len(pools) != 1 {
		t.Fatalf("got %d pools, want 1: what follows would prove nothing", len(pools))
	}
	leaving.DeletionTimestamp = ptr.To(metav1.Now())
	if pools := poolsOf(leaving, known, nil); len(pools) != 0 {
		t.Errorf("got %d pools of a TenantCluster that is being deleted", len(pools))
	}
}

// Servers take long to come back, so by default they are released late, only when empty, and never for their age.
// All of it is written out, and all of it is the user's to change.
func TestDisruptionDefaults(t *testing.T) {
	for name, tc := range map[string]struct {
		pool   string
		want   karpv1.Disruption
		expire string
	}{
		"Nothing said": {"{name: p}", karpv1.Disruption{
			ConsolidateAfter: karpv1.MustParseNillableDuration("30m"), ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
			Budgets: []karpv1.Budget{{Nodes: "10%"}},
		}, "Never"},
		"All of it said": {"{name: p, expireAfter: 720h, disruption: {consolidateAfter: 30s, consolidationPolicy: WhenEmptyOrUnderutilized, " +
			"budgets: [{nodes: '2'}]}}", karpv1.Disruption{
			ConsolidateAfter: karpv1.MustParseNillableDuration("30s"), ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized,
			Budgets: []karpv1.Budget{{Nodes: "2"}},
		}, "720h"},
		"One thing said": {"{name: p, disruption: {consolidateAfter: Never}}", karpv1.Disruption{
			ConsolidateAfter: karpv1.MustParseNillableDuration("Never"), ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
			Budgets: []karpv1.Budget{{Nodes: "10%"}},
		}, "Never"},
	} {
		t.Run(name, func(t *testing.T) {
			pools := poolsOf(tenantWith(t, "privateNodes: {autoNodes: [{provider: metal3, dynamic: ["+tc.pool+"]}]}"), known, nil)
			spec := pools[0].nodePool.Spec
			if diff := cmp.Diff(tc.want, spec.Disruption); diff != "" {
				t.Errorf("disruption (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(karpv1.MustParseNillableDuration(tc.expire), spec.Template.Spec.ExpireAfter); diff != "" {
				t.Errorf("expireAfter (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReferencesDisruption: the example "advanced disruption" of the reference, and how long a node is drained.
func TestReferencesDisruption(t *testing.T) {
	pools := poolsOf(tenantWith(t, `
privateNodes:
  enabled: true
  autoNodes:
  - provider: metal3
    dynamic:
    - name: my-node-pool
      terminationGracePeriod: Never
      disruption:
        consolidateAfter: 10s
        budgets:
        - nodes: 20%
        - nodes: "5"
        - nodes: "0"
          schedule: "@daily"
          duration: 10m
    static:
    - {name: bounded, quantity: 1, terminationGracePeriod: 1h30m}
`), known, nil)
	want := karpv1.Disruption{
		ConsolidateAfter: karpv1.MustParseNillableDuration("10s"), ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
		Budgets: []karpv1.Budget{{Nodes: "20%"}, {Nodes: "5"},
			{Nodes: "0", Schedule: ptr.To("@daily"), Duration: &metav1.Duration{Duration: 10 * time.Minute}}},
	}
	if diff := cmp.Diff(want, pools[1].nodePool.Spec.Disruption); diff != "" || pools[1].Problem != "" {
		t.Errorf("problem %q, disruption (-want +got):\n%s", pools[1].Problem, diff)
	}
	if period := pools[1].nodePool.Spec.Template.Spec.TerminationGracePeriod; period != nil {
		t.Errorf("Never is %s, want no period", period.Duration)
	}
	if period := pools[0].nodePool.Spec.Template.Spec.TerminationGracePeriod; period == nil || period.Duration != 90*time.Minute {
		t.Errorf("1h30m is %v", period)
	}
}

// Each case is what there is in the tenant, and what the pools are called then.
func TestNames(t *testing.T) {
	const both = "static: [{name: a, quantity: 1}], dynamic: [{name: a}]"
	const fixed, flexible = "static: [{name: a, quantity: 1}]", "dynamic: [{name: a}]"
	for name, tc := range map[string]struct {
		reason, pools, existing string
		// want are the names in the order of the entries: static ones first.
		want string
	}{
		"New":             {"the static one has the name", both, "", "a a-dynamic"},
		"HadStatic":       {"it keeps its name", both, "a/static", "a a-dynamic"},
		"HadDynamic":      {"it keeps its name", both, "a/dynamic", "a-static a"},
		"Both":            {"another start", both, "a/static a-dynamic/dynamic", "a a-dynamic"},
		"BothTheOtherWay": {"another start", both, "a/dynamic a-static/static", "a-static a"},
		"CrashedStatic":   {"only the first was written", both, "a-dynamic/dynamic", "a a-dynamic"},
		"CrashedDynamic":  {"the pool that had the name was deleted by hand", both, "a-static/static", "a-static a"},
		"StaticGone":      {"the other one keeps its servers", flexible, "a/static a-dynamic/dynamic", "a-dynamic"},
		"DynamicGone":     {"the other one keeps its servers", fixed, "a/dynamic a-static/static", "a-static"},
		"StaticLongGone":  {"the other one keeps its servers", flexible, "a-dynamic/dynamic", "a-dynamic"},
		"StaticBack":      {"the name is free", both, "a-dynamic/dynamic", "a a-dynamic"},
		"OtherKind":       {"as before: it is replaced", flexible, "a/static", "a"},
		"One":             {"nothing else has the name", flexible, "", "a"},
		"TenantsOwn":      {"the long name belongs to a NodePool of the tenant's", flexible, "a-dynamic/dynamic/foreign", "a"},
		"Third": {"the entry that is called so has the NodePool", "static: [{name: a, quantity: 1}, {name: a-dynamic, quantity: 1}]",
			"a/static a-dynamic/static", "a a-dynamic"},
		"WasLong": {"the entry that is called so has the NodePool", "dynamic: [{name: a}, {name: a-dynamic}]", "a-dynamic/dynamic",
			"a a-dynamic"},
	} {
		t.Run(name, func(t *testing.T) {
			var existing []karpv1.NodePool
			for _, entry := range strings.Fields(tc.existing) {
				parts := strings.Split(entry, "/")
				pool := karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: parts[0]}}
				if len(parts) == 2 {
					pool.Labels = map[string]string{v1alpha1.TenantPoolLabelKey: "team.blue"}
				}
				if parts[1] == "static" {
					pool.Spec.Replicas = ptr.To(int64(1))
				}
				existing = append(existing, pool)
			}
			var got []string
			tenant := tenantWith(t, "privateNodes: {autoNodes: [{provider: metal3, "+tc.pools+"}]}")
			for _, p := range poolsOf(tenant, known, nodePoolsOf("team.blue", existing...)) {
				if p.Problem != "" {
					t.Errorf("%s: %s: %s", tc.reason, p.Where, p.Problem)
				}
				if p.nodeClass.Name != p.NodePool || p.nodePool.Spec.Template.Spec.NodeClassRef.Name != p.NodePool {
					t.Errorf("the class of NodePool %s is %s", p.NodePool, p.nodeClass.Name)
				}
				got = append(got, p.NodePool)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s: got %v, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// A long name that cannot be had. Neither of the two pools that want it is written.
func TestNamesThatCollide(t *testing.T) {
	long := strings.Repeat("x", 60)
	for name, tc := range map[string]struct{ reason, pools, want string }{
		"Third": {"whose servers would they be", "static: [{name: a, quantity: 1}], dynamic: [{name: a}, {name: a-dynamic}]",
			`autoNodes[0].dynamic[0] (a): its NodePool would be called a-dynamic, and so would that of autoNodes[0].dynamic[1] (a-dynamic), ` +
				`because a static and a dynamic pool have the same name: give each pool of the tenant a name of its own; ` +
				`autoNodes[0].dynamic[1] (a-dynamic): its NodePool would be called a-dynamic, and so would that of autoNodes[0].dynamic[0] (a), ` +
				`because a static and a dynamic pool have the same name: give each pool of the tenant a name of its own`},
		"Long": {"Karpenter makes a label of it", "static: [{name: " + long + ", quantity: 1}], dynamic: [{name: " + long + "}]",
			"that is longer than 63 characters: give each pool of the tenant a name of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			var problems []string
			for _, p := range poolsOf(tenantWith(t, "privateNodes: {autoNodes: [{provider: metal3, "+tc.pools+"}]}"), known, nil) {
				if p.Problem != "" {
					problems = append(problems, p.Where+": "+p.Problem)
				}
			}
			if got := strings.Join(problems, "; "); !strings.Contains(got, tc.want) {
				t.Errorf("%s: got %q, want %q in it", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNarrowing(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, provider, entry, pool string
		want                          []string
	}{
		"One":      {"exactly this", "fabrics", "", "example.com/fabric: roce", []string{"example.com/fabric In roce"}},
		"Several":  {"one of them", "fabrics", "", "example.com/fabric: 'roce, infiniband'", []string{"example.com/fabric In roce,infiniband"}},
		"Any":      {"whatever it is", "fabrics", "", "example.com/fabric: '*'", []string{"example.com/fabric Exists "}},
		"Entry":    {"of all pools of the provider", "fabrics", "example.com/fabric: roce", "", []string{"example.com/fabric In roce"}},
		"Specific": {"the pool's wins", "fabrics", "example.com/fabric: roce", "example.com/fabric: x", []string{"example.com/fabric In x"}},
		"Empty":    {"it takes away that of the entry", "fabrics", "example.com/fabric: roce", "example.com/fabric: ''", nil},
		"Unsafe":   {"no label has such a value", "fabrics", "", "example.com/fabric: 'a b'", nil},
		"NoType":   {"it is about the Machines", "fabrics", "", "example.com/team: vision", nil},
		"OfOther":  {"no type of this provider has it", "metal3", "", "example.com/fabric: roce", nil},
		"Own":      {"it says how the servers are installed", "fabrics", "", "karpenter.metal3.io/os-image: ubuntu", nil},
		"Topology": {"it is of the host", "fabrics", "", "topology.kubernetes.io/zone: b", nil},
	} {
		t.Run(name, func(t *testing.T) {
			pools := poolsOf(tenantWith(t, "privateNodes: {autoNodes: [{provider: "+tc.provider+", properties: {"+tc.entry+"}, dynamic: [{name: p, "+
				"properties: {"+tc.pool+"}}]}]}"), known, nil)
			var got []string
			for _, r := range pools[0].narrowing {
				got = append(got, r.Key+" "+string(r.Operator)+" "+strings.Join(r.Values, ","))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || pools[0].Problem != "" {
				t.Errorf("%s: problem %q (-want +got):\n%s", tc.reason, pools[0].Problem, diff)
			}
		})
	}
}

// The API server rejects a message that is not UTF-8, and the status would never be written.
func TestConditionMessageIsCutBetweenRunes(t *testing.T) {
	for offset := range 4 {
		long := strings.Repeat("x", offset) + strings.Repeat("ü😀", conditions.MaxMessage)
		for name, o := range map[string]outcome{"problems": {problems: []string{long}}, "pending": {pending: []string{long}}} {
			if got := o.condition(false).Message; len(got) > conditions.MaxMessage || !utf8.ValidString(got) {
				t.Errorf("%s, offset %d: %d bytes, valid UTF-8 %v", name, offset, len(got), utf8.ValidString(got))
			}
		}
	}
}
