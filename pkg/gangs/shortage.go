// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// namedDomains bounds how many domains a sentence names.
const namedDomains = 5

// Shortage says that no domain has room for all pods of the gang that the pod belongs to, and how much room there is:
// "no nvlink-domain has room for all 5 pods that must be together: n2 has room for 4, n1 for 2". If pods of the gang run,
// it speaks of their domain alone. It is empty if there is room, or if the pod belongs to no gang. It is as of when core
// has listed pods last.
func (c *Client) Shortage(pod *corev1.Pod) string {
	gang := of(pod)
	if gang == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.short[gang.id]
}

func (c *Client) report(short map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.short = short
}

// shortageOf puts it in words. The domains are those of place.
func shortageOf(g *gang, domains []*domain) string {
	if len(domains) > 0 && domains[0].room >= int64(len(g.pods)) {
		return ""
	}
	if g.fixed != nil {
		room := int64(0)
		if len(domains) > 0 {
			room = domains[0].room
		}
		var values []string
		for _, key := range g.keys {
			values = append(values, key+" "+g.fixed[key])
		}
		return fmt.Sprintf("%s, where the others run that these %d pods must be together with, has room for %d", strings.Join(values, " and "), len(g.pods), room)
	}
	sentence := fmt.Sprintf("no %s has room for all %d pods that must be together", strings.Join(g.keys, " and "), len(g.pods))
	var parts []string
	for i, one := range domains {
		if i == namedDomains {
			parts = append(parts, fmt.Sprintf("and %d more have less", len(domains)-i))
			break
		}
		place := strings.Join(one.values, "/")
		if i == 0 {
			parts = append(parts, fmt.Sprintf("%s has room for %d", place, one.room))
		} else {
			parts = append(parts, fmt.Sprintf("%s for %d", place, one.room))
		}
	}
	if len(parts) == 0 {
		return sentence + ": there is room for none"
	}
	return sentence + ": " + strings.Join(parts, ", ")
}
