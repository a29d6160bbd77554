// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// MaxNamed is how many of the servers that are too small are named.
const MaxNamed = 5

// SmallServer is a host that a type selects and that has less than the type says.
type SmallServer struct {
	// Server is namespace/name of the host.
	Server string
	// Lacks is what it has less of, in words: "cpu 64 of 96".
	Lacks string
}

// String names the server and what it lacks: "metal3/server-01 (cpu 64 of 96)".
func (s SmallServer) String() string { return fmt.Sprintf("%s (%s)", s.Server, s.Lacks) }

// Named lists servers of which there are count, of which the first are given.
func Named(servers []SmallServer, count int) string {
	parts := make([]string, 0, len(servers)+1)
	for _, server := range servers {
		parts = append(parts, server.String())
	}
	if more := count - len(servers); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// as is what a host that counts like this adds to the counts of a type, for which it may be too small. It is that
// whatever else is the matter with it, and is never to be had.
func (h *host) as(typeName string, counts Counts) Counts {
	if h.lacks[typeName] != "" {
		counts.TooSmall, counts.Available, counts.NotReady = counts.Total, 0, 0
	}
	return counts
}

// tooSmall are the first, by name, of the hosts that are too small for the type and whose nodes would have labels that meet
// the requirements. It looks at buckets, and at few hosts of each.
func (t *nodeType) tooSmall(requirements []labels.Requirement) []SmallServer {
	if t.counts.TooSmall == 0 {
		return nil
	}
	var first []*host
	for _, b := range t.buckets {
		if b.counts.TooSmall == 0 || matching.Unmet(requirements, nodeLabels{b.labels, t.labels}) != nil {
			continue
		}
		first = append(first, b.small[:min(len(b.small), MaxNamed)]...)
	}
	slices.SortFunc(first, byName)
	var named []SmallServer
	for _, h := range first[:min(len(first), MaxNamed)] {
		named = append(named, SmallServer{Server: h.key.String(), Lacks: h.lacks[t.profile.Name]})
	}
	return named
}

// TooSmall looks, among the hosts of a namespace that a selector selects, for those that have less than the resources say.
// It returns the first of them by name, and how many there are. It looks at the hosts that Matching looks at.
func (i *Inventory) TooSmall(namespace string, selector labels.Selector, resources corev1.ResourceList) (first []SmallServer, count int) {
	i.lock.Lock()
	defer i.lock.Unlock()
	i.candidates(namespace, selector, func(h *host) {
		if h.key.Namespace != namespace || !selector.Matches(labels.Set(h.labels)) {
			return
		}
		if lacks := h.hardware.lacks(resources); lacks != "" {
			first = append(first, SmallServer{Server: h.key.String(), Lacks: lacks})
		}
	})
	slices.SortFunc(first, func(a, b SmallServer) int { return strings.Compare(a.Server, b.Server) })
	return first[:min(len(first), MaxNamed)], len(first)
}
