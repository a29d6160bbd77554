// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topology knows which labels of a BareMetalHost its node inherits, and under which keys: the flag --topology-labels of all
// programs.
package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// Mapping says which labels of nodes come from which labels of BareMetalHosts.
type Mapping struct {
	// sources are the keys on hosts by the keys on nodes, without that of the zone.
	sources map[string]string
	// keys are those of sources, sorted.
	keys []string
	// zone is the label of hosts that their zone is read from, for NodeTypes that do not say it.
	zone string
}

// Usage is what the help of the programs says of the flag.
const Usage = "Labels of BareMetalHosts that their nodes inherit, and that pods and NodePools can select and spread on. " +
	"HOST-LABEL=NODE-LABEL has nodes inherit it under another key; a label may be named several times, for several keys. The manager, the " +
	"webhook and the providers have the same flag: set it alike."

// Defaults are the entries of the flag if it is not set.
func Defaults() []string {
	return []string{v1alpha1.RackLabelKey, v1alpha1.NVLinkDomainLabelKey, v1alpha1.DatacenterLabelKey}
}

// Default is the mapping of Defaults.
func Default() Mapping {
	mapping, _ := Parse(Defaults())
	return mapping
}

// Parse reads the entries of the flag. An entry is the key of a label of hosts, which nodes inherit under the same key, or that, an equals
// sign and another key, under which they inherit it. The error names every entry that is wrong, and the flag.
func Parse(entries []string) (Mapping, error) {
	mapping := Mapping{sources: map[string]string{}, zone: v1alpha1.DatacenterLabelKey}
	var errs []error
	wrong := func(entry, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--topology-labels has %q: "+format, append([]any{entry}, args...)...))
	}
	for _, entry := range entries {
		host, node, mapped := strings.Cut(entry, "=")
		if !mapped {
			node = host
		}
		for _, key := range slices.Compact([]string{host, node}) {
			if problems := validation.IsQualifiedName(key); len(problems) > 0 {
				wrong(entry, "%q is not the key of a label (%s): write HOST-LABEL or HOST-LABEL=NODE-LABEL", key, properties.Because(problems))
			}
		}
		other, known := mapping.sources[node]
		switch {
		case reserved(node):
			wrong(entry, "the label %s of nodes is set by Kubernetes, Karpenter or this project: choose another", node)
		case known && other != host:
			wrong(entry, "the label %s of nodes comes from the label %s of hosts already: name one of the two", node, other)
		}
		mapping.sources[node] = host
	}
	if host, mapped := mapping.sources[corev1.LabelTopologyZone]; mapped {
		mapping.zone = host
		delete(mapping.sources, corev1.LabelTopologyZone)
	}
	mapping.keys = slices.Sorted(maps.Keys(mapping.sources))
	return mapping, errors.Join(errs...)
}

// reservedKeys are labels of nodes that say something else than where their servers are.
var reservedKeys = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable, corev1.LabelWindowsBuild,
	// Karpenter takes these for other labels.
	corev1.LabelInstanceType, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, "beta.kubernetes.io/os",
	"beta.kubernetes.io/arch",
	v1alpha1.NodeTypeLabelKey, v1alpha1.NodeProfileLabelKey, v1alpha1.NodeProfileRestrictedLabelKey,
}

// reserved returns whether Kubernetes, Karpenter or this project sets a label.
func reserved(key string) bool {
	return slices.Contains(reservedKeys, v1alpha1.CanonicalKey(key)) || v1alpha1.InDomain(key, "karpenter.sh", v1alpha1.Group)
}

// Keys are the labels of nodes, sorted. That of the zone is not among them: every node has it. The caller must not change them.
func (m Mapping) Keys() []string { return m.keys }

// Sources are the labels of hosts that say where a host is: those that nodes inherit, and that of the zone. They are sorted.
func (m Mapping) Sources() []string {
	sources := map[string]bool{m.zone: true}
	for _, host := range m.sources {
		sources[host] = true
	}
	return slices.Sorted(maps.Keys(sources))
}

// Inherited are the labels of nodes that come from a label of hosts, sorted. That of the zone is not among them.
func (m Mapping) Inherited(host string) []string {
	return slices.DeleteFunc(slices.Clone(m.keys), func(node string) bool { return m.sources[node] != host })
}

// Labels are those that the node on a host with these labels has. An empty value counts as none.
func (m Mapping) Labels(host map[string]string) map[string]string {
	labels := map[string]string{}
	for node, key := range m.sources {
		if value := host[key]; value != "" {
			labels[node] = value
		}
	}
	return labels
}

// Zone is that of a host with these labels, if its NodeType does not say it.
func (m Mapping) Zone(host map[string]string) string {
	if zone := host[m.zone]; zone != "" {
		return zone
	}
	return v1alpha1.GlobalZone
}
