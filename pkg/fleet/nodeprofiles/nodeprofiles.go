// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeprofiles decides which NodeProfile a node has, and what the profile changes on the node.
//
// An annotation on the node records what the profile has set, and is written together with it. Server-side apply would
// keep such a record for labels and annotations, but the taints of a Node are one list with one owner.
package nodeprofiles

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Profile is the NodeProfile of a node. The zero value means no profile.
type Profile struct {
	name string
	spec v1alpha1.NodeProfileSpec
	// explicit is true if the pool or the Machine names the profile, rather than a default.
	explicit bool
}

// Find reads a NodeProfile. It returns nil if no profile has the name.
type Find func(name string) (*v1alpha1.NodeProfile, error)

// Resolve returns the profile that the pool or the Machine names, or the default, or none. problem says why not.
func Resolve(tenant *v1alpha1.TenantCluster, explicit string, find Find) (profile Profile, problem string, err error) {
	name := tenant.NodeProfileFor(explicit)
	if name == "" {
		return Profile{}, "", nil
	}
	if problem := NotAllowed(tenant, name); problem != "" { // not looked up: the problem would tell whether it exists
		return Profile{}, problem, nil
	}
	found, err := find(name)
	if err != nil {
		return Profile{}, "", err
	}
	if found == nil {
		return Profile{}, fmt.Sprintf("there is no NodeProfile %q: create it, or name another", name), nil
	}
	return Profile{name: name, spec: found.Spec, explicit: explicit != ""}, "", nil
}

// NotAllowed says why the tenant may not have a profile. It returns "" if the tenant may.
func NotAllowed(tenant *v1alpha1.TenantCluster, name string) string {
	if tenant.AllowsNodeProfile(name) {
		return ""
	}
	return fmt.Sprintf("allowedNodeProfiles of TenantCluster %s does not permit NodeProfile %q: name another, or have it extended",
		tenant.Name, name)
}

// IsNone reports whether the node has no profile.
func (p Profile) IsNone() bool { return p.name == "" }

// Applied records what a profile has set on a node. The zero value means nothing.
type Applied struct {
	// Profile is the name of the NodeProfile.
	Profile string `json:"profile"`
	// Labels and Annotations are keys.
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	// Taints are written key:effect.
	Taints        []string `json:"taints,omitempty"`
	StartupTaints []string `json:"startupTaints,omitempty"`
}

// Read parses the annotation. An annotation that cannot be read records nothing.
func Read(annotation string) Applied {
	applied := Applied{}
	if json.Unmarshal([]byte(annotation), &applied) != nil {
		return Applied{}
	}
	return applied
}

// String returns the annotation, empty if nothing is recorded.
func (a Applied) String() string {
	if a.Profile == "" && len(a.Labels)+len(a.Annotations)+len(a.Taints)+len(a.StartupTaints) == 0 {
		return ""
	}
	encoded, err := json.Marshal(a)
	if err != nil {
		return "" // not of strings
	}
	return string(encoded)
}

// Base is what a node has from its pool. A base value is restored once the profile no longer overrides it.
type Base struct {
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
}

// Apply changes the node to match the profile, and returns what the profile now sets there. Keys that the node already
// had with the same value do not belong to the profile. They stay when the profile changes.
func (p Profile) Apply(node *corev1.Node, before Applied, base Base) Applied {
	labels := p.labels()
	after := Applied{Profile: p.name, StartupTaints: before.StartupTaints}
	node.Labels, after.Labels = apply(node.Labels, labels, base.Labels, before.Labels)
	node.Annotations, after.Annotations = apply(node.Annotations, p.spec.NodeAnnotations, base.Annotations, before.Annotations)
	values := func(taints []corev1.Taint) map[string]string {
		return lo.SliceToMap(taints, func(taint corev1.Taint) (string, string) { return idOf(taint), taint.Value })
	}
	var wanted map[string]string
	wanted, after.Taints = apply(values(node.Spec.Taints), values(p.spec.Taints), values(base.Taints), before.Taints)
	node.Spec.Taints = withValues(slices.Concat(node.Spec.Taints, p.spec.Taints, base.Taints), wanted)
	return after
}

func (p Profile) labels() map[string]string {
	if !p.explicit {
		return p.spec.NodeLabels
	}
	named := map[string]string{v1alpha1.NodeProfileLabelKey: p.name, v1alpha1.NodeProfileRestrictedLabelKey: p.name}
	return lo.Assign(p.spec.NodeLabels, named, v1alpha1.OtherSpellings(named))
}

// apply sets the wanted values, removes the values that were applied before and are no longer wanted, and returns the
// keys that it applied. It restores base values. It does not modify values: after a change it returns another map.
func apply(values, wanted, base map[string]string, before []string) (map[string]string, []string) {
	result := maps.Clone(values)
	var applied []string
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		value, found := values[key]
		if !found || value != wanted[key] {
			result = lo.Assign(result, map[string]string{key: wanted[key]})
		} else if !slices.Contains(before, key) {
			continue
		}
		applied = append(applied, key)
	}
	for _, key := range before {
		if _, still := wanted[key]; still {
			continue
		}
		delete(result, key)
		if value, found := base[key]; found {
			result = lo.Assign(result, map[string]string{key: value})
		}
	}
	return result, applied
}

// withValues returns the taints whose ID has a value, each once and with that value, in order of first occurrence.
func withValues(taints []corev1.Taint, values map[string]string) []corev1.Taint {
	var result []corev1.Taint
	for _, taint := range taints {
		value, found := values[idOf(taint)]
		if !found || slices.ContainsFunc(result, func(other corev1.Taint) bool { return other.MatchTaint(&taint) }) {
			continue
		}
		taint.Value = value
		result = append(result, taint)
	}
	return result
}

// Started removes the startup taints from a node that is Ready. After that they no longer belong to the profile.
func (a Applied) Started(node *corev1.Node) Applied {
	if len(a.StartupTaints) == 0 || !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		return a
	}
	node.Spec.Taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(taint corev1.Taint) bool {
		return slices.Contains(a.StartupTaints, idOf(taint))
	})
	a.StartupTaints = nil
	return a
}

// readinessTaints begins the keys of taints that Node Readiness Controller removes, maybe long after the node is Ready.
const readinessTaints = "readiness.k8s.io/"

// Register adds the profile's labels, taints and startup taints to the ones that a node registers with, and returns
// what it added. The annotations follow once the Node exists, and so do the labels for which skip returns true.
func (p Profile) Register(labels map[string]string, taints, startupTaints []corev1.Taint, skip func(key string) bool) (
	map[string]string, []corev1.Taint, []corev1.Taint, Applied) {
	p.spec.NodeLabels = lo.OmitBy(p.labels(), func(key, _ string) bool { return skip(key) })
	p.spec.NodeAnnotations, p.explicit = nil, false
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
	node.Labels = labels
	applied := p.Apply(node, Applied{}, Base{})
	known := lo.Map(slices.Concat(node.Spec.Taints, startupTaints), func(taint corev1.Taint, _ int) string { return idOf(taint) })
	for _, taint := range p.spec.StartupTaints {
		if id := idOf(taint); !slices.Contains(known, id) {
			startupTaints, known = append(slices.Clone(startupTaints), taint), append(known, id)
			if !strings.HasPrefix(taint.Key, readinessTaints) {
				applied.StartupTaints = append(applied.StartupTaints, id)
			}
		}
	}
	return node.Labels, node.Spec.Taints, startupTaints, applied
}

func idOf(taint corev1.Taint) string { return taint.Key + ":" + string(taint.Effect) }
