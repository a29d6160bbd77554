// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package topology implements the flag --topology-labels of all programs. It knows which labels of a BareMetalHost its
// node inherits, and under which keys.
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

// Mapping maps labels of nodes to the labels of BareMetalHosts that they come from.
type Mapping struct {
	// sources maps keys on nodes to keys on hosts, without the key of the zone.
	sources map[string]string
	// keys are the keys of sources, sorted.
	keys []string
	// zone is the label of hosts from which their zone is read, for NodeTypes that do not set a zone.
	zone string
}

// Usage is the help text of the flag.
const Usage = "Labels of BareMetalHosts that their nodes inherit, and that pods and NodePools can select and spread on. " +
	"HOST-LABEL=NODE-LABEL has nodes inherit it under another key; a label may be named several times, for several keys. The manager, the " +
	"webhook and the providers have the same flag: set it alike."

// Defaults returns the entries of the flag if it is not set.
func Defaults() []string {
	return []string{v1alpha1.RackLabelKey, v1alpha1.NVLinkDomainLabelKey, v1alpha1.DatacenterLabelKey}
}

// Default returns the mapping of Defaults.
func Default() Mapping {
	mapping, _ := Parse(Defaults())
	return mapping
}

// Parse reads the entries of the flag. An entry is the key of a host label, which nodes inherit under that key. Or it
// is HOST-LABEL=NODE-LABEL: then nodes inherit it under the second key. The error names the flag and all wrong entries.
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

// reservedKeys are labels of nodes with another meaning than the place of their servers.
var reservedKeys = []string{
	corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable, corev1.LabelWindowsBuild,
	// Karpenter normalizes these to other labels.
	corev1.LabelInstanceType, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, "beta.kubernetes.io/os",
	"beta.kubernetes.io/arch",
	v1alpha1.NodeTypeLabelKey, v1alpha1.NodeProfileLabelKey, v1alpha1.NodeProfileRestrictedLabelKey,
}

// reserved reports whether Kubernetes, Karpenter or this project sets a label.
func reserved(key string) bool {
	return slices.Contains(reservedKeys, v1alpha1.CanonicalKey(key)) || v1alpha1.InDomain(key, "karpenter.sh", v1alpha1.Group)
}

// Keys returns the inherited labels of nodes, sorted. All nodes also have the zone label. Do not modify the result.
func (m Mapping) Keys() []string { return m.keys }

// Sources returns the labels of hosts that say where a host is, sorted: the inherited labels and the zone label.
func (m Mapping) Sources() []string {
	sources := map[string]bool{m.zone: true}
	for _, host := range m.sources {
		sources[host] = true
	}
	return slices.Sorted(maps.Keys(sources))
}

// Inherited returns the labels of nodes that come from a label of hosts, sorted. It omits the zone label.
func (m Mapping) Inherited(host string) []string {
	return slices.DeleteFunc(slices.Clone(m.keys), func(node string) bool { return m.sources[node] != host })
}

// Labels returns the labels of the node on a host with the given labels. An empty value counts as no label.
func (m Mapping) Labels(host map[string]string) map[string]string {
	labels := map[string]string{}
	for node, key := range m.sources {
		if value := host[key]; value != "" {
			labels[node] = value
		}
	}
	return labels
}

// Zone returns the zone of a host with these labels, for a NodeType that does not set one.
func (m Mapping) Zone(host map[string]string) string {
	if zone := host[m.zone]; zone != "" {
		return zone
	}
	return v1alpha1.GlobalZone
}
