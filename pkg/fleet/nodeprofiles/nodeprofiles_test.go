// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeprofiles

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func parse[T any](t *testing.T, text string) (object T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return object
}

func TestApply(t *testing.T) {
	alias := v1alpha1.ReferenceKey(v1alpha1.NodeProfileLabelKey)
	for name, tc := range map[string]struct {
		reason  string
		node    string
		profile string
		// explicit profiles are called gpu.
		explicit bool
		before   string
		base     Base
		want     string
		recorded string
	}{
		"Everything": {
			reason: "a node that has nothing yet", node: "{metadata: {labels: {own: x}}, spec: {taints: [{key: own, effect: NoExecute}]}}",
			profile:  "{nodeLabels: {class: gpu}, nodeAnnotations: {owner: ml}, taints: [{key: gpu, value: 'true', effect: NoSchedule}]}",
			explicit: true,
			want: "{metadata: {labels: {own: x, class: gpu, karpenter.metal3.io/node-profile: gpu, " + alias + ": gpu, " +
				"node-restriction.kubernetes.io/node-profile: gpu}, annotations: {owner: ml}}, spec: {taints: [{key: own, effect: NoExecute}, " +
				"{key: gpu, value: 'true', effect: NoSchedule}]}}",
			recorded: `{"profile":"gpu","labels":["class","karpenter.metal3.io/node-profile","node-restriction.kubernetes.io/node-profile","` +
				alias + `"],"annotations":["owner"],"taints":["gpu:NoSchedule"]}`,
		},
		"Default": {
			reason: "a default is in force as long as it is the default, and no label says otherwise", node: "{}",
			profile: "{nodeLabels: {class: gpu}}", want: "{metadata: {labels: {class: gpu}}}", recorded: `{"profile":"gpu","labels":["class"]}`,
		},
		"Pruned": {
			reason: "what the profile has put there goes with it, and nothing else",
			node: "{metadata: {labels: {own: x, class: gpu}, annotations: {owner: ml, note: y}}, " +
				"spec: {taints: [{key: gpu, value: 'true', effect: NoSchedule}, {key: gpu, value: 'true', effect: NoExecute}]}}",
			profile: "{}", before: `{"profile":"gpu","labels":["class"],"annotations":["owner"],"taints":["gpu:NoSchedule"]}`,
			want:     "{metadata: {labels: {own: x}, annotations: {note: y}}, spec: {taints: [{key: gpu, value: 'true', effect: NoExecute}]}}",
			recorded: `{"profile":"gpu"}`,
		},
		"Changed": {
			reason: "a value follows, and the taint keeps its place and its time",
			node: "{metadata: {labels: {class: gpu}}, spec: {taints: [{key: gpu, value: old, effect: NoSchedule, timeAdded: " +
				"'2026-01-01T00:00:00Z'}, " +
				"{key: own, effect: NoSchedule}]}}",
			profile: "{nodeLabels: {class: big}, taints: [{key: gpu, value: new, effect: NoSchedule}]}",
			before:  `{"profile":"gpu","labels":["class"],"taints":["gpu:NoSchedule"]}`,
			want: "{metadata: {labels: {class: big}}, spec: {taints: [{key: gpu, value: new, effect: NoSchedule, timeAdded: " +
				"'2026-01-01T00:00:00Z'}, " +
				"{key: own, effect: NoSchedule}]}}",
			recorded: `{"profile":"gpu","labels":["class"],"taints":["gpu:NoSchedule"]}`,
		},
		"Edited": {
			reason: "an edit of what is the profile's is undone", node: "{metadata: {labels: {class: mine}}}",
			profile:  "{nodeLabels: {class: gpu}, taints: [{key: gpu, effect: NoSchedule}]}",
			before:   `{"profile":"gpu","labels":["class"],"taints":["gpu:NoSchedule"]}`,
			want:     "{metadata: {labels: {class: gpu}}, spec: {taints: [{key: gpu, effect: NoSchedule}]}}",
			recorded: `{"profile":"gpu","labels":["class"],"taints":["gpu:NoSchedule"]}`,
		},
		"HadItBefore": {
			reason:  "another has put the same there, so it is not the profile's",
			node:    "{metadata: {labels: {class: gpu}}, spec: {taints: [{key: gpu, effect: NoSchedule}]}}",
			profile: "{nodeLabels: {class: gpu}, taints: [{key: gpu, effect: NoSchedule}]}",
			want:    "{metadata: {labels: {class: gpu}}, spec: {taints: [{key: gpu, effect: NoSchedule}]}}", recorded: `{"profile":"gpu"}`,
		},
		"PoolComesBack": {
			reason:  "the pool says it, too, and the profile has said something else",
			node:    "{metadata: {labels: {class: gpu}}, spec: {taints: [{key: gpu, value: profile, effect: NoSchedule}]}}",
			profile: "{}",
			before:  `{"profile":"gpu","labels":["class"],"taints":["gpu:NoSchedule"]}`,
			base: Base{Labels: map[string]string{"class": "pool"}, Taints: []corev1.Taint{{Key: "gpu", Value: "pool",
				Effect: corev1.TaintEffectNoSchedule}}},
			want:     "{metadata: {labels: {class: pool}}, spec: {taints: [{key: gpu, value: pool, effect: NoSchedule}]}}",
			recorded: `{"profile":"gpu"}`,
		},
		"ProfileWins": {
			reason: "over the pool, on nodes that run as on nodes to come", node: "{metadata: {labels: {class: pool}}}",
			profile: "{nodeLabels: {class: gpu}}", base: Base{Labels: map[string]string{"class": "pool"}},
			want: "{metadata: {labels: {class: gpu}}}", recorded: `{"profile":"gpu","labels":["class"]}`,
		},
		"StartupTaintsStay": {
			reason:  "only Ready takes them away, and only registration puts them there",
			node:    "{spec: {taints: [{key: boot, effect: NoSchedule}]}}",
			profile: "{startupTaints: [{key: boot, effect: NoSchedule}, {key: other, effect: NoSchedule}]}",
			before:  `{"profile":"gpu","startupTaints":["boot:NoSchedule"]}`,
			want:    "{spec: {taints: [{key: boot, effect: NoSchedule}]}}", recorded: `{"profile":"gpu","startupTaints":["boot:NoSchedule"]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := parse[corev1.Node](t, tc.node)
			profile := Profile{name: "gpu", spec: parse[v1alpha1.NodeProfileSpec](t, tc.profile), explicit: tc.explicit}
			applied := profile.Apply(&node, Read(tc.before), tc.base)
			if diff := cmp.Diff(parse[corev1.Node](t, tc.want), node, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if applied.String() != tc.recorded {
				t.Errorf("%s: it records %s\nwant %s", tc.reason, applied, tc.recorded)
			}
			again := node.DeepCopy()
			if second := profile.Apply(again, Read(applied.String()), tc.base); second.String() != applied.String() {
				t.Errorf("the second time records %s", second)
			}
			if diff := cmp.Diff(&node, again, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the second time changes (-first +second):\n%s", diff)
			}
		})
	}
}

// TestApplyNone: without a profile any more, nothing of it stays, and nothing is recorded.
func TestApplyNone(t *testing.T) {
	node := parse[corev1.Node](t, "{metadata: {labels: {own: x, class: gpu}}}")
	applied := Profile{}.Apply(&node, Read(`{"profile":"gpu","labels":["class"]}`), Base{})
	if applied.String() != "" || len(node.Labels) != 1 || node.Labels["own"] != "x" {
		t.Errorf("the node has %v, and it records %q", node.Labels, applied)
	}
}

// TestApplyLeavesTheCacheAlone: what a node points to may belong to a cache.
func TestApplyLeavesTheCacheAlone(t *testing.T) {
	labels, taints := map[string]string{"class": "x"}, []corev1.Taint{{Key: "gpu", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
	node.Labels = labels
	profile := Profile{name: "gpu", spec: parse[v1alpha1.NodeProfileSpec](t,
		"{nodeLabels: {class: y}, taints: [{key: gpu, value: y, effect: NoSchedule}]}")}
	profile.Apply(node, Applied{}, Base{})
	if labels["class"] != "x" || taints[0].Value != "x" {
		t.Errorf("it has changed %v and %v in place", labels, taints)
	}
}

func TestStarted(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, status, want, recorded string
	}{
		"NotReady": {"its setup is going on", "{type: Ready, status: 'False'}",
			"[{key: boot, effect: NoSchedule}, {key: own, effect: NoSchedule}]",
			`{"profile":"gpu","startupTaints":["boot:NoSchedule"]}`},
		"Ready": {"it is over", "{type: Ready, status: 'True'}", "[{key: own, effect: NoSchedule}]", `{"profile":"gpu"}`},
		"Other": {"another condition is not Ready", "{type: DiskPressure, status: 'True'}",
			"[{key: boot, effect: NoSchedule}, {key: own, effect: NoSchedule}]", `{"profile":"gpu","startupTaints":["boot:NoSchedule"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			node := parse[corev1.Node](t, "{spec: {taints: [{key: boot, effect: NoSchedule}, {key: own, effect: NoSchedule}]}, status: "+
				"{conditions: ["+tc.status+"]}}")
			applied := Read(`{"profile":"gpu","startupTaints":["boot:NoSchedule"]}`).Started(&node)
			if diff := cmp.Diff(parse[[]corev1.Taint](t, tc.want), node.Spec.Taints); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if applied.String() != tc.recorded {
				t.Errorf("%s: it records %s", tc.reason, applied)
			}
		})
	}
}

func TestRegister(t *testing.T) {
	alias := v1alpha1.ReferenceKey(v1alpha1.NodeProfileLabelKey)
	profile := Profile{name: "gpu", explicit: true, spec: parse[v1alpha1.NodeProfileSpec](t,
		"{nodeLabels: {class: gpu, restricted: x}, nodeAnnotations: {later: x}, taints: [{key: gpu, effect: NoSchedule}], "+
			"startupTaints: [{key: boot, effect: NoSchedule}, {key: own, effect: NoSchedule}, {key: readiness.k8s.io/gpu, effect: NoSchedule}]}")}
	own := []corev1.Taint{{Key: "own", Effect: corev1.TaintEffectNoSchedule}}
	labels, taints, startup, applied := profile.Register(map[string]string{"pool": "a"}, nil, own, func(key string) bool {
		return key == "restricted" || strings.HasPrefix(key, "node-restriction.")
	})
	wantLabels := map[string]string{"pool": "a", "class": "gpu", v1alpha1.NodeProfileLabelKey: "gpu", alias: "gpu"}
	if diff := cmp.Diff(wantLabels, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(parse[[]corev1.Taint](t, "[{key: gpu, effect: NoSchedule}]"), taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(parse[[]corev1.Taint](t, "[{key: own, effect: NoSchedule}, {key: boot, effect: NoSchedule}, "+
		"{key: readiness.k8s.io/gpu, effect: NoSchedule}]"), startup); diff != "" {
		t.Errorf("startup taints (-want +got):\n%s", diff)
	}
	// That of the Node Readiness Controller is not recorded, so it stays when the node is Ready. Core waits for it.
	if !slices.Contains(scheduling.KnownEphemeralTaintKeyPrefixes, readinessTaints) {
		t.Errorf("core does not wait for the taints of %s", readinessTaints)
	}
	want := `{"profile":"gpu","labels":["class","karpenter.metal3.io/node-profile","` + alias + `"],"taints":["gpu:NoSchedule"],` +
		`"startupTaints":["boot:NoSchedule"]}`
	if applied.String() != want {
		t.Errorf("it records %s\nwant %s", applied, want)
	}
}

func TestResolve(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, tenant, explicit, want, problem string
	}{
		"None":          {"nothing names one", "{}", "", "", ""},
		"Explicit":      {"the pool or Machine wins", "{privateNodes: {defaultProfile: b}, defaultNodeProfile: c}", "a", "a", ""},
		"TenantDefault": {"then that of privateNodes", "{privateNodes: {defaultProfile: b}, defaultNodeProfile: c}", "", "b", ""},
		"Default":       {"then that of the TenantCluster", "{privateNodes: {}, defaultNodeProfile: c}", "", "c", ""},
		"NotThere":      {"the pool waits for it", "{}", "x", "", `there is no NodeProfile "x": create it, or name another`},
		"NotAllowed": {"whether it exists is not told", "{allowedNodeProfiles: [{name: a}]}", "x", "",
			`allowedNodeProfiles of TenantCluster t does not permit NodeProfile "x": name another, or have it extended`},
		"Allowed":      {"an exact name", "{allowedNodeProfiles: [{name: a}]}", "a", "a", ""},
		"Prefix":       {"all of an owner", "{allowedNodeProfiles: [{name: platform.*}]}", "platform.gpu", "platform.gpu", ""},
		"PrefixItself": {"the owner's name is no profile of it", "{allowedNodeProfiles: [{name: a.*}]}", "a", "", "does not permit"},
		"OtherPrefix":  {"the dot belongs to it", "{allowedNodeProfiles: [{name: plat.*}]}", "platform.gpu", "", "does not permit"},
		"NoDot":        {"without a dot it is an exact name", "{allowedNodeProfiles: [{name: a*}]}", "a", "", "does not permit"},
		"Empty":        {"none", "{allowedNodeProfiles: []}", "a", "", "does not permit"},
		"EmptyNone":    {"a node without a profile is allowed", "{allowedNodeProfiles: []}", "", "", ""},
		"DefaultToo": {"a default is allowed or not like any other", "{allowedNodeProfiles: [{name: a}], defaultNodeProfile: b}", "", "",
			"does not permit"},
		"Case": {"names are compared as they are", "{allowedNodeProfiles: [{name: A}]}", "a", "", "does not permit"},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := &v1alpha1.TenantCluster{Spec: parse[v1alpha1.TenantClusterSpec](t, tc.tenant)}
			tenant.Name = "t"
			profile, problem, err := Resolve(tenant, tc.explicit, func(name string) (*v1alpha1.NodeProfile, error) {
				if name == "x" {
					return nil, nil
				}
				return &v1alpha1.NodeProfile{}, nil
			})
			if err != nil || profile.name != tc.want || profile.explicit != (tc.want != "" && tc.explicit != "") ||
				(problem == "") != (tc.problem == "") || !strings.Contains(problem, tc.problem) {
				t.Errorf("%s: it is %+v, %q, %v", tc.reason, profile, problem, err)
			}
		})
	}
	wrong := errors.New("no answer")
	if _, problem, err := Resolve(&v1alpha1.TenantCluster{}, "a", func(string) (*v1alpha1.NodeProfile, error) {
		return nil,
			wrong
	}); !errors.Is(err, wrong) {
		t.Errorf("an error of the cache is no missing profile, but %q, %v", problem, err)
	}
}
